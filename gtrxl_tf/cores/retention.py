"""Memory retention valves: what becomes of memory when a segment has been read.

RATE, section 3, Algorithm 2 and appendix F.3. A valve joins the memory `M_n` that
entered a segment with the candidate `H`, the last layer's outputs at the segment's
write tokens, to the memory `M_{n+1}` of the next:

  memory, carry = valve(memory, candidate, carry)

Memories are `[B, m, D]`. `carry` is what a valve remembers besides: `initial_carry`
gives it for an episode's first segment.
"""

import numpy as np
import tensorflow as tf

ACTIVATIONS = {
    'relu': tf.nn.relu,
    'leaky_relu': lambda x: tf.nn.leaky_relu(x, alpha=0.01),
    'none': tf.identity,
}


class _Valve(tf.keras.layers.Layer):
  """What valves share.

  Args:
    num_heads: of the attending valves; divides D.
    activation: a name in `ACTIVATIONS`, which the attending valves apply to `H`.
  """

  def __init__(self, num_heads: int = 4, activation: str = 'relu', name=None):
    super().__init__(name=name)
    self._num_heads = num_heads
    self._activation = ACTIVATIONS[activation]

  def initial_carry(self, memory: tf.Tensor):
    """The carry that goes with an episode's first memory: nothing."""
    del memory
    return ()


class Replace(_Valve):
  """`M_{n+1} = H`: no valve, as in RMT (Bulatov et al., 2022)."""

  def call(self, memory, candidate, carry):
    return candidate, carry


class CrossAttention2(_Valve):
  """Old memory asks new: `Attention(Q = M_n, K = V = act(H))`, RATE's own valve.

  Four projections with biases, no residual and no norm. Algorithm 2 divides the scores
  by sqrt(D); here, as in RATE's code, it is sqrt(D / num_heads), and `act` and the
  biases are the code's too.
  """

  def build(self, input_shape):
    width = input_shape[-1]
    for name in ('query', 'key', 'value', 'output'):
      setattr(self, f'{name}_kernel', self.add_weight(f'{name}_kernel', (width, width)))
      setattr(self, f'{name}_bias',
              self.add_weight(f'{name}_bias', (width,), initializer='zeros'))
    super().build(input_shape)

  def _project(self, inputs, name):
    return (tf.tensordot(inputs, getattr(self, f'{name}_kernel'), axes=1)
            + getattr(self, f'{name}_bias'))

  def _attend(self, asking, asked):
    num_tokens, width = asking.shape[1:]
    head_dim = width // self._num_heads
    split = lambda x: tf.reshape(x, [-1, num_tokens, self._num_heads, head_dim])
    query = split(self._project(asking, 'query'))
    key, value = (split(self._project(asked, name)) for name in ('key', 'value'))
    scores = tf.einsum('bihd,bjhd->bhij', query, key)
    weights = tf.nn.softmax(tf.cast(scores, tf.float32) / np.sqrt(head_dim))
    attended = tf.einsum('bhij,bjhd->bihd', tf.cast(weights, value.dtype), value)
    return self._project(tf.reshape(attended, [-1, num_tokens, width]), 'output')

  def call(self, memory, candidate, carry):
    return self._attend(memory, self._activation(candidate)), carry


class CrossAttention1(CrossAttention2):
  """New memory asks old: `Attention(Q = act(H), K = V = M_n)`.

  That `act` is applied to `H` here too is our choice: the paper does not say, and there
  is no code.
  """

  def call(self, memory, candidate, carry):
    return self._attend(self._activation(candidate), memory), carry


class Gate(_Valve):
  """`(1 - z) * M_n + z * c`, equations 2 to 5:

    r = sigmoid(M_n W_r + H U_r)
    z = sigmoid(M_n W_z + H U_z - b)
    c = tanh(M_n W_g + (H * r) U_g)

  Equation 4 prints `U_r` for `U_g`, and equation 5 a sigmoid around the result, which
  the gate of GTrXL that it follows does not have and which would keep memory positive:
  left out. `b` is trainable and starts at 2, as in `gates`; the paper does not say.
  """

  def build(self, input_shape):
    width = input_shape[-1]
    for name in 'rzg':
      for side in 'wu':
        setattr(self, f'{side}_{name}', self.add_weight(
            f'{side}_{name}', (width, width)))
    self.bias = self.add_weight(
        'bias', (width,), initializer=tf.keras.initializers.Constant(2.0))
    super().build(input_shape)

  def call(self, memory, candidate, carry):
    both = lambda x, w, y, u: tf.tensordot(x, w, axes=1) + tf.tensordot(y, u, axes=1)
    r = tf.sigmoid(both(memory, self.w_r, candidate, self.u_r))
    z = tf.sigmoid(both(memory, self.w_z, candidate, self.u_z) - self.bias)
    c = tf.tanh(both(memory, self.w_g, candidate * r, self.u_g))
    return (1 - z) * memory + z * c, carry


class GRU(_Valve):
  """A GRU cell at each token: input `H`, hidden state `M_n` and then `M_{n+1}`."""

  def build(self, input_shape):
    self.cell = tf.keras.layers.GRUCell(input_shape[-1], name='cell')
    self.cell.build(input_shape)
    super().build(input_shape)

  def call(self, memory, candidate, carry):
    shape = [-1, *memory.shape[1:]]
    flat = lambda x: tf.reshape(x, [-1, x.shape[-1]])
    output, _ = self.cell(flat(candidate), flat(memory))
    return tf.reshape(output, shape), carry


class LSTM(_Valve):
  """An LSTM cell at each token: input `H`, output `M_n` and then `M_{n+1}`.

  The carry is the cell `[B, m, D]`, zero at an episode's start.
  """

  def build(self, input_shape):
    self.cell = tf.keras.layers.LSTMCell(input_shape[-1], name='cell')
    self.cell.build(input_shape)
    super().build(input_shape)

  def initial_carry(self, memory):
    return tf.zeros_like(memory)

  def call(self, memory, candidate, carry):
    shape = [-1, *memory.shape[1:]]
    flat = lambda x: tf.reshape(x, [-1, x.shape[-1]])
    _, (output, cell) = self.cell(flat(candidate), [flat(memory), flat(carry)])
    return tf.reshape(output, shape), tf.reshape(cell, shape)


RETENTION = {
    'none': Replace,
    'ca1': CrossAttention1,
    'ca2': CrossAttention2,
    'gate': Gate,
    'gru': GRU,
    'lstm': LSTM,
}
