"""The layer of Transformer-XL cores."""

from typing import List, Literal, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from gtrxl_tf.cores import core
from gtrxl_tf.cores import dropout as dropout_lib
from gtrxl_tf.cores import gates
from gtrxl_tf.cores import relative_attention
from gtrxl_tf.cores import relative_positions
from gtrxl_tf.cores import saving

Variant = Literal['trxl', 'trxl_i', 'gtrxl']


class XLBlock(saving.SavableLayer):
  """One layer: attention over memory and inputs, then an optional position-wise MLP.

  `trxl` normalizes after each sub-module (equations 2 to 4 of "Stabilizing Transformers
  for Reinforcement Learning"). The other variants normalize before it and apply a ReLU
  to its output (equations 5 to 8 and 23 to 26).

  Args:
    num_heads: H.
    head_dim: d.
    mlp_dim: hidden units of the MLP; 0 for no MLP.
    post_norm: whether to normalize after each sub-module, as in `trxl`.
    gate: name in `gates.GATES`.
    gate_bias: initial value of `b_g`.
    use_bias: adds biases to the attention's projections.
    dropout: share of hidden units dropped when a dropout key is given: in position
      encodings, in the outputs of attention and MLP, and within the MLP.
    attention_dropout: share of the attention weights dropped, likewise.
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
    self.attention_norm = core.layer_norm('attention_norm')
    self.mlp_norm = core.layer_norm('mlp_norm') if mlp_dim else None

  def build(self, input_shape) -> None:
    for layer in (self.attention, self.attention_gate, self.mlp_gate,
                  self.attention_norm, self.mlp_norm):
      if layer is not None:
        core.build_layer(layer, input_shape)
    self._mlp = self._make_mlp(input_shape) if self._mlp_dim else None
    super().build(input_shape)

  def _make_mlp(self, input_shape) -> tf.keras.Sequential:
    hidden = tf.keras.layers.Dense(self._mlp_dim, 'relu', name='hidden')
    outputs = tf.keras.layers.Dense(input_shape[-1], name='outputs')
    mlp = tf.keras.Sequential([hidden, outputs], name='mlp')
    # A Sequential would build its layers outside of all name scopes.
    with tf.name_scope(mlp.name):
      core.build_layer(hidden, input_shape)
      core.build_layer(outputs, hidden.compute_output_shape(input_shape))
    mlp.build(input_shape)
    return mlp

  def _attention_inputs(self, inputs):
    return inputs if self._post_norm else self.attention_norm(inputs)

  def _join(self, inputs, attended, key=None):
    """Applies the gates and the MLP to the attention's outputs."""
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

  def call(self, inputs: tf.Tensor, memory: tf.Tensor, mask: tf.Tensor,
           lookahead: int = 0, key: Optional[tf.Tensor] = None) -> tf.Tensor:
    """Computes the layer's outputs.

    Args:
      inputs: `[B, T, D]`.
      memory: `[B, M, D]`, into which no gradient flows.
      mask: bool `[B, T, M+T]`.
      lookahead: as for the attention.
      key: a dropout key; without one nothing is dropped.

    Returns:
      `[B, T, D]`.
    """
    memory, affine = tf.stop_gradient(tf.cast(memory, inputs.dtype)), None
    if not self._post_norm:
      norm = self.attention_norm
      memory, affine = norm.normalize(memory), (norm.gamma, norm.beta)
    attended = self.attention(
        self._attention_inputs(inputs), memory, mask, lookahead,
        dropout_lib.fold(key, 0), affine)
    return self._join(inputs, attended, key)

  def attention_weights(self, inputs: tf.Tensor, memory: tf.Tensor, mask: tf.Tensor,
                        lookahead: int = 0) -> tf.Tensor:
    """Returns the attention weights `[B, H, T, M+T]` of `call`."""
    memory = tf.cast(memory, inputs.dtype)
    return self.attention.attention_weights(
        self._attention_inputs(inputs), self._attention_inputs(memory), mask, lookahead)

  def extend(self, inputs: tf.Tensor, keys: tf.Tensor, values: tf.Tensor,
             mask: tf.Tensor, lookahead: int = 0
             ) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Computes outputs for `inputs` `[B, T, D]` after a cache, and keys and values.

    Arguments are those of the attention's `extend`.
    """
    attended, own_keys, own_values = self.attention.extend(
        self._attention_inputs(inputs), keys, values, mask, lookahead)
    return self._join(inputs, attended), own_keys, own_values

  def keys_and_values(self, memory: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """Computes keys and values `[B, H, S, d]` of `memory` `[B, S, D]`, for `step`."""
    return self.attention.cached_keys_and_values(
        self._attention_inputs(tf.cast(memory, self.compute_dtype)))

  def step(self, inputs: tf.Tensor, keys: tf.Tensor, values: tf.Tensor,
           positions: tf.Tensor, mask: tf.Tensor
           ) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Takes a step `[B, 1, D]`; returns outputs, and its key and value `[B, H, d]`.

    The other arguments are those of the attention's `step`.
    """
    attended, key, value = self.attention.step(
        self._attention_inputs(inputs)[:, 0], keys, values, positions, mask)
    return self._join(inputs, attended[:, tf.newaxis]), key, value

  def step_with_tail(self, inputs: tf.Tensor,
                     window: core.KeysAndValues,
                     tail: core.KeysAndValues,
                     positions: relative_positions.Distances, bias: tf.Tensor
                     ) -> Tuple[tf.Tensor, core.KeysAndValues]:
    """Takes a step `[B, D]`; returns outputs `[B, D]` and the new tail.

    The other arguments are those of the attention's `step_with_tail`.
    """
    attended, tail = self.attention.step_with_tail(
        self._attention_inputs(inputs), window, tail, positions, bias)
    return self._join(inputs, attended), tail


