"""Memory retention valves, which update memory after each segment.

RATE, section 3, Algorithm 2 and appendix F.3. A valve combines the memory `M_n` that
entered a segment and the candidate `H`, the last layer's outputs at the segment's
write tokens, into the memory `M_{n+1}` of the next segment:

  memory, carry = valve(memory, candidate, carry)

Memories are `[B, m, D]`. `carry` is the rest of the valve's recurrent state;
`initial_carry` returns it for an episode's first segment.
"""

from typing import Any, Literal, Tuple

import numpy as np
import tensorflow as tf

from gtrxl_tf.cores import saving

ACTIVATIONS = {
    'relu': tf.nn.relu,
    'leaky_relu': lambda x: tf.nn.leaky_relu(x, alpha=0.01),
    'none': tf.identity,
}


class _Valve(saving.SavableLayer):
  """Base of all valves.

  Args:
    num_heads: heads of the cross-attention valves; divides D.
    activation: name in `ACTIVATIONS` of the function that these valves apply to `H`.
  """

  def __init__(self, num_heads: int = 4, activation: str = 'relu', name=None):
    super().__init__(name=name)
    self._num_heads = num_heads
    self._activation = ACTIVATIONS[activation]

  def initial_carry(self, memory: tf.Tensor) -> Any:
    """Returns the carry of an episode's first segment, empty unless overridden."""
    del memory
    return ()


class Replace(_Valve):
  """`M_{n+1} = H`: no valve, as in RMT (Bulatov et al., 2022)."""

  def call(self, memory, candidate, carry) -> Tuple[tf.Tensor, Any]:
    return candidate, carry


class CrossAttention2(_Valve):
  """Old memory attends to new: `Attention(Q = M_n, K = V = act(H))`; RATE's default.

  It has four projections with biases, and no residual or norm. Scores are divided by
  sqrt(D / num_heads) as in RATE's code, where Algorithm 2 has sqrt(D); `act` and the
  biases also follow the code.
  """

  def build(self, input_shape) -> None:
    width = input_shape[-1]
    for name in ('query', 'key', 'value', 'output'):
      setattr(self, f'{name}_kernel', self.add_weight(f'{name}_kernel', (width, width)))
      setattr(self, f'{name}_bias',
              self.add_weight(f'{name}_bias', (width,), initializer='zeros'))
    super().build(input_shape)

  def _project(self, inputs, name):
    return (tf.tensordot(inputs, getattr(self, f'{name}_kernel'), axes=1)
            + getattr(self, f'{name}_bias'))

  def _attend(self, queries, keys):
    num_tokens, width = queries.shape[1:]
    head_dim = width // self._num_heads
    def project(inputs, name):
      return tf.reshape(
          self._project(inputs, name), [-1, num_tokens, self._num_heads, head_dim])
    query, key, value = (
        project(queries, 'query'), project(keys, 'key'), project(keys, 'value'))
    scores = tf.einsum('bihd,bjhd->bhij', query, key)
    weights = tf.nn.softmax(tf.cast(scores, tf.float32) / np.sqrt(head_dim))
    attended = tf.einsum('bhij,bjhd->bihd', tf.cast(weights, value.dtype), value)
    return self._project(tf.reshape(attended, [-1, num_tokens, width]), 'output')

  def call(self, memory, candidate, carry) -> Tuple[tf.Tensor, Any]:
    return self._attend(memory, self._activation(candidate)), carry


class CrossAttention1(CrossAttention2):
  """New memory attends to old: `Attention(Q = act(H), K = V = M_n)`.

  Applying `act` to `H` here too is our choice: the paper does not say, and there is no
  code for this valve.
  """

  def call(self, memory, candidate, carry) -> Tuple[tf.Tensor, Any]:
    return self._attend(self._activation(candidate), memory), carry


class Gate(_Valve):
  """`(1 - z) * M_n + z * c`, equations 2 to 5:

    r = sigmoid(M_n W_r + H U_r)
    z = sigmoid(M_n W_z + H U_z - b)
    c = tanh(M_n W_g + (H * r) U_g)

  Equation 4 prints `U_r` for `U_g`. The sigmoid around the result in equation 5 is left
  out: it would keep memory positive, and GTrXL's gate, which the equation follows, does
  not have it. `b` is trainable and starts at 2, as in `gates`; the paper does not give
  its value.
  """

  def build(self, input_shape) -> None:
    width = input_shape[-1]
    for name in 'rzg':
      for side in 'wu':
        setattr(self, f'{side}_{name}', self.add_weight(
            f'{side}_{name}', (width, width)))
    self.bias = self.add_weight(
        'bias', (width,), initializer=tf.keras.initializers.Constant(2.0))
    super().build(input_shape)

  def call(self, memory, candidate, carry) -> Tuple[tf.Tensor, Any]:
    def both(x, w, y, u):
      return tf.tensordot(x, w, axes=1) + tf.tensordot(y, u, axes=1)
    r = tf.sigmoid(both(memory, self.w_r, candidate, self.u_r))
    z = tf.sigmoid(both(memory, self.w_z, candidate, self.u_z) - self.bias)
    c = tf.tanh(both(memory, self.w_g, candidate * r, self.u_g))
    return (1 - z) * memory + z * c, carry


def _flat(tokens: tf.Tensor) -> tf.Tensor:
  """Reshapes `[B, m, D]` to `[B * m, D]`."""
  return tf.reshape(tokens, [-1, tokens.shape[-1]])


class GRU(_Valve):
  """A GRU cell at each token: input `H`, hidden state from `M_n` to `M_{n+1}`."""

  def build(self, input_shape) -> None:
    self.cell = tf.keras.layers.GRUCell(input_shape[-1], name='cell')
    self.cell.build(input_shape)
    super().build(input_shape)

  def call(self, memory, candidate, carry) -> Tuple[tf.Tensor, Any]:
    shape = [-1, *memory.shape[1:]]
    output, _ = self.cell(_flat(candidate), _flat(memory))
    return tf.reshape(output, shape), carry


class LSTM(_Valve):
  """An LSTM cell at each token: input `H`, output from `M_n` to `M_{n+1}`.

  The carry is the cell `[B, m, D]`, zero at an episode's start.
  """

  def build(self, input_shape) -> None:
    self.cell = tf.keras.layers.LSTMCell(input_shape[-1], name='cell')
    self.cell.build(input_shape)
    super().build(input_shape)

  def initial_carry(self, memory) -> tf.Tensor:
    return tf.zeros_like(memory)

  def call(self, memory, candidate, carry) -> Tuple[tf.Tensor, Any]:
    shape = [-1, *memory.shape[1:]]
    _, (output, cell) = self.cell(_flat(candidate), [_flat(memory), _flat(carry)])
    return tf.reshape(output, shape), tf.reshape(cell, shape)


RETENTION = {
    'none': Replace,
    'ca1': CrossAttention1,
    'ca2': CrossAttention2,
    'gate': Gate,
    'gru': GRU,
    'lstm': LSTM,
}

ValveName = Literal[tuple(RETENTION)]
ActivationName = Literal[tuple(ACTIVATIONS)]
