"""The layer of standard transformers: attention and MLP, and the same with a cache."""

from typing import List, Literal, Optional, Tuple

import numpy as np
import tensorflow as tf

from gtrxl_tf.cores import core
from gtrxl_tf.cores import dropout as dropout_lib

_MASKED = -1e30  # Finite, so that a row with every key masked gives no NaN.

KeysAndValues = Tuple[tf.Tensor, tf.Tensor]
Positions = Literal['none', 'rope', 'bias']


class Attention(tf.keras.layers.Layer):
  """Multi-head attention of Vaswani et al. (2017), with biases in its projections.

  Keys stand in slots `0 .. K-1`, and a query in the slot of its own key.

  Args:
    num_heads: H.
    head_dim: d.
    positions: what is known of how far a key is from a query: `none`thing, by rotation
      of queries and keys (`rope`, Su et al., 2021), or by a learned `bias` for each
      head and distance.
    num_slots: the most there are.
    dropout: share of the weights that is dropped where there is a key of dropout.
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

  def build(self, input_shape):
    core.build_layer(self._query, input_shape)
    core.build_layer(self._key_and_value, input_shape)
    self._output = tf.keras.layers.Dense(input_shape[-1], name='output')
    core.build_layer(
        self._output, input_shape[:-1] + [self._num_heads * self._head_dim])
    if self._positions == 'bias':
      self.distance_bias = self.add_weight(
          'distance_bias', (self._num_heads, self._num_slots), initializer='zeros')
    super().build(input_shape)

  def keys_and_values(self, inputs: tf.Tensor) -> KeysAndValues:
    """Those of `inputs` `[B, S, D]`, each `[B, H, S, d]`. Slots are not in them."""
    split = self._split(self._key_and_value(inputs), 2)
    return split[0], split[1]

  def attention_weights(self, inputs: tf.Tensor, keys: tf.Tensor, mask: tf.Tensor,
                        slots: tf.Tensor) -> tf.Tensor:
    """Of each key for each query: `[B, H, T, K]`. Arguments as for `call`."""
    query = self._split(self._query(inputs), 1)[0]
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
    scores = tf.where(mask[:, tf.newaxis], scores, _MASKED)
    return tf.cast(tf.nn.softmax(scores), self.compute_dtype)

  def call(self, inputs: tf.Tensor, keys: tf.Tensor, values: tf.Tensor,
           mask: tf.Tensor, slots: tf.Tensor, key: Optional[tf.Tensor] = None
           ) -> tf.Tensor:
    """Attends from `inputs` to keys, their own among them.

    Args:
      inputs: `[B, T, D]`.
      keys: `[B, H, K, d]`.
      values: `[B, H, K, d]`.
      mask: bool `[B, T, K]`, true where a query may attend.
      slots: int32 `[B, T]` or `[1, T]`, where the queries stand.
      key: decides what is dropped; without, nothing is.

    Returns:
      `[B, T, D]`.
    """
    weights = self.attention_weights(inputs, keys, mask, slots)
    weights = dropout_lib.drop(weights, self._dropout, key, 0)
    attended = tf.transpose(tf.matmul(weights, values), [0, 2, 1, 3])
    width = self._num_heads * self._head_dim
    return self._output(tf.reshape(attended, [-1, attended.shape[1], width]))

  def _split(self, projected: tf.Tensor, parts: int) -> tf.Tensor:
    """`[B, S, parts H d]` to `[parts, B, H, S, d]`."""
    projected = tf.reshape(projected, [
        -1, projected.shape[1], parts, self._num_heads, self._head_dim])
    return tf.transpose(projected, [2, 0, 3, 1, 4])


def _rotate(x: tf.Tensor, slots: tf.Tensor) -> tf.Tensor:
  """`x` `[B, H, S, d]`, pairs of features of which are turned by angles of `slots`
  `[B, S]`."""
  half = x.shape[-1] // 2
  frequencies = tf.constant(10000.0 ** (-np.arange(half) / half), tf.float32)
  angles = tf.cast(slots, tf.float32)[:, tf.newaxis, :, tf.newaxis] * frequencies
  cosine, sine = (tf.cast(f(angles), x.dtype) for f in (tf.cos, tf.sin))
  a, b = x[..., :half], x[..., half:2 * half]
  # An odd feature stays as it is.
  return tf.concat([a * cosine - b * sine, a * sine + b * cosine, x[..., 2 * half:]],
                   axis=-1)


class SegmentBlock(tf.keras.layers.Layer):
  """Attention, then a ReLU MLP, each with a residual and a LayerNorm."""

  def __init__(self, num_heads: int, head_dim: int, mlp_dim: int, post_norm: bool,
               positions: Positions, num_slots: int, dropout: float,
               attention_dropout: float, name: Optional[str] = None):
    super().__init__(name=name)
    self._post_norm = post_norm
    self._dropout = dropout
    self.attention = Attention(num_heads, head_dim, positions, num_slots,
                               attention_dropout, name='attention')
    norm = lambda name: tf.keras.layers.LayerNormalization(epsilon=1e-5, name=name)
    self._attention_norm, self._mlp_norm = norm('attention_norm'), norm('mlp_norm')
    self._hidden = tf.keras.layers.Dense(mlp_dim, 'relu', name='hidden')

  def build(self, input_shape):
    self._outputs = tf.keras.layers.Dense(input_shape[-1], name='outputs')
    for layer in (self.attention, self._attention_norm, self._mlp_norm, self._hidden):
      core.build_layer(layer, input_shape)
    core.build_layer(self._outputs, input_shape[:-1] + [self._hidden.units])
    super().build(input_shape)

  def keys_and_values(self, memory: tf.Tensor) -> KeysAndValues:
    """What the layer attends to in place of `memory` `[B, S, D]`: `[B, H, S, d]`."""
    return self.attention.keys_and_values(
        self._normalized(tf.cast(memory, self.compute_dtype)))

  def call(self, stream: tf.Tensor, memory: tf.Tensor, prefix: Optional[KeysAndValues],
           mask: tf.Tensor, slots: tf.Tensor, key: Optional[tf.Tensor] = None
           ) -> tf.Tensor:
    """Attends to a prefix, memory and inputs, which stand in slots in this order.

    Args:
      stream: `[B, T, D]`.
      memory: `[B, M, D]`; M may be 0.
      prefix: keys and values `[1, H, P, d]`, the same for all rows, if there are any.
      mask: bool `[B, T, P+M+T]`.
      slots: of the inputs, int32 `[1, T]`.
      key: decides what is dropped; without, nothing is.

    Returns:
      `[B, T, D]`.
    """
    inputs = self._normalized(stream)
    keys, values = self._keys(inputs, memory, prefix)
    attended = self.attention(
        inputs, keys, values, mask, slots, dropout_lib.fold(key, 0))
    return self._join(stream, attended, key)

  def attention_weights(self, stream, memory, prefix, mask, slots) -> tf.Tensor:
    """The weights `[B, H, T, P+M+T]` by which `call` attends."""
    inputs = self._normalized(stream)
    keys, _ = self._keys(inputs, memory, prefix)
    return self.attention.attention_weights(inputs, keys, mask, slots)

  def step(self, stream: tf.Tensor, keys: tf.Tensor, values: tf.Tensor,
           mask: tf.Tensor, slot: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """One input `[B, 1, D]`, whose key and value are put at `slot` `[B]` of those
    cached, `[B, H, K, d]`; returns the outputs and the cached ones after that."""
    inputs = self._normalized(stream)
    key, value = self.attention.keys_and_values(inputs)
    keys, values = put(keys, key, slot), put(values, value, slot)
    attended = self.attention(
        inputs, keys, values, mask[:, tf.newaxis], slot[:, tf.newaxis])
    return self._join(stream, attended), keys, values

  def _keys(self, inputs, memory, prefix) -> KeysAndValues:
    if memory.shape[1]:
      memory = self._normalized(tf.cast(memory, inputs.dtype))
      inputs = tf.concat([memory, inputs], axis=1)
    keys, values = self.attention.keys_and_values(inputs)
    if prefix is None:
      return keys, values
    batch_size = tf.shape(keys)[0]
    join = lambda first, then: tf.concat(
        [tf.repeat(first, batch_size, axis=0), then], axis=2)
    return join(prefix[0], keys), join(prefix[1], values)

  def _normalized(self, x):
    return x if self._post_norm else self._attention_norm(x)

  def _join(self, stream, attended, key=None):
    """Residuals, norms and the MLP."""
    drop = lambda x, number: dropout_lib.drop(x, self._dropout, key, number)
    stream += drop(attended, 1)
    if self._post_norm:
      stream = self._attention_norm(stream)
    outputs = self._hidden(stream if self._post_norm else self._mlp_norm(stream))
    stream += drop(self._outputs(drop(outputs, 2)), 3)
    return self._mlp_norm(stream) if self._post_norm else stream


def put(window: tf.Tensor, row: tf.Tensor, slot: tf.Tensor) -> tf.Tensor:
  """Writes `row` `[B, H, 1, d]` into `window` `[B, H, K, d]` at `slot` `[B]`."""
  here = tf.equal(tf.range(window.shape[2]), slot[:, tf.newaxis])
  return tf.where(here[:, tf.newaxis, :, tf.newaxis], row, window)


def make_blocks(num_layers: int, prefix: str, **settings) -> List[SegmentBlock]:
  """Layers with the same settings, of different names."""
  return [SegmentBlock(**settings, name=f'{prefix}_{i}') for i in range(num_layers)]
