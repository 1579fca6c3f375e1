"""A standard transformer over segments, with optional memory of earlier segments.

"Memory-Efficient Algorithm Distillation for In-Context Reinforcement Learning",
sections 3.1 and 4. The paper calls a segment a chunk, or a context.
"""

from typing import Literal, NamedTuple, Optional, Tuple

import tensorflow as tf

from gtrxl_tf import nests
from gtrxl_tf.cores import core
from gtrxl_tf.cores import dropout as dropout_lib
from gtrxl_tf.cores import masks
from gtrxl_tf.cores import segment_block
from gtrxl_tf.cores import slots as slots_lib
from gtrxl_tf.cores import xl_block
from gtrxl_tf.settings import config


class SegmentState(NamedTuple):
  """State between segments."""
  memory: tf.Tensor  # [B, M, L, D], oldest first: every layer's inputs ('xl') or
                     # outputs ('same_layer') at the last M steps.
  valid: tf.Tensor   # [B, M], true where the step belongs to the current episode.


class SegmentCache(NamedTuple):
  """State between steps.

  The K = P + M + S slots belong to the prefix, memory and the segment's steps.
  """
  keys: Tuple[tf.Tensor, ...]         # For each layer, [B, H, K, d].
  values: Tuple[tf.Tensor, ...]
  next_keys: Tuple[tf.Tensor, ...]    # Only with 'same_layer', [B, H, S, d]: what
  next_values: Tuple[tf.Tensor, ...]  # enters memory when the segment is complete.
  valid: tf.Tensor                    # [B, K]
  phase: tf.Tensor                    # [B], int32 in 0..S-1: steps taken.
  record: tf.Tensor                   # [B, L, D], the step's own row of memory.


