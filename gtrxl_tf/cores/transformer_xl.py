"""Transformer-XL as a memory core: TrXL, TrXL-I and the gated GTrXL.

"Stabilizing Transformers for Reinforcement Learning", sections 2 and 3, appendix C.
"""

from typing import NamedTuple, Optional, Tuple

import tensorflow as tf

from gtrxl_tf import nests
from gtrxl_tf.cores import core
from gtrxl_tf.cores import dropout as dropout_lib
from gtrxl_tf.cores import gates
from gtrxl_tf.cores import masks
from gtrxl_tf.cores import relative_positions
from gtrxl_tf.cores import xl_block
from gtrxl_tf.settings import config


class XLState(NamedTuple):
  """State between unrolls."""
  memory: tf.Tensor  # [B, M, L, D], oldest first: every layer's inputs at the last M
                     # steps.
  valid: tf.Tensor   # [B, M], true where the step belongs to the current episode.


class XLCache(NamedTuple):
  """State between steps.

  New keys and values enter a tail of K rows, which moves by one row at every step. The
  window moves only when K steps are not in it yet, and then takes all of them: moving
  it at every step would take longer than the step itself. A step sees the last M steps,
  so it leaves out one row of the window for each tail row that it sees. Rows of the
  batch move their windows at different steps.
  """
  keys: Tuple[tf.Tensor, ...]         # The window: for each layer, [B, H, M, d].
  values: Tuple[tf.Tensor, ...]
  valid: tf.Tensor                    # [B, M]
  tail_keys: Tuple[tf.Tensor, ...]    # For each layer, [B, H, K, d], newest last.
  tail_values: Tuple[tf.Tensor, ...]
  tail_valid: tf.Tensor               # [B, K], false for rows that the window has.
  count: tf.Tensor                    # [B], int32 in 0..K: rows not in the window.
  record: tf.Tensor                   # [B, L, D], the step's own row of memory.


# The largest K. With longer tails, steps are slower and windows move less often.
TAIL_LENGTH = 32


