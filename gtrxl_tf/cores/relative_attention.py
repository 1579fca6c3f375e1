"""Multi-head attention with relative positions over memory and inputs."""

import functools
from typing import Optional, Tuple

import numpy as np
import tensorflow as tf

from gtrxl_tf.cores import core
from gtrxl_tf.cores import dropout as dropout_lib
from gtrxl_tf.cores import masks
from gtrxl_tf.cores import relative_positions
from gtrxl_tf.cores import saving
from gtrxl_tf.settings import config


@config.configurable
class RelativeMultiHeadAttention(saving.SavableLayer):
  """Multi-head attention that sees a key's position as its distance from the query.

  It follows equations 15 to 21 of "Stabilizing Transformers for Reinforcement Learning"
  (from Dai et al., 2019), without the residual. The scores are scaled by
  `1/sqrt(head_dim)`, which equations 10 and 18 omit but every implementation of Dai et
  al. has.

    >>> attention = RelativeMultiHeadAttention(num_heads=2, head_dim=4)
    >>> inputs, memory = tf.ones([1, 3, 8]), tf.ones([1, 2, 8])
    >>> attention(inputs, memory, mask=tf.ones([1, 3, 5], tf.bool)).shape
    TensorShape([1, 3, 8])

  `segment_block` and `retention` have attention layers that share only the softmax with
  this one. Here scores have further terms, with biases u and v and projected distances.
  `segment_block` instead rotates queries and keys or adds a bias for each distance, and
  projects keys and values with one kernel. `retention` takes queries and keys from
  different tokens, without a mask. One class for all three would change the variables
  of checkpoints and the initial values.

  Args:
    num_heads: H.
    head_dim: d; `H * d` may differ from the inputs' width D.
    use_bias: adds biases to all five projections. The paper does not say whether its
      "linear projections" have them; its parameter counts (Table 2) fit best with them.
    dropout: share of the position encodings dropped when a dropout key is given.
    attention_dropout: share of the attention weights dropped, likewise.

  Variables: `query_kernel`, `key_kernel`, `value_kernel`, `relative_kernel`
  `[D, H, d]`, `output_kernel` `[H, d, D]`, `content_bias_u` and `position_bias_v`
  `[H, d]`; with `use_bias`, a `_bias` for each kernel.
  """

  def __init__(self, num_heads: config.PositiveInt = 8,
               head_dim: config.PositiveInt = 64, use_bias: bool = False,
               dropout: config.UnitInterval = 0.0,
               attention_dropout: config.UnitInterval = 0.0, name=None):
    super().__init__(name=name)
    self._dropout = dropout
    self._attention_dropout = attention_dropout
    self.num_heads = num_heads
    self.head_dim = head_dim
    self.use_bias = use_bias

  def build(self, input_shape) -> None:
    width = input_shape[-1]
    heads = (self.num_heads, self.head_dim)
    # Glorot's limit for the kernels as matrices, [D, H * d] or the transpose.
    limit = np.sqrt(6 / (width + self.num_heads * self.head_dim))
    def glorot():
      return tf.keras.initializers.RandomUniform(-limit, limit)
    for name in ('query', 'key', 'value', 'relative'):
      setattr(self, f'{name}_kernel',
              self.add_weight(f'{name}_kernel', (width, *heads), initializer=glorot()))
    self.output_kernel = self.add_weight(
        'output_kernel', (*heads, width), initializer=glorot())
    self.content_bias_u = self.add_weight('content_bias_u', heads, initializer='zeros')
    self.position_bias_v = self.add_weight(
        'position_bias_v', heads, initializer='zeros')
    if self.use_bias:
      for name in ('query', 'key', 'value', 'relative'):
        setattr(self, f'{name}_bias',
                self.add_weight(f'{name}_bias', heads, initializer='zeros'))
      self.output_bias = self.add_weight('output_bias', (width,), initializer='zeros')
    super().build(input_shape)

  def _weight(self, name: str):
    """Returns a variable in the compute dtype; Keras does not cast it for `step`."""
    return tf.cast(getattr(self, name), self.compute_dtype)

  def _project(self, inputs, name: str, scale: float = 1.0):
    """Projects `[..., D]` to `[..., H, d]`, times `scale`."""
    # The gradient of an einsum with an ellipsis takes a hundred times as long.
    projected = tf.tensordot(
        inputs, self._scaled_weight(f'{name}_kernel', scale), axes=1)
    if self.use_bias:
      projected += self._scaled_weight(f'{name}_bias', scale)
    return projected

  def _scaled_weight(self, name: str, scale: float):
    weight = self._weight(name)
    return weight if scale == 1 else weight * scale

  def _heads_first(self, inputs, name: str, scale: float = 1.0):
    """Projects `[B, S, D]` to `[B, H, S, d]`, times `scale`."""
    return tf.transpose(self._project(inputs, name, scale), [0, 2, 1, 3])

  def cached_keys_and_values(self, inputs: tf.Tensor) -> core.KeysAndValues:
    """Computes the keys and values `[B, H, S, d]` of `inputs` `[B, S, D]`.

    Heads come before time; otherwise every product with keys or values would transpose
    them.
    """
    return self._heads_first(inputs, 'key'), self._heads_first(inputs, 'value')

  def _output(self, attended):
    outputs = tf.tensordot(attended, self._weight('output_kernel'), axes=2)
    return outputs + self._weight('output_bias') if self.use_bias else outputs

  def _weigh(self, inputs, keys, mask, lookahead, key=None):
    """Returns weights `[B, H, T, S]` of keys `[B, H, S, d]`; inputs have the last T."""
    width, num_keys = self.relative_kernel.shape[0], keys.shape[2]
    positions = tf.cast(relative_positions.sinusoids(
        num_keys, width, lookahead), self.compute_dtype)
    positions = dropout_lib.drop(positions, self._dropout, key, 0)
    relative_keys = tf.transpose(self._project(positions, 'relative'), [1, 2, 0])
    # Scaling kernels is less work than scaling queries or scores.
    scale = 1 / np.sqrt(self.head_dim)
    query = self._heads_first(inputs, 'query', scale)
    # Tiled, because the gradient's sum over batch and time at once is slow.
    content_query, position_query = (
        query + tf.tile(self._scaled_weight(name, scale)[:, tf.newaxis],
                        [1, query.shape[2], 1])
        for name in ('content_bias_u', 'position_bias_v'))
    content = tf.matmul(content_query, keys, transpose_b=True)
    position = _relative_scores(position_query, relative_keys)
    if lookahead:
      position = tf.slice(position, [0, 0, 0, 0], [-1, -1, -1, num_keys])
    scores = tf.cast(content + position, tf.float32)
    weights = tf.nn.softmax(scores + masks.bias(mask)[:, tf.newaxis])
    return tf.cast(weights, self.compute_dtype)

  def _attend(self, inputs, keys, values, mask, lookahead, key=None):
    weights = self._weigh(inputs, keys, mask, lookahead, key)
    weights = dropout_lib.drop(weights, self._attention_dropout, key, 1)
    return self._output(tf.transpose(tf.matmul(weights, values), [0, 2, 1, 3]))

  def _project_scaled(self, inputs, scale, offset, name: str):
    """Projects `inputs * scale + offset` `[B, S, D]` to `[B, H, S, d]`."""
    kernel = self._weight(f'{name}_kernel')
    projected = tf.tensordot(inputs, scale[:, tf.newaxis, tf.newaxis] * kernel, axes=1)
    bias = tf.tensordot(offset, kernel, axes=1)
    if self.use_bias:
      bias += self._weight(f'{name}_bias')
    return tf.transpose(projected + bias, [0, 2, 1, 3])

  def call(self, inputs: tf.Tensor, memory: tf.Tensor, mask: tf.Tensor,
           lookahead: int = 0, key: Optional[tf.Tensor] = None,
           scale_and_offset: Optional[Tuple[tf.Tensor, tf.Tensor]] = None
           ) -> tf.Tensor:
    """Attends from every input to memory and inputs.

    Args:
      inputs: `[B, T, D]`.
      memory: the steps before the inputs, `[B, M, D]`; M may be 0. Gradients flow into
        memory: the caller stops them where the paper does (equation 3).
      mask: bool `[B, T, M+T]`, true where a query may attend.
      lookahead: how many positions beyond its own a query may attend to.
      key: a dropout key; without one nothing is dropped.
      scale_and_offset: two vectors `[D]`; if given, attends to
        `memory * scale + offset` instead of memory. If no gradient flows into memory,
        this saves two products with all its rows: the gradients of scale and offset
        follow from those of the kernels.

    Returns:
      `[B, T, D]`.
    """
    unroll_length, num_keys = inputs.shape[1], memory.shape[1] + inputs.shape[1]
    if mask.shape[1:] != (unroll_length, num_keys):
      raise ValueError(
          f'mask has shape {mask.shape}: expected [B, {unroll_length}, {num_keys}] for '
          f'{unroll_length} inputs and a memory of {memory.shape[1]}')
    # Keras casts only the first argument.
    memory = tf.cast(memory, inputs.dtype)
    if scale_and_offset is None:
      project_memory = self._heads_first
    else:
      scale, offset = (tf.cast(x, inputs.dtype) for x in scale_and_offset)
      project_memory = functools.partial(
          self._project_scaled, scale=scale, offset=offset)
    keys, values = (
        tf.concat([project_memory(memory, name=name), self._heads_first(inputs, name)],
                  axis=2)
        for name in ('key', 'value'))
    return self._attend(inputs, keys, values, mask, lookahead, key)

  def attention_weights(self, inputs: tf.Tensor, memory: tf.Tensor, mask: tf.Tensor,
                        lookahead: int = 0) -> tf.Tensor:
    """Returns the attention weights `[B, H, T, M+T]` of `call`, for inspection."""
    keys = self._heads_first(tf.concat([memory, inputs], axis=1), 'key')
    return self._weigh(inputs, keys, mask, lookahead)

  def extend(self, inputs: tf.Tensor, keys: tf.Tensor, values: tf.Tensor,
             mask: tf.Tensor, lookahead: int = 0
             ) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Attends from several inputs at once to a cache and to each other.

    Args:
      inputs: `[B, T, D]`, which come after the cached steps.
      keys: `[B, H, C, d]` from `cached_keys_and_values`; C may be 0.
      values: `[B, H, C, d]`.
      mask: bool `[B, T, C+T]`, or `[1, T, C+T]`.
      lookahead: as for `call`.

    Returns:
      Outputs `[B, T, D]`, and the inputs' own keys and values `[B, H, T, d]`.
    """
    own_keys, own_values = self.cached_keys_and_values(inputs)
    outputs = self._attend(
        inputs, tf.concat([keys, own_keys], axis=2),
        tf.concat([values, own_values], axis=2), mask, lookahead)
    return outputs, own_keys, own_values

  def step(self, inputs: tf.Tensor, keys: tf.Tensor, values: tf.Tensor,
           positions: tf.Tensor, mask: tf.Tensor
           ) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Attends from one step to a cache and to the step itself.

    Args:
      inputs: `[B, D]`.
      keys: `[B, H, C, d]` from `cached_keys_and_values`.
      values: `[B, H, C, d]`.
      positions: sinusoids of the cached steps' distances and, last, of distance 0:
        `[C+1, D]`, or `[B, C+1, D]` if they differ by row.
      mask: bool `[B, C]`, true where the step may attend to a cached one.

    Returns:
      Outputs `[B, D]`, and the step's own key and value `[B, H, d]`.
    """
    query = self._project(inputs, 'query')
    key, value = self._project(inputs, 'key'), self._project(inputs, 'value')
    content_query = query + self._weight('content_bias_u')
    content = tf.concat([
        tf.einsum('bhd,bhcd->bhc', content_query, keys),
        tf.reduce_sum(content_query * key, axis=-1, keepdims=True)], axis=-1)
    # (q + v)'(W_R phi) is computed from the left: projecting one query to the space of
    # positions is much less work than projecting all positions to the space of keys. A
    # bias on W_R would add the same to every score, which the softmax cancels.
    position_query = tf.einsum(
        'bhd,ihd->bhi', query + self._weight('position_bias_v'),
        self._weight('relative_kernel'))
    position = tf.einsum(
        'bhi,ci->bhc' if positions.shape.rank == 2 else 'bhi,bci->bhc',
        position_query, tf.cast(positions, inputs.dtype))
    visible = tf.pad(mask, [[0, 0], [0, 1]], constant_values=True)
    scores = tf.cast(content + position, tf.float32) / np.sqrt(self.head_dim)
    weights = tf.cast(
        masks.masked_softmax(scores, visible[:, tf.newaxis]), self.compute_dtype)
    attended = tf.einsum('bhc,bhcd->bhd', weights[..., :-1], values)
    attended += weights[..., -1:] * value
    return self._output(attended), key, value

  def step_with_tail(self, inputs: tf.Tensor, window: core.KeysAndValues,
                     tail: core.KeysAndValues,
                     positions: relative_positions.Distances, bias: tf.Tensor
                     ) -> Tuple[tf.Tensor, core.KeysAndValues]:
    """Attends from one step to a window, a tail and the step itself.

    Args:
      inputs: `[B, D]`.
      window: keys and values `[B, H, M, d]` from `cached_keys_and_values`.
      tail: keys and values of the K steps before this one, `[B, H, K, d]`.
      positions: from `relative_positions.distances`.
      bias: added to the scores of the window and of the new tail, to hide keys,
        `[B, 1, M+K]`.

    Returns:
      Outputs `[B, D]`, and the new tail, which ends with the step itself.
    """
    query, key, value = (
        self._project(inputs, name) for name in ('query', 'key', 'value'))
    tail = push(tail[0], key), push(tail[1], value)
    scale = 1 / np.sqrt(self.head_dim)
    content_query = ((query + self._weight('content_bias_u')) * scale)[:, :, tf.newaxis]
    position_query = self._position_query(
        (query + self._weight('position_bias_v')) * scale)
    sines, cosines = tf.split(position_query, 2, axis=-1)
    rotated = (position_query * positions.cosine
               + tf.concat([cosines, sines], axis=-1) * positions.sine)
    scores = tf.concat([
        tf.matmul(content_query, window[0], transpose_b=True)[:, :, 0]
        + _product(rotated, positions.window),
        tf.matmul(content_query, tail[0], transpose_b=True)[:, :, 0]
        + _product(position_query, positions.tail)], axis=-1)
    weights = tf.cast(tf.nn.softmax(tf.cast(scores, tf.float32) + bias), inputs.dtype)
    memory_length = window[0].shape[2]
    weights = weights[:, :, tf.newaxis]
    attended = (tf.matmul(weights[..., :memory_length], window[1])
                + tf.matmul(weights[..., memory_length:], tail[1]))
    return self._output(attended[:, :, 0]), tail

  def _position_query(self, query: tf.Tensor) -> tf.Tensor:
    """Projects queries `[B, H, d]` to the encodings' space, `[B, H, W]`; W is even."""
    # One product for each head: XLA has only slow code for batches of matrices.
    projected = tf.stack([
        tf.matmul(x, kernel, transpose_b=True) for x, kernel in zip(
            tf.unstack(query, axis=1),
            tf.unstack(self._weight('relative_kernel'), axis=1))], axis=1)
    odd = projected.shape[-1] % 2
    return tf.pad(projected, [[0, 0], [0, 0], [0, odd]]) if odd else projected


