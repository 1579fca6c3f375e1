"""The layer of a standard transformer, for unrolls and for steps with a cache."""

from typing import List, Literal, Optional, Tuple

import numpy as np
import tensorflow as tf

from gtrxl_tf.cores import core
from gtrxl_tf.cores import dropout as dropout_lib
from gtrxl_tf.cores import masks
from gtrxl_tf.cores import saving
from gtrxl_tf.cores import slots as slots_lib

Positions = Literal['none', 'rope', 'bias']


class Attention(saving.SavableLayer):
  """Multi-head attention of Vaswani et al. (2017), with biases in its projections.

  Keys occupy slots `0 .. K-1`. A query has the slot of its key.

  Args:
    num_heads: H.
    head_dim: d.
    positions: how attention sees the distance from query to key. `'none'`: not at all.
      `'rope'`: queries and keys are rotated (Su et al., 2021). `'bias'`: a learned bias
      for each head and distance is added to scores; keys after the query, which only
      prefix vectors see, share the bias of distance 0.
    num_slots: the largest K.
    dropout: share of the weights dropped when a dropout key is given.
  """

  def __init__(self, num_heads: int, head_dim: int, positions: Positions,
               num_slots: int, dropout: float, name: Optional[str] = None):
    super().__init__(name=name)
    self._num_heads = num_heads
    self._head_dim = head_dim
    self._positions = positions
    self._num_slots = num_slots
    self._dropout = dropout
    width = num_heads * head_dim
    self._query = tf.keras.layers.Dense(width, name='query')
    self._key_and_value = tf.keras.layers.Dense(2 * width, name='key_and_value')

  def build(self, input_shape) -> None:
    core.build_layer(self._query, input_shape)
    core.build_layer(self._key_and_value, input_shape)
    self._output = tf.keras.layers.Dense(input_shape[-1], name='output')
    core.build_layer(
        self._output, (*input_shape[:-1], self._num_heads * self._head_dim))
    if self._positions == 'bias':
      self.distance_bias = self.add_weight(
          'distance_bias', (self._num_heads, self._num_slots), initializer='zeros')
    super().build(input_shape)

  def keys_and_values(self, inputs: tf.Tensor) -> core.KeysAndValues:
    """Computes keys and values `[B, H, S, d]` of `[B, S, D]`, without slots."""
    keys, values = self._split(self._key_and_value(inputs), 2)
    return keys, values

  def attention_weights(self, inputs: tf.Tensor, keys: tf.Tensor, mask: tf.Tensor,
                        slots: tf.Tensor) -> tf.Tensor:
    """Returns the attention weights `[B, H, T, K]`. Arguments are those of `call`."""
    query, = self._split(self._query(inputs), 1)
    num_keys = keys.shape[2]
    key_slots = tf.range(num_keys)[tf.newaxis]
    if self._positions == 'rope':
      query, keys = _rotate(query, slots), _rotate(keys, key_slots)
    scores = tf.cast(tf.matmul(query, keys, transpose_b=True), tf.float32)
    scores /= np.sqrt(self._head_dim)
    if self._positions == 'bias':
      distances = tf.maximum(slots[..., tf.newaxis] - key_slots, 0)
      bias = tf.gather(self.distance_bias, distances, axis=1)  # [H, B, T, K]
      scores += tf.cast(tf.transpose(bias, [1, 0, 2, 3]), tf.float32)
    weights = masks.masked_softmax(scores, mask[:, tf.newaxis])
    return tf.cast(weights, self.compute_dtype)

  def call(self, inputs: tf.Tensor, keys: tf.Tensor, values: tf.Tensor,
           mask: tf.Tensor, slots: tf.Tensor, key: Optional[tf.Tensor] = None
           ) -> tf.Tensor:
    """Attends from `inputs` to keys, which include those of the inputs.

    Args:
      inputs: `[B, T, D]`.
      keys: `[B, H, K, d]`.
      values: `[B, H, K, d]`.
      mask: bool `[B, T, K]`, true where a query may attend.
      slots: the queries' slots, int32 `[B, T]` or `[1, T]`.
      key: a dropout key; without one nothing is dropped.

    Returns:
      `[B, T, D]`.
    """
    weights = self.attention_weights(inputs, keys, mask, slots)
    weights = dropout_lib.drop(weights, self._dropout, key, 0)
    attended = tf.transpose(tf.matmul(weights, values), [0, 2, 1, 3])
    width = self._num_heads * self._head_dim
    return self._output(tf.reshape(attended, [-1, attended.shape[1], width]))

  def _split(self, projected: tf.Tensor, parts: int) -> List[tf.Tensor]:
    """Splits `[B, S, parts H d]` into parts `[B, H, S, d]`."""
    batch_size, num_steps = tf.shape(projected)[0], projected.shape[1]
    projected = tf.reshape(  # With -1, 0 rows of 0 steps would become one row.
        projected, [batch_size, num_steps, parts, self._num_heads, self._head_dim])
    # The gradient of an index, or of a slice of an axis that is not the last one, takes
    # several times as long as that of `unstack`, or of `split`.
    return tf.unstack(tf.transpose(projected, [2, 0, 3, 1, 4]))


