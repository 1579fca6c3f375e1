"""Transformer-XL as a memory core: TrXL, TrXL-I and the gated GTrXL.

"Stabilizing Transformers for Reinforcement Learning", sections 2 and 3, appendix C.
"""

from typing import Literal, NamedTuple, Optional, Tuple

import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf.cores import core
from gtrxl_tf.cores import dropout as dropout_lib
from gtrxl_tf.cores import masks
from gtrxl_tf.cores import relative_attention
from gtrxl_tf.cores import xl_block


class XLState(NamedTuple):
  """What an unroll leaves to the next one."""
  memory: tf.Tensor  # [B, M, L, D], oldest first: every layer's inputs ("xl") or
                     # outputs ("same_layer") of the last M steps.
  valid: tf.Tensor   # [B, M], true where the step belongs to the present episode.


class XLCache(NamedTuple):
  """What a step leaves to the next one."""
  keys: Tuple[tf.Tensor, ...]    # Of each layer, [B, H, M, d].
  values: Tuple[tf.Tensor, ...]
  valid: tf.Tensor               # [B, M]
  record: tf.Tensor              # [B, L, D], the step's own row of memory.


class SegmentCache(NamedTuple):
  """What a step leaves to the next one where memory grows by whole segments of S."""
  keys: Tuple[tf.Tensor, ...]    # Of each layer, [B, H, M+S, d]: memory, then segment.
  values: Tuple[tf.Tensor, ...]
  valid: tf.Tensor               # [B, M+S]
  next_keys: Tuple[tf.Tensor, ...]  # [B, H, S, d]: of the segment's outputs, which
  next_values: Tuple[tf.Tensor, ...]  # enter memory when the segment is complete.
  phase: tf.Tensor               # [B], int32 in 0..S-1: steps taken in the segment.
  record: tf.Tensor              # [B, L, D]


