"""The layer that Transformer-XL cores are made of."""

from typing import List, NamedTuple, Sequence

import tensorflow as tf

from gtrxl_tf.cores import core
from gtrxl_tf.cores import dropout as dropout_lib
from gtrxl_tf.cores import gates
from gtrxl_tf.cores import relative_attention


def put(window: tf.Tensor, row: tf.Tensor, slot: tf.Tensor) -> tf.Tensor:
  """Writes `row` `[B, ..., d]` into `window` `[B, ..., C, d]` at `slot` `[B]`."""
  num_slots = window.shape[-2]
  here = tf.range(num_slots) == slot[:, tf.newaxis]
  here = tf.reshape(here, [-1] + [1] * (window.shape.rank - 3) + [num_slots, 1])
  return tf.where(here, row[..., tf.newaxis, :], window)


class XLBlock(tf.keras.layers.Layer):
  """One layer: attention over memory and inputs, then a position-wise MLP if any.

  `trxl` normalizes after each sub-module (equations 1 and 2), the others before it and
  apply a ReLU to the sub-module's output (equations 5 to 8 and 23 to 26).
  """

  def __init__(self, num_heads: int, head_dim: int, mlp_dim: int, post_norm: bool,
               gate: str, gate_bias: float, use_bias: bool, dropout: float,
               attention_dropout: float, name=None):
    super().__init__(name=name)
    self._post_norm = post_norm
    self._dropout = dropout
    self._mlp_dim = mlp_dim
    self.attention = relative_attention.RelativeMultiHeadAttention(
        num_heads, head_dim, use_bias, dropout, attention_dropout, name='attention')
    self.attention_gate = gates.GATES[gate](gate_bias, name='attention_gate')
    self.mlp_gate = (
        gates.GATES[gate](gate_bias, name='mlp_gate') if mlp_dim else None)
    norm = lambda name: tf.keras.layers.LayerNormalization(epsilon=1e-5, name=name)
    self.attention_norm = norm('attention_norm')
    self.mlp_norm = norm('mlp_norm') if mlp_dim else None

  def build(self, input_shape):
    self._mlp = tf.keras.Sequential([
        tf.keras.layers.Dense(self._mlp_dim, 'relu', name='hidden'),
        tf.keras.layers.Dense(input_shape[-1], name='outputs')],
        name='mlp') if self._mlp_dim else None
    for layer in (self.attention, self.attention_gate, self.mlp_gate,
                  self.attention_norm, self.mlp_norm, self._mlp):
      if layer is not None:
        core.build_layer(layer, input_shape)
    super().build(input_shape)

  def _attention_inputs(self, inputs):
    return inputs if self._post_norm else self.attention_norm(inputs)

  def _join(self, inputs, attended, key=None):
    """Gates and MLP, from the attention's outputs on."""
    attended = dropout_lib.drop(attended, self._dropout, key, 1)
    if self._post_norm:
      stream = self.attention_norm(self.attention_gate(inputs, attended))
      if self._mlp is None:
        return stream
      return self.mlp_norm(self.mlp_gate(stream, self._run_mlp(stream, key)))
    stream = self.attention_gate(inputs, tf.nn.relu(attended))
    if self._mlp is None:
      return stream
    outputs = self._run_mlp(self.mlp_norm(stream), key)
    return self.mlp_gate(stream, tf.nn.relu(outputs))

  def _run_mlp(self, inputs, key):
    hidden, outputs = self._mlp.layers
    inputs = dropout_lib.drop(hidden(inputs), self._dropout, key, 2)
    return dropout_lib.drop(outputs(inputs), self._dropout, key, 3)

  def call(self, inputs, memory, mask, lookahead=0, key=None):
    """`[B, T, D]`, `[B, M, D]`, `[B, T, M+T]` to `[B, T, D]`."""
    memory = tf.stop_gradient(tf.cast(memory, inputs.dtype))
    attended = self.attention(
        self._attention_inputs(inputs), self._attention_inputs(memory), mask,
        lookahead, dropout_lib.fold(key, 0))
    return self._join(inputs, attended, key)

  def attention_weights(self, inputs, memory, mask, lookahead=0):
    """The weights `[B, H, T, M+T]` by which `call` attends."""
    memory = tf.cast(memory, inputs.dtype)
    return self.attention.attention_weights(
        self._attention_inputs(inputs), self._attention_inputs(memory), mask, lookahead)

  def extend(self, inputs, keys, values, mask, lookahead=0):
    """`inputs` `[B, T, D]` to outputs `[B, T, D]` and their own keys and values."""
    attended, own_keys, own_values = self.attention.extend(
        self._attention_inputs(inputs), keys, values, mask, lookahead)
    return self._join(inputs, attended), own_keys, own_values

  def keys_and_values(self, memory):
    """What `step` attends to in place of `memory` `[B, S, D]`: `[B, H, S, d]`."""
    return self.attention.cached_keys_and_values(
        self._attention_inputs(tf.cast(memory, self.compute_dtype)))

  def step(self, inputs, keys, values, positions, mask):
    """`inputs` `[B, 1, D]` to outputs `[B, 1, D]` and the step's key and value."""
    attended, key, value = self.attention.step(
        self._attention_inputs(inputs)[:, 0], keys, values, positions, mask)
    return self._join(inputs, attended[:, tf.newaxis]), key, value


def make_blocks(num_layers: int, num_heads: int, head_dim: int, mlp_dim: int,
                variant: str, gate: str = 'gru', gate_bias: float = 2.0,
                use_bias: bool = False, dropout: float = 0.0,
                attention_dropout: float = 0.0) -> List[XLBlock]:
  """The layers of a `variant`; see `TransformerXL`. No MLP if `mlp_dim` is 0."""
  return [
      XLBlock(num_heads, head_dim, mlp_dim, post_norm=variant == 'trxl',
              gate=gate if variant == 'gtrxl' else 'residual',
              gate_bias=gate_bias, use_bias=use_bias, dropout=dropout,
              attention_dropout=attention_dropout, name=f'block_{i}')
      for i in range(num_layers)]


class AttentionWeights(NamedTuple):
  """Whom the layers of an unroll attend to, in each of its N segments.

  Kinds are `cache`, what is held of earlier segments, `read` and `write`, memory tokens
  before and behind the steps, and `step`.
  """
  weights: tf.Tensor  # [B, N, L, H, Q, K], which add up to 1 over keys.
  queries: List[str]  # The kind of each query.
  keys: List[str]     # The kind of each key.


def weigh(blocks: Sequence[XLBlock], inputs: Sequence[tf.Tensor], memory: tf.Tensor,
          mask: tf.Tensor, lookahead: int = 0) -> tf.Tensor:
  """`[B, L, H, T, M+T]`: weights of all layers, given what went into each of them.

  Args:
    blocks: L layers.
    inputs: of each layer, `[B, T, D]`.
    memory: `[B, M, L, D]`.
    mask: `[B, T, M+T]`.
    lookahead: as for attention.
  """
  return tf.stack([
      block.attention_weights(x, memory[:, :, i], mask, lookahead)
      for i, (block, x) in enumerate(zip(blocks, inputs))], axis=1)