def make_blocks(num_layers: int, num_heads: int, head_dim: int, mlp_dim: int,
                variant: Variant, gate: str = 'gru', gate_bias: float = 2.0,
                use_bias: bool = False, dropout: float = 0.0,
                attention_dropout: float = 0.0) -> List[XLBlock]:
  """Makes the layers of a `variant`, see `TransformerXL`; no MLP if `mlp_dim` is 0."""
  return [
      XLBlock(num_heads, head_dim, mlp_dim, post_norm=variant == 'trxl',
              gate=gate if variant == 'gtrxl' else 'residual',
              gate_bias=gate_bias, use_bias=use_bias, dropout=dropout,
              attention_dropout=attention_dropout, name=f'block_{i}')
      for i in range(num_layers)]


class AttentionWeights(NamedTuple):
  """Attention weights of all layers, in each of an unroll's N segments.

  Kinds are `cache` for positions of earlier segments, `read` and `write` for memory
  tokens before and after the steps, and `step`.
  """
  weights: tf.Tensor  # [B, N, L, H, Q, K]; they sum to 1 over keys.
  queries: List[str]  # The kind of each query.
  keys: List[str]     # The kind of each key.


def weigh(blocks: Sequence[XLBlock], inputs: Sequence[tf.Tensor], memory: tf.Tensor,
          mask: tf.Tensor, lookahead: int = 0) -> tf.Tensor:
  """Computes the attention weights of all layers, `[B, L, H, T, M+T]`.

  Args:
    blocks: L layers.
    inputs: each layer's inputs, `[B, T, D]`.
    memory: `[B, M, L, D]`.
    mask: `[B, T, M+T]`.
    lookahead: as for `RelativeMultiHeadAttention`.
  """
  return tf.stack([
      block.attention_weights(x, memory[:, :, i], mask, lookahead)
      for i, (block, x) in enumerate(zip(blocks, inputs))], axis=1)