def _rotate(x: tf.Tensor, slots: tf.Tensor) -> tf.Tensor:
  """Rotates pairs of features of `x` `[B, H, S, d]` by their `slots` `[B, S]`."""
  half = x.shape[-1] // 2
  frequencies = tf.constant(10000.0 ** (-np.arange(half) / half), tf.float32)
  angles = tf.cast(slots, tf.float32)[:, tf.newaxis, :, tf.newaxis] * frequencies
  cosine, sine = (tf.cast(f(angles), x.dtype) for f in (tf.cos, tf.sin))
  a, b = x[..., :half], x[..., half:2 * half]
  # If d is odd, the last feature stays as it is.
  return tf.concat([a * cosine - b * sine, a * sine + b * cosine, x[..., 2 * half:]],
                   axis=-1)


class SegmentBlock(saving.SavableLayer):
  """A layer: attention, then a ReLU MLP, each with a residual and a LayerNorm.

  Args:
    num_heads: H.
    head_dim: d.
    mlp_dim: hidden units of the MLP.
    post_norm: whether norms follow the residuals; otherwise they precede the sublayers.
    positions: see `Attention`.
    num_slots: see `Attention`.
    dropout: share of hidden units dropped when a dropout key is given: in the outputs
      of attention and MLP, and within the MLP.
    attention_dropout: share of the attention weights dropped, likewise.
  """

  def __init__(self, num_heads: int, head_dim: int, mlp_dim: int, post_norm: bool,
               positions: Positions, num_slots: int, dropout: float,
               attention_dropout: float, name: Optional[str] = None):
    super().__init__(name=name)
    self._post_norm = post_norm
    self._dropout = dropout
    self.attention = Attention(num_heads, head_dim, positions, num_slots,
                               attention_dropout, name='attention')
    self._attention_norm = core.layer_norm('attention_norm')
    self._mlp_norm = core.layer_norm('mlp_norm')
    self._hidden = tf.keras.layers.Dense(mlp_dim, 'relu', name='hidden')

  def build(self, input_shape) -> None:
    self._outputs = tf.keras.layers.Dense(input_shape[-1], name='outputs')
    for layer in (self.attention, self._attention_norm, self._mlp_norm, self._hidden):
      core.build_layer(layer, input_shape)
    core.build_layer(self._outputs, (*input_shape[:-1], self._hidden.units))
    super().build(input_shape)

  def keys_and_values(self, memory: tf.Tensor) -> core.KeysAndValues:
    """Computes keys and values `[B, H, S, d]` of `memory` `[B, S, D]`, for `step`."""
    return self.attention.keys_and_values(
        self._normalized(tf.cast(memory, self.compute_dtype)))

  def call(self, stream: tf.Tensor, memory: tf.Tensor,
           prefix: Optional[core.KeysAndValues], mask: tf.Tensor, slots: tf.Tensor,
           key: Optional[tf.Tensor] = None) -> tf.Tensor:
    """Attends to a prefix, memory and inputs, which occupy slots in this order.

    Args:
      stream: `[B, T, D]`.
      memory: `[B, M, D]`; M may be 0.
      prefix: keys and values `[1, H, P, d]`, shared by all rows, or None.
      mask: bool `[B, T, P+M+T]`.
      slots: the inputs' slots, int32 `[1, T]`.
      key: a dropout key; without one nothing is dropped.

    Returns:
      `[B, T, D]`.
    """
    inputs = self._normalized(stream)
    keys, values = self._keys(inputs, memory, prefix)
    attended = self.attention(
        inputs, keys, values, mask, slots, dropout_lib.fold(key, 0))
    return self._join(stream, attended, key)

  def attention_weights(self, stream: tf.Tensor, memory: tf.Tensor,
                        prefix: Optional[core.KeysAndValues], mask: tf.Tensor,
                        slots: tf.Tensor) -> tf.Tensor:
    """Returns the attention weights `[B, H, T, P+M+T]` of `call`."""
    inputs = self._normalized(stream)
    keys, _ = self._keys(inputs, memory, prefix)
    return self.attention.attention_weights(inputs, keys, mask, slots)

  def step(self, stream: tf.Tensor, keys: tf.Tensor, values: tf.Tensor,
           mask: tf.Tensor, slot: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Takes one step and writes its key and value into the cache.

    Args:
      stream: `[B, 1, D]`.
      keys: `[B, H, K, d]`.
      values: `[B, H, K, d]`.
      mask: bool `[B, K]`.
      slot: the step's slot, int32 `[B]`.

    Returns:
      Outputs `[B, 1, D]`, and the updated keys and values.
    """
    inputs = self._normalized(stream)
    key, value = self.attention.keys_and_values(inputs)
    keys = slots_lib.put(keys, key[:, :, 0], slot)
    values = slots_lib.put(values, value[:, :, 0], slot)
    attended = self.attention(
        inputs, keys, values, mask[:, tf.newaxis], slot[:, tf.newaxis])
    return self._join(stream, attended), keys, values

  def _keys(self, inputs, memory, prefix) -> core.KeysAndValues:
    if memory.shape[1]:
      memory = self._normalized(tf.cast(memory, inputs.dtype))
      inputs = tf.concat([memory, inputs], axis=1)
    keys, values = self.attention.keys_and_values(inputs)
    if prefix is None:
      return keys, values
    batch_size = tf.shape(keys)[0]
    def prepend(shared, own):
      return tf.concat([tf.repeat(shared, batch_size, axis=0), own], axis=2)
    return prepend(prefix[0], keys), prepend(prefix[1], values)

  def _normalized(self, x):
    return x if self._post_norm else self._attention_norm(x)

  def _join(self, stream, attended, key=None):
    """Applies residuals, norms and the MLP."""
    def drop(x, number):
      return dropout_lib.drop(x, self._dropout, key, number)
    stream += drop(attended, 1)
    if self._post_norm:
      stream = self._attention_norm(stream)
    outputs = self._hidden(stream if self._post_norm else self._mlp_norm(stream))
    stream += drop(self._outputs(drop(outputs, 2)), 3)
    return self._mlp_norm(stream) if self._post_norm else stream


def make_blocks(num_layers: int, prefix: str, **settings) -> List[SegmentBlock]:
  """Makes layers with the same settings, named `{prefix}_0` and so on."""
  return [SegmentBlock(**settings, name=f'{prefix}_{i}') for i in range(num_layers)]
