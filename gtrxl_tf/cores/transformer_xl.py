"""Transformer-XL as a memory core: TrXL, TrXL-I and the gated GTrXL.

"Stabilizing Transformers for Reinforcement Learning", sections 2 and 3, appendix C.
"""

from typing import List, Literal, NamedTuple, Optional, Tuple

import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf.cores import core
from gtrxl_tf.cores import gates
from gtrxl_tf.cores import masks
from gtrxl_tf.cores import relative_attention


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
               gate: str, gate_bias: float, use_bias: bool, name=None):
    super().__init__(name=name)
    self._post_norm = post_norm
    self._mlp_dim = mlp_dim
    self.attention = relative_attention.RelativeMultiHeadAttention(
        num_heads, head_dim, use_bias, name='attention')
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

  def _join(self, inputs, attended):
    """Gates and MLP, from the attention's outputs on."""
    if self._post_norm:
      stream = self.attention_norm(self.attention_gate(inputs, attended))
      if self._mlp is None:
        return stream
      return self.mlp_norm(self.mlp_gate(stream, self._mlp(stream)))
    stream = self.attention_gate(inputs, tf.nn.relu(attended))
    if self._mlp is None:
      return stream
    return self.mlp_gate(stream, tf.nn.relu(self._mlp(self.mlp_norm(stream))))

  def call(self, inputs, memory, mask, lookahead=0):
    """`[B, T, D]`, `[B, M, D]`, `[B, T, M+T]` to `[B, T, D]`."""
    memory = tf.stop_gradient(tf.cast(memory, inputs.dtype))
    return self._join(inputs, self.attention(
        self._attention_inputs(inputs), self._attention_inputs(memory), mask,
        lookahead))

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
                use_bias: bool = False) -> List[XLBlock]:
  """The layers of a `variant`; see `TransformerXL`. No MLP if `mlp_dim` is 0."""
  return [
      XLBlock(num_heads, head_dim, mlp_dim, post_norm=variant == 'trxl',
              gate=gate if variant == 'gtrxl' else 'residual',
              gate_bias=gate_bias, use_bias=use_bias, name=f'block_{i}')
      for i in range(num_layers)]


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
      name: Optional[str] = None):
    super().__init__(name=name)
    if (recurrence == 'same_layer') != (segment_length is not None):
      raise config.ConfigError(
          f'TransformerXL.segment_length = {segment_length}: expected an integer with '
          'recurrence = "same_layer" and None with "xl"')
    self._model_dim = model_dim
    self._memory_length = memory_length
    self._segment_length = segment_length
    self.embedding = tf.keras.layers.Dense(model_dim, name='embedding')
    self.blocks = make_blocks(
        num_layers, num_heads, head_dim, mlp_dim or model_dim, variant, gate,
        gate_bias, use_bias)

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

  def call(self, inputs, is_first, state):
    if self._segment_length is None:
      return self._unroll(inputs, is_first, state)
    unroll_length = inputs.shape[1]
    if unroll_length % self._segment_length:
      raise ValueError(
          f'inputs have {unroll_length} steps: expected a multiple of '
          f'segment_length = {self._segment_length} with recurrence = "same_layer"')
    outputs = []
    for start in range(0, unroll_length, self._segment_length):
      segment = slice(start, start + self._segment_length)
      segment_outputs, state = self._unroll(
          inputs[:, segment], is_first[:, segment], state)
      outputs.append(segment_outputs)
    return tf.concat(outputs, axis=1), state

  def _unroll(self, inputs, is_first, state: XLState):
    same_layer = self._segment_length is not None
    mask = masks.attention_mask(is_first, state.valid, banded=not same_layer)
    stream = self.embedding(inputs)
    remembered = []
    for i, block in enumerate(self.blocks):
      layer_inputs = stream
      stream = block(layer_inputs, state.memory[:, :, i], mask)
      remembered.append(stream if same_layer else layer_inputs)
    rows = tf.cast(tf.stack(remembered, axis=2), state.memory.dtype)
    memory = tf.concat([state.memory, rows], axis=1)[:, -self._memory_length:]
    return stream, XLState(
        tf.stop_gradient(memory), masks.memory_validity(is_first, state.valid))

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
      keys.append(put(cache.keys[i], key, slot))
      values.append(put(cache.values[i], value, slot))
      next_keys.append(put(cache.next_keys[i], next_key[:, :, 0], cache.phase))
      next_values.append(put(cache.next_values[i], next_value[:, :, 0], cache.phase))
      record.append(stream)
    valid = cache.valid[..., tf.newaxis]
    valid = put(valid, tf.ones_like(valid[:, 0]), slot)

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