@config.configurable
class TransformerXL(core.Core):
  """A linear embedding of the inputs and a stack of Transformer-XL blocks.

  Each step attends to itself and to the `memory_length` steps before it in its episode.
  A layer's memory of these steps holds the layer's inputs (Dai et al., 2019), through
  which no gradient flows.

    >>> gtrxl = TransformerXL(
    ...     num_layers=2, model_dim=8, num_heads=2, head_dim=4, memory_length=3)
    >>> inputs = tf.zeros([1, 5, 6])  # [B, T, width]
    >>> is_first = tf.constant([[True, False, False, False, False]])
    >>> outputs, state = gtrxl(inputs, is_first, gtrxl.initial_state(1))
    >>> outputs.shape
    TensorShape([1, 5, 8])
    >>> output, cache = gtrxl.step(inputs[:, 0], [False], gtrxl.cache(state))
    >>> output.shape
    TensorShape([1, 8])

  Args:
    num_layers: L.
    model_dim: D, the width of the residual stream.
    num_heads: H.
    head_dim: d; `H * d` need not be D (512 and 256 in tables 10 and 11).
    mlp_dim: hidden units of the position-wise MLP; `model_dim` if None. The paper does
      not give it; 512 for a D of 512 reproduces Table 2.
    memory_length: M, the number of past steps that a step attends to.
    variant: `trxl` (canonical), `trxl_i` (identity map reordering) or `gtrxl` (gated).
    gate: the gating layer of `gtrxl`; the other variants have a plain residual.
    gate_bias: initial value of `b_g`, see `gates`.
    use_bias: adds biases to the attention's projections.
    dropout: as for `RATE`; active in training, where equal inputs drop the same. The
      paper has none, and online experiments refuse it.
    attention_dropout: as for `RATE`.

  The defaults are those of the paper's Numpad and Memory Maze (tables 10 and 11).
  """

  def __init__(
      self,
      num_layers: config.NumLayers = 12,
      model_dim: config.PositiveInt = 256,
      num_heads: config.PositiveInt = 8,
      head_dim: config.PositiveInt = 64,
      mlp_dim: Optional[config.PositiveInt] = None,
      memory_length: config.NumSteps = 512,
      variant: xl_block.Variant = 'gtrxl',
      gate: gates.GateName = 'gru',
      gate_bias: float = 2.0,
      use_bias: bool = False,
      dropout: config.UnitInterval = 0.0,
      attention_dropout: config.UnitInterval = 0.0,
      name: Optional[str] = None):
    super().__init__(name=name)
    self._model_dim = model_dim
    self._memory_length = memory_length
    self._tail_length = min(TAIL_LENGTH, memory_length)
    self._dropout = dropout
    self._drops = bool(dropout or attention_dropout)
    self.embedding = tf.keras.layers.Dense(model_dim, name='embedding')
    self.blocks = xl_block.make_blocks(
        num_layers, num_heads, head_dim, mlp_dim or model_dim, variant, gate,
        gate_bias, use_bias, dropout, attention_dropout)

  def build(self, input_shape) -> None:
    core.build_layer(self.embedding, input_shape)
    for block in self.blocks:
      core.build_layer(block, tf.TensorShape([None, None, self._model_dim]))
    super().build(input_shape)

  @property
  def output_size(self) -> int:
    return self._model_dim

  @property
  def memory_length(self) -> int:
    return self._memory_length

  def initial_state(self, batch_size) -> XLState:
    shape = (batch_size, self._memory_length)
    return XLState(
        memory=tf.zeros((*shape, len(self.blocks), self._model_dim)),
        valid=tf.zeros(shape, tf.bool))

  def _unroll(self, inputs, is_first, state, training
              ) -> Tuple[tf.Tensor, XLState]:
    key = dropout_lib.make_key(inputs) if training and self._drops else None
    outputs, state, _ = self._run_layers(
        inputs, is_first, state, dropout_lib.fold(key, 0))
    return outputs, state

  def attention_weights(self, inputs: tf.Tensor, is_first: tf.Tensor, state: XLState
                        ) -> xl_block.AttentionWeights:
    """Returns the attention weights of an unroll, as one segment."""
    _, _, seen = self._run_layers(tf.cast(inputs, self.compute_dtype), is_first, state)
    weights = xl_block.weigh(self.blocks, *seen)
    queries = ['step'] * weights.shape[-2]
    return xl_block.AttentionWeights(
        weights[:, tf.newaxis], queries, ['cache'] * self._memory_length + queries)

  def _run_layers(self, inputs, is_first, state: XLState, key=None):
    """Returns outputs, the next state, and the arguments of `xl_block.weigh`."""
    mask = masks.attention_mask(is_first, state.valid)
    num_layers = len(self.blocks)
    stream = dropout_lib.drop(self.embedding(inputs), self._dropout, key, num_layers)
    layer_inputs = []
    for i, block in enumerate(self.blocks):
      layer_inputs.append(stream)
      stream = block(
          stream, state.memory[:, :, i], mask, key=dropout_lib.fold(key, i))
    stream = dropout_lib.drop(stream, self._dropout, key, num_layers + 1)
    rows = tf.cast(tf.stack(layer_inputs, axis=2), state.memory.dtype)
    memory = tf.concat([state.memory, rows], axis=1)[:, -self._memory_length:]
    next_state = XLState(
        tf.stop_gradient(memory), masks.memory_validity(is_first, state.valid))
    return stream, next_state, (layer_inputs, state.memory, mask)

  def restore(self, records, is_first) -> XLState:
    return XLState(records, masks.restored_validity(is_first))

  def _cache(self, state) -> XLCache:
    keys, values = zip(*(
        block.keys_and_values(state.memory[:, :, i])
        for i, block in enumerate(self.blocks)))
    tail = slice(self._memory_length - self._tail_length, None)
    tail_keys, tail_values = (
        tuple(tf.zeros_like(x[:, :, tail]) for x in rows) for rows in (keys, values))
    return XLCache(
        keys, values, state.valid, tail_keys, tail_values,
        tail_valid=tf.zeros_like(state.valid[:, tail]),
        count=tf.zeros_like(state.valid[:, 0], tf.int32),
        record=tf.zeros_like(state.memory[:, 0]))

  def _step(self, inputs, is_first, cache):
    # Steps of earlier episodes are masked before the first step of a new one.
    same_episode = ~is_first[:, tf.newaxis]
    valid, tail_valid = cache.valid & same_episode, cache.tail_valid & same_episode
    tail_valid = tf.pad(tail_valid[:, 1:], [[0, 0], [0, 1]], constant_values=True)
    within_reach = tf.range(self._memory_length) >= cache.count[:, tf.newaxis]
    bias = masks.bias(tf.concat([valid & within_reach, tail_valid], axis=1))
    positions = relative_positions.distances(
        self._memory_length, self._tail_length, self._model_dim, cache.count,
        self.compute_dtype)
    stream = self.embedding(inputs)
    tail_keys, tail_values, record = [], [], []
    for i, block in enumerate(self.blocks):
      record.append(stream)
      stream, (keys, values) = block.step_with_tail(
          stream, (cache.keys[i], cache.values[i]),
          (cache.tail_keys[i], cache.tail_values[i]), positions, bias[:, tf.newaxis])
      tail_keys.append(keys)
      tail_values.append(values)
    return stream, cache._replace(
        valid=valid, tail_keys=tuple(tail_keys), tail_values=tuple(tail_values),
        tail_valid=tail_valid, count=cache.count + 1,
        record=tf.cast(tf.stack(record, axis=1), cache.record.dtype))

  def move(self, cache) -> XLCache:
    return tf.cond(
        self.must_move(cache), lambda: self._move_windows(cache), lambda: cache)

  def must_move(self, cache) -> tf.Tensor:
    return tf.reduce_any(self._has_full_tail(cache))

  def _has_full_tail(self, cache: XLCache) -> tf.Tensor:
    return tf.equal(cache.count, self._tail_length)

  def _move_windows(self, cache: XLCache) -> XLCache:
    """Moves tails into windows in the rows whose tails are full."""
    full = self._has_full_tail(cache)
    all_full = tf.reduce_all(full)

    def move(window, tail, axis):
      kept = tf.split(
          window, [self._tail_length, window.shape[axis] - self._tail_length], axis)[1]
      moved = tf.concat([kept, tail], axis)
      # Usually all rows move together, and this saves a pass.
      return tf.cond(all_full, lambda: moved, lambda: nests.where(full, moved, window))

    def move_layers(windows, tails):
      return tuple(move(*x, axis=2) for x in zip(windows, tails))

    return cache._replace(
        keys=move_layers(cache.keys, cache.tail_keys),
        values=move_layers(cache.values, cache.tail_values),
        valid=move(cache.valid, cache.tail_valid, axis=1),
        tail_valid=cache.tail_valid & ~full[:, tf.newaxis],
        count=tf.where(full, 0, cache.count))

  def record(self, cache) -> tf.Tensor:
    return cache.record