def push(window: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
  """Drops the oldest row of `window` `[B, H, K, d]`, and appends `row` `[B, H, d]`."""
  return tf.concat([window[:, :, 1:], row[:, :, tf.newaxis]], axis=2)


def _product(query: tf.Tensor, encodings: tf.Tensor) -> tf.Tensor:
  """Multiplies `[B, H, W]` by `[W, K]`; returns `[B, H, K]`."""
  _, num_heads, width = query.shape
  product = tf.matmul(tf.reshape(query, [-1, width]), encodings)
  return tf.reshape(product, [-1, num_heads, encodings.shape[1]])


def _relative_scores(queries: tf.Tensor, relative_keys: tf.Tensor) -> tf.Tensor:
  """Computes the products of queries and keys of distances, ordered by key.

  The product of query t and column k of `relative_keys` is for the distance
  `S - 1 - k` from query t, whose own key is `S - T + t`: row t moves left by
  `T - 1 - t`. Entries that enter from the right are for keys in the future, for which
  there are no scores; they are meaningless.

  Args:
    queries: `[B, H, T, d]`.
    relative_keys: `[H, d, S]`.

  Returns:
    `[B, H, T, S]`.
  """
  unroll_length, num_distances = queries.shape[2], relative_keys.shape[2]
  # The move needs a column of zeros. Padding the scores would take longer.
  scores = tf.matmul(queries, tf.pad(relative_keys, [[0, 0], [0, 0], [1, 0]]))
  batch_and_heads = tf.shape(scores)[:2]
  # Sliced as one long row: the gradient of a slice of many short rows took a third of
  # the time of a small RATE's learner step.
  flat = tf.reshape(scores, tf.concat(
      [batch_and_heads, [unroll_length * (num_distances + 1)]], axis=0))
  moved = tf.slice(flat, [0, 0, unroll_length], [-1, -1, -1])
  return tf.reshape(moved, tf.concat(
      [batch_and_heads, [unroll_length, num_distances]], axis=0))