@config.configurable
class TransformerXL(core.Core):
  """A stack of Transformer-XL blocks behind a linear embedding of the inputs.

  Args:
    num_layers: L.
    model_dim: D, the width of the stream.
    num_heads: H.
    head_dim: d; `H * d` need not be D (tables 10 and 11 have 512 against 256).
    mlp_dim: hidden units of the position-wise MLP; `model_dim` if None. The paper does
      not give it; 512 for a D of 512 reproduces Table 2.
    memory_length: M, how many past steps a step attends to.
    variant: `trxl` (canonical), `trxl_i` (identity map reordering) or `gtrxl` (gated).
    gate: the gating layer of `gtrxl`; the other variants have the plain residual.
    gate_bias: `b_g` at the start, see `gates`.
    use_bias: biases in the attention's projections.
    recurrence: what a layer's memory holds. `xl`: the layer's inputs at each of the M
      steps before a query (Dai et al., 2019). `same_layer`: the layer's outputs, from
      complete segments of `segment_length` steps (ERNIE-Doc, Ding et al., 2021), so
      that memory reaches back without bound; unrolls then start where a segment does.
    segment_length: S, for `same_layer` only.
    dropout: in training, as for `RATE`. The paper has none.
    attention_dropout: the same, of the attention's weights.

  The defaults are those of the paper's Numpad and Memory Maze (tables 10 and 11).
  """

  def __init__(
      self,
      num_layers: config.PositiveInt = 12,
      model_dim: config.PositiveInt = 256,
      num_heads: config.PositiveInt = 8,
      head_dim: config.PositiveInt = 64,
      mlp_dim: Optional[config.PositiveInt] = None,
      memory_length: config.PositiveInt = 512,
      variant: Literal['trxl', 'trxl_i', 'gtrxl'] = 'gtrxl',
      gate: Literal['input', 'output', 'highway', 'sigtanh', 'gru'] = 'gru',
      gate_bias: float = 2.0,
      use_bias: bool = False,
      recurrence: Literal['xl', 'same_layer'] = 'xl',
      segment_length: Optional[config.PositiveInt] = None,
      dropout: config.UnitInterval = 0.0,
      attention_dropout: config.UnitInterval = 0.0,
      name: Optional[str] = None):
    super().__init__(name=name)
    if (recurrence == 'same_layer') != (segment_length is not None):
      raise config.ConfigError(
          f'TransformerXL.segment_length = {segment_length}: expected an integer with '
          'recurrence = "same_layer" and None with "xl"')
    self._model_dim = model_dim
    self._memory_length = memory_length
    self._segment_length = segment_length
    self._dropout = dropout
    self._drops = bool(dropout or attention_dropout)
    self.embedding = tf.keras.layers.Dense(model_dim, name='embedding')
    self.blocks = xl_block.make_blocks(
        num_layers, num_heads, head_dim, mlp_dim or model_dim, variant, gate,
        gate_bias, use_bias, dropout, attention_dropout)

  def build(self, input_shape):
    core.build_layer(self.embedding, input_shape)
    for block in self.blocks:
      core.build_layer(block, tf.TensorShape([None, None, self._model_dim]))
    super().build(input_shape)

  @property
  def output_size(self):
    return self._model_dim

  @property
  def memory_length(self):
    return self._memory_length

  @property
  def segment_length(self):
    return self._segment_length or 1

  def initial_state(self, batch_size):
    shape = (batch_size, self._memory_length)
    return XLState(
        memory=tf.zeros((*shape, len(self.blocks), self._model_dim)),
        valid=tf.zeros(shape, tf.bool))

  def call(self, inputs, is_first, state, training=None):
    key = dropout_lib.make_key(inputs) if training and self._drops else None
    outputs = []
    for i, segment in enumerate(self._segments(inputs.shape[1])):
      segment_outputs, state, _ = self._unroll(
          inputs[:, segment], is_first[:, segment], state, dropout_lib.fold(key, i))
      outputs.append(segment_outputs)
    return tf.concat(outputs, axis=1), state

  def attention_weights(self, inputs, is_first, state) -> xl_block.AttentionWeights:
    """Whom the steps of an unroll attend to. With `xl` it is one segment."""
    weights = []
    for segment in self._segments(inputs.shape[1]):
      _, state, seen = self._unroll(
          tf.cast(inputs[:, segment], self.compute_dtype), is_first[:, segment], state)
      weights.append(xl_block.weigh(self.blocks, *seen))
    queries = ['step'] * weights[0].shape[-2]
    return xl_block.AttentionWeights(
        tf.stack(weights, axis=1), queries, ['cache'] * self._memory_length + queries)

  def _segments(self, unroll_length):
    """Where the unroll's segments lie."""
    if self._segment_length is None:
      return [slice(0, unroll_length)]
    if unroll_length % self._segment_length:
      raise ValueError(
          f'inputs have {unroll_length} steps: expected a multiple of '
          f'segment_length = {self._segment_length} with recurrence = "same_layer"')
    return [slice(start, start + self._segment_length)
            for start in range(0, unroll_length, self._segment_length)]

  def _unroll(self, inputs, is_first, state: XLState, key=None):
    same_layer = self._segment_length is not None
    mask = masks.attention_mask(is_first, state.valid, banded=not same_layer)
    num_layers = len(self.blocks)
    stream = dropout_lib.drop(self.embedding(inputs), self._dropout, key, num_layers)
    layer_inputs = []
    for i, block in enumerate(self.blocks):
      layer_inputs.append(stream)
      stream = block(
          stream, state.memory[:, :, i], mask, key=dropout_lib.fold(key, i))
    stream = dropout_lib.drop(stream, self._dropout, key, num_layers + 1)
    remembered = layer_inputs[1:] + [stream] if same_layer else layer_inputs
    rows = tf.cast(tf.stack(remembered, axis=2), state.memory.dtype)
    memory = tf.concat([state.memory, rows], axis=1)[:, -self._memory_length:]
    return stream, XLState(
        tf.stop_gradient(memory), masks.memory_validity(is_first, state.valid)
    ), (layer_inputs, state.memory, mask)

  def restore(self, records, is_first):
    return XLState(records, masks.restored_validity(is_first))

  def record(self, cache):
    return cache.record

  def cache(self, state):
    keys, values = zip(*(
        block.keys_and_values(state.memory[:, :, i])
        for i, block in enumerate(self.blocks)))
    record = tf.zeros_like(state.memory[:, 0])
    if self._segment_length is None:
      return XLCache(keys, values, state.valid, record)
    room = lambda x: tf.zeros_like(
        tf.repeat(x[..., :1, :], self._segment_length, axis=-2))
    extend = lambda x: tf.concat([x, room(x)], axis=-2)
    return SegmentCache(
        keys=tuple(map(extend, keys)), values=tuple(map(extend, values)),
        valid=extend(state.valid[..., tf.newaxis])[..., 0],
        next_keys=tuple(map(room, keys)), next_values=tuple(map(room, values)),
        phase=tf.zeros_like(state.valid[:, 0], tf.int32), record=record)

  def _step(self, inputs, is_first, cache):
    # What precedes an episode's first step is forgotten before that step is taken.
    cache = cache._replace(valid=cache.valid & ~is_first[:, tf.newaxis])
    stream = self.embedding(inputs)[:, tf.newaxis]
    step = self._xl_step if self._segment_length is None else self._segment_step
    stream, cache = step(stream, cache)
    return stream[:, 0], cache

  def _xl_step(self, stream, cache: XLCache):
    positions = relative_attention.sinusoids(self._memory_length + 1, self._model_dim)
    push = lambda window, row: tf.concat(
        [window[..., 1:, :], row[..., tf.newaxis, :]], axis=-2)
    keys, values, record = [], [], []
    for block, layer_keys, layer_values in zip(self.blocks, cache.keys, cache.values):
      record.append(stream)
      stream, key, value = block.step(
          stream, layer_keys, layer_values, tf.constant(positions), cache.valid)
      keys.append(push(layer_keys, key))
      values.append(push(layer_values, value))
    valid = tf.pad(cache.valid[:, 1:], [[0, 0], [0, 1]], constant_values=True)
    return stream, XLCache(
        tuple(keys), tuple(values), valid,
        tf.cast(tf.concat(record, axis=1), cache.record.dtype))

  def _segment_step(self, stream, cache: SegmentCache):
    memory_length, segment_length = self._memory_length, self._segment_length
    # The step's own slot. This and those behind it are never valid: not yet filled.
    slot = memory_length + cache.phase
    positions = relative_attention.slot_positions(
        slot, memory_length + segment_length, self._model_dim)

    keys, values, next_keys, next_values, record = [], [], [], [], []
    for i, block in enumerate(self.blocks):
      stream, key, value = block.step(
          stream, cache.keys[i], cache.values[i], positions, cache.valid)
      next_key, next_value = block.keys_and_values(stream)
      keys.append(xl_block.put(cache.keys[i], key, slot))
      values.append(xl_block.put(cache.values[i], value, slot))
      next_keys.append(xl_block.put(cache.next_keys[i], next_key[:, :, 0], cache.phase))
      next_values.append(
          xl_block.put(cache.next_values[i], next_value[:, :, 0], cache.phase))
      record.append(stream)
    valid = cache.valid[..., tf.newaxis]
    valid = xl_block.put(valid, tf.ones_like(valid[:, 0]), slot)

    complete = cache.phase == segment_length - 1

    def advance(window, segment):
      """Where the segment is complete, it enters memory and its slots are free."""
      memory = tf.concat([window[..., :memory_length, :], segment], axis=-2)
      advanced = tf.concat(
          [memory[..., -memory_length:, :], tf.zeros_like(segment)], axis=-2)
      where = tf.reshape(complete, [-1] + [1] * (window.shape.rank - 1))
      return tf.where(where, advanced, window)

    return stream, SegmentCache(
        keys=tuple(map(advance, keys, next_keys)),
        values=tuple(map(advance, values, next_values)),
        valid=advance(valid, valid[:, memory_length:])[..., 0],
        next_keys=tuple(next_keys), next_values=tuple(next_values),
        phase=tf.where(complete, 0, cache.phase + 1),
        record=tf.cast(tf.concat(record, axis=1), cache.record.dtype))