@config.configurable
class SegmentTransformer(core.Core):
  """A stack of standard transformer layers, causal within segments of S steps.

  By default the attention does not see positions: the inputs carry them, and memory
  keeps them. The models of the paper are settings of this core:

    ADF, ADR  recurrence = 'none': a transformer that sees S steps
    MEM       recurrence = 'none', num_prefix > 0
    XL        recurrence = 'xl'
    ED        recurrence = 'same_layer'

  Every step of a segment sees all of memory (equations 3 and 4), whereas each step of
  `TransformerXL` sees the same number of steps back. Unrolls start where a segment
  does, and so should episodes: one that begins within a segment sees nothing earlier,
  but the segment ends where it would have ended anyway. Where episodes have other
  lengths, pass `step` an initial cache when one begins. Without recurrence, nothing is
  kept when a segment ends; a policy may instead act on a sliding window of the last
  steps.

    >>> ed = SegmentTransformer(
    ...     num_layers=1, model_dim=8, num_heads=2, head_dim=4, mlp_dim=8,
    ...     segment_length=3, recurrence='same_layer', memory_length=4)
    >>> inputs, is_first = tf.zeros([1, 6, 8]), tf.zeros([1, 6], tf.bool)
    >>> outputs, state = ed(inputs, is_first, ed.initial_state(1))
    >>> outputs.shape
    TensorShape([1, 6, 8])
    >>> output, cache = ed.step(inputs[:, 0], is_first[:, 0], ed.cache(state))
    >>> output.shape
    TensorShape([1, 8])

  Args:
    num_layers: L.
    model_dim: D. A linear embedding first maps inputs of another width.
    num_heads: H.
    head_dim: d.
    mlp_dim: hidden units of the position-wise MLP.
    norm: LayerNorms follow the residuals (`post`, Table S3), or precede the sublayers
      and follow the last layer (`pre`).
    segment_length: S, in units of `tokens_per_step` inputs.
    recurrence: what a layer's memory of the M steps before a segment holds: nothing
      (`none`), the layer's inputs (`xl`, Dai et al., 2019, equation 3), or its outputs
      (`same_layer`, ERNIE-Doc, Ding et al., 2021, equation 4). With its outputs, memory
      reaches back without bound.
    memory_length: M, in the unit of `segment_length`; 0 without recurrence.
    num_prefix: P, the number of learned vectors that all steps see (MemCtrl of Burtsev
      et al., 2021); 0 with recurrence. They have layers of their own, in which they see
      only each other: if they saw steps, earlier steps would see later ones through
      them.
    tokens_per_step: inputs per step, for models that turn a step into several tokens.
    positions: how the attention sees distances, see `segment_block.Attention`.
    memory_gradient: whether gradients pass from a segment to earlier ones of the same
      unroll (`through_segments`) or are `stopped`, as in the paper.
    dropout: share of hidden units dropped in training: in the first layer's inputs, in
      the outputs of attention and MLP, and within the MLP. Equal batches drop the same.
    attention_dropout: share of the attention weights dropped in training.

  The defaults are the paper's (Table S3), with the context of its setting dr (Table 1).
  Where the paper is silent they follow PyTorch's encoder layer, whose default sizes the
  paper uses.
  """

  def __init__(
      self,
      num_layers: config.NumLayers = 4,
      model_dim: config.PositiveInt = 512,
      num_heads: config.PositiveInt = 64,
      head_dim: config.PositiveInt = 8,
      mlp_dim: config.PositiveInt = 2048,
      norm: Literal['post', 'pre'] = 'post',
      segment_length: config.PositiveInt = 50,
      recurrence: Literal['none', 'xl', 'same_layer'] = 'none',
      memory_length: config.NonNegativeInt = 0,
      num_prefix: config.NonNegativeInt = 0,
      tokens_per_step: config.PositiveInt = 1,
      positions: segment_block.Positions = 'none',
      memory_gradient: Literal['stopped', 'through_segments'] = 'stopped',
      dropout: config.UnitInterval = 0.1,
      attention_dropout: config.UnitInterval = 0.1,
      name: Optional[str] = None):
    super().__init__(name=name)
    if (recurrence == 'none') != (memory_length == 0):
      raise config.ConfigError(
          f'SegmentTransformer.memory_length = {memory_length}: expected '
          + ('0' if recurrence == 'none' else 'an integer >= 1')
          + f' with recurrence = {recurrence!r}')
    if num_prefix and memory_length:
      raise config.ConfigError(
          f'SegmentTransformer.num_prefix = {num_prefix}: expected 0 with recurrence = '
          f'{recurrence!r}')
    self._model_dim = model_dim
    self._segment_length = segment_length * tokens_per_step
    self._memory_length = memory_length * tokens_per_step
    self._num_prefix = num_prefix
    self._same_layer = recurrence == 'same_layer'
    self._stop_memory = memory_gradient == 'stopped'
    self._dropout = dropout
    self._drops = bool(dropout or attention_dropout)
    self._norm_comes_first = norm == 'pre'
    settings = dict(
        num_heads=num_heads, head_dim=head_dim, mlp_dim=mlp_dim,
        post_norm=norm == 'post', positions=positions,
        num_slots=num_prefix + self._memory_length + self._segment_length,
        dropout=dropout, attention_dropout=attention_dropout)
    self.blocks = segment_block.make_blocks(num_layers, 'block', **settings)
    self.prefix_blocks = segment_block.make_blocks(
        num_layers if num_prefix else 0, 'prefix_block', **settings)

  def build(self, input_shape) -> None:
    self.embedding = core.make_embedding(input_shape, self._model_dim)
    stream_shape = tf.TensorShape([None, None, self._model_dim])
    for block in (*self.blocks, *self.prefix_blocks):
      core.build_layer(block, stream_shape)
    self.output_norm = None
    if self._norm_comes_first:
      self.output_norm = core.layer_norm('output_norm')
      core.build_layer(self.output_norm, stream_shape)
    if self._num_prefix:
      self.prefix = self.add_weight(
          'prefix', (self._num_prefix, self._model_dim),
          initializer=tf.keras.initializers.RandomNormal(stddev=1.0))
    super().build(input_shape)

  @property
  def output_size(self) -> int:
    return self._model_dim

  @property
  def memory_length(self) -> int:
    return self._memory_length

  @property
  def segment_length(self) -> int:
    return self._segment_length

  def initial_state(self, batch_size) -> SegmentState:
    return self._empty_state(batch_size, self._memory_length)

  def empty_state(self, batch_size) -> SegmentState:
    """Returns the initial state with a memory of length 0, for a cheaper unroll.

    The memory of the state after an unroll then has one row per step, up to M.
    """
    return self._empty_state(batch_size, 0)

  def _empty_state(self, batch_size, memory_length):
    shape = (batch_size, memory_length)
    return SegmentState(
        memory=tf.zeros((*shape, len(self.blocks), self._model_dim)),
        valid=tf.zeros(shape, tf.bool))

  def _unroll(self, inputs, is_first, state, training
              ) -> Tuple[tf.Tensor, SegmentState]:
    key = dropout_lib.make_key(inputs) if training and self._drops else None
    stream = self.embedding(inputs)
    prefix = self._run_prefix(dropout_lib.fold(key, 0))
    outputs = []
    slices = core.segment_slices(inputs.shape[1], self._segment_length)
    steps = tf.split(stream, [s.stop - s.start for s in slices], axis=1)
    for n, segment in enumerate(slices):
      segment_outputs, state, _ = self._segment(
          steps[n], is_first[:, segment], state, prefix, dropout_lib.fold(key, n + 1))
      outputs.append(segment_outputs)
    return tf.concat(outputs, axis=1), state

  def attention_weights(self, inputs: tf.Tensor, is_first: tf.Tensor,
                        state: SegmentState) -> xl_block.AttentionWeights:
    """Returns the attention weights of an unroll. The prefix has the kind `read`."""
    stream = self.embedding(tf.cast(inputs, self.compute_dtype))
    prefix = self._run_prefix()
    # All segments get equally many keys, even if the state is empty.
    state = tf.nest.map_structure(
        lambda full, x: tf.concat([full[:, x.shape[1]:], x], axis=1),
        self.initial_state(inputs.shape[0]), state)
    weights = []
    for segment in core.segment_slices(inputs.shape[1], self._segment_length):
      _, state, (layer_inputs, *seen) = self._segment(
          stream[:, segment], is_first[:, segment], state, prefix)
      memory, prefix_keys, mask, slots = seen
      weights.append(tf.stack([
          block.attention_weights(x, memory[:, :, i], prefix_keys[i], mask, slots)
          for i, (block, x) in enumerate(zip(self.blocks, layer_inputs))], axis=1))
    queries = ['step'] * self._segment_length
    return xl_block.AttentionWeights(
        tf.stack(weights, axis=1), queries,
        ['read'] * self._num_prefix + ['cache'] * self._memory_length + queries)

  def _finish(self, stream):
    return stream if self.output_norm is None else self.output_norm(stream)

  def _run_prefix(self, key=None):
    """Returns each layer's keys and values `[1, H, P, d]` of the prefix, or None."""
    if not self._num_prefix:
      return [None] * len(self.blocks)
    stream = tf.cast(self.prefix, self.compute_dtype)[tf.newaxis]
    mask = tf.ones([1, self._num_prefix, self._num_prefix], tf.bool)
    slots = tf.range(self._num_prefix)[tf.newaxis]
    found = []
    for i, (block, own) in enumerate(zip(self.blocks, self.prefix_blocks)):
      stream = own(stream, stream[:, :0], None, mask, slots, dropout_lib.fold(key, i))
      found.append(block.keys_and_values(stream))
    return found

  def _segment(self, stream, is_first, state: SegmentState, prefix, key=None):
    """Returns outputs, the next state, and what determines the attention weights."""
    memory = tf.stop_gradient(state.memory) if self._stop_memory else state.memory
    mask = masks.attention_mask(is_first, state.valid, banded=False)
    mask = tf.pad(mask, [[0, 0], [0, 0], [self._num_prefix, 0]], constant_values=True)
    num_steps, num_layers = stream.shape[1], len(self.blocks)
    slots = tf.range(mask.shape[2] - num_steps, mask.shape[2])[tf.newaxis]
    stream = dropout_lib.drop(stream, self._dropout, key, num_layers)
    layer_inputs = []
    for i, block in enumerate(self.blocks):
      layer_inputs.append(stream)
      stream = block(stream, memory[:, :, i], prefix[i], mask, slots,
                     dropout_lib.fold(key, i))
    remembered = layer_inputs[1:] + [stream] if self._same_layer else layer_inputs
    rows = tf.cast(tf.stack(remembered, axis=2), memory.dtype)
    episode, key_episode = masks.keys_of_episode(is_first, state.valid)
    return self._finish(stream), SegmentState(
        self._last(tf.concat([memory, rows], axis=1)),
        self._last(key_episode == episode[:, -1:])
    ), (layer_inputs, memory, prefix, mask, slots)

  def _last(self, x):
    """Returns the last M rows of `x` `[B, S, ...]`, or all if there are fewer."""
    return x[:, max(x.shape[1] - self._memory_length, 0):]

  def _cache(self, state) -> SegmentCache:
    prefix = self._run_prefix()
    batch_size, num_rows = tf.shape(state.memory)[0], state.memory.shape[1]
    missing = self._memory_length - num_rows

    def extend(cached, before):
      room = [[0, 0], [0, 0], [missing, self._segment_length], [0, 0]]
      cached = tf.pad(cached, room)
      if before is None:
        return cached
      return tf.concat([tf.repeat(before, batch_size, axis=0), cached], axis=2)

    keys, values = zip(*(
        map(extend, block.keys_and_values(state.memory[:, :, i]),
            prefix[i] or (None, None))
        for i, block in enumerate(self.blocks)))
    room = tuple(tf.zeros_like(x[:, :, -self._segment_length:])
                 for x in keys if self._same_layer)
    valid = tf.pad(state.valid, [[0, 0], [missing, self._segment_length]])
    return SegmentCache(
        keys=keys, values=values, next_keys=room, next_values=room,
        valid=tf.pad(valid, [[0, 0], [self._num_prefix, 0]], constant_values=True),
        phase=tf.zeros([batch_size], tf.int32),
        record=tf.zeros([batch_size, len(self.blocks), self._model_dim]))

  def _step(self, inputs, is_first, cache):
    num_slots = cache.valid.shape[1]
    slot = self._num_prefix + self._memory_length + cache.phase
    # Steps of earlier episodes are masked before the first step of a new one.
    is_prefix = tf.range(num_slots) < self._num_prefix
    valid = cache.valid & (~is_first[:, tf.newaxis] | is_prefix)
    valid |= slots_lib.at(slot, num_slots)
    stream = self.embedding(inputs)[:, tf.newaxis]
    rows, keys, values, next_keys, next_values = [], [], [], [], []
    for i, block in enumerate(self.blocks):
      rows.append(stream)
      stream, layer_keys, layer_values = block.step(
          stream, cache.keys[i], cache.values[i], valid, slot)
      keys.append(layer_keys)
      values.append(layer_values)
      if self._same_layer:
        key, value = block.keys_and_values(stream)
        next_keys.append(
            slots_lib.put(cache.next_keys[i], key[:, :, 0], cache.phase))
        next_values.append(
            slots_lib.put(cache.next_values[i], value[:, :, 0], cache.phase))
    rows = rows[1:] + [stream] if self._same_layer else rows
    cache = SegmentCache(
        tuple(keys), tuple(values), tuple(next_keys), tuple(next_values), valid,
        cache.phase + 1, tf.cast(tf.concat(rows, axis=1), cache.record.dtype))
    complete = tf.equal(cache.phase, self._segment_length)
    cache = tf.cond(tf.reduce_any(complete),
                    lambda: self._end_segments(complete, cache), lambda: cache)
    return self._finish(stream)[:, 0], cache

  def _end_segments(self, complete, cache: SegmentCache) -> SegmentCache:
    """Moves the segment's steps into memory, in rows where it is `complete` `[B]`."""
    def advance(window, segment, axis):
      prefix, memory, steps = tf.split(
          window, [self._num_prefix, self._memory_length, self._segment_length], axis)
      seen = tf.concat([memory, steps if segment is None else segment], axis)
      sizes = [self._segment_length, self._memory_length]
      advanced = tf.concat(
          [prefix, tf.split(seen, sizes, axis)[1], tf.zeros_like(steps)], axis)
      return nests.where(complete, advanced, window)

    def advance_layers(windows, segments):
      segments = segments or [None] * len(windows)
      return tuple(advance(x, y, 2) for x, y in zip(windows, segments))

    return cache._replace(
        keys=advance_layers(cache.keys, cache.next_keys),
        values=advance_layers(cache.values, cache.next_values),
        valid=advance(cache.valid, None, 1),
        phase=tf.where(complete, 0, cache.phase))

  def record(self, cache) -> tf.Tensor:
    return cache.record

  def restore(self, records, is_first) -> SegmentState:
    if not self._memory_length:
      return self.initial_state(tf.shape(is_first)[0])
    return SegmentState(records, masks.restored_validity(is_first))
