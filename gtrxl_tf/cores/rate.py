"""RATE, a transformer on segments with memory tokens; also RMT, Transformer-XL and DT.

"Recurrent Action Transformer with Memory", section 3. The paper omits most details of
the model; unless stated otherwise, this core follows its code.
"""

from typing import Any, List, Literal, NamedTuple, Optional, Tuple

import tensorflow as tf

from gtrxl_tf import nests
from gtrxl_tf.cores import core
from gtrxl_tf.cores import dropout as dropout_lib
from gtrxl_tf.cores import masks
from gtrxl_tf.cores import noise as noise_lib
from gtrxl_tf.cores import relative_positions
from gtrxl_tf.cores import retention as retention_valves
from gtrxl_tf.cores import slots
from gtrxl_tf.cores import xl_block
from gtrxl_tf.settings import config


class RATEState(NamedTuple):
  """State between segments."""
  memory: tf.Tensor  # [B, m, D], the memory tokens M_n of the next segment.
  carry: Any         # The valve's recurrent state, see `retention`.
  begun: tf.Tensor   # [B], false where M_n is the learned M_0, whatever `memory` holds.
  hidden: tf.Tensor  # [B, C, L, D], every layer's inputs at the last C positions.
  valid: tf.Tensor   # [B, C], true where the position belongs to the current episode.
  noise: Any = ()    # The numbers of the next segment's noise, see `noise`.


class RATECache(NamedTuple):
  """State between steps."""
  memory: tf.Tensor              # [B, m, D], the memory tokens of this segment.
  carry: Any
  keys: Tuple[tf.Tensor, ...]    # For each layer, [B, H, C+m+S, d], from `hidden`,
  values: Tuple[tf.Tensor, ...]  # the tokens read, and the segment's steps.
  valid: tf.Tensor               # [B, C+m+S]
  phase: tf.Tensor               # [B], int32 in 0..S: steps taken in the segment.
  noise: Any = ()


@config.configurable
class RATE(core.Core):
  """A Transformer-XL stack over segments, each enclosed by its memory tokens.

  The layers see segment n of S steps as [M_n, steps, M_n]. A step sees the cache of
  earlier segments, the M_n before the steps, and the steps up to itself;
  `masks.segment_mask` has the complete table. The last layer's outputs at the M_n after
  the steps are the candidate that a retention valve combines with M_n into M_{n+1}.
  Positions are relative and signed, so that memory tokens see each other in both
  directions; the shift in RATE's code gives later tokens no meaningful position.

  Episodes start where segments do. In an unroll, `is_first` may be true only on the
  first step of a segment. In acting, each row counts its own segments, and the first
  step of an episode starts a segment at once.

    >>> rate = RATE(num_layers=1, model_dim=8, num_heads=2, head_dim=4,
    ...             num_memory_tokens=2, segment_length=3)
    >>> inputs, is_first = tf.zeros([1, 6, 8]), tf.zeros([1, 6], tf.bool)
    >>> outputs, state = rate(inputs, is_first, rate.initial_state(1))
    >>> outputs.shape, state.memory.shape
    (TensorShape([1, 6, 8]), TensorShape([1, 2, 8]))
    >>> output, cache = rate.step(inputs[:, 0], is_first[:, 0], rate.cache(state))
    >>> output.shape
    TensorShape([1, 8])

  Several models are settings of this core:

    RATE            the defaults, for T-Maze; with a cache for most other tasks
    RMT             retention = 'none', mlp_dim > 0
    Transformer-XL  num_memory_tokens = 0, cache_length > 0, mlp_dim > 0
    DT              num_memory_tokens = 0, mlp_dim > 0, the context is one segment

  A trainer may start a row from any memory: `_replace` `memory` in `initial_state`, set
  `begun` to true, and pass a false `is_first` for the row. Records of single steps, as
  replay keeps them, cannot restore a state: memory depends on complete segments.

  Args:
    num_layers: L.
    model_dim: D. A linear embedding first maps inputs of another width; RATE's encoders
      are D wide.
    num_heads: H.
    head_dim: d; in RATE as wide as the model.
    mlp_dim: hidden units of the position-wise MLP; 0 for none, as in RATE.
    variant: `trxl` (post-norm, RATE's), `trxl_i` or `gtrxl`, see `TransformerXL`. The
      attention has no biases. RATE's code adds the inputs twice before the norm,
      apparently by accident; this core adds them once. With norms before the sublayers,
      one more norm follows the last layer, as in other pre-norm stacks: without it
      memory grows from segment to segment without bound.
    num_memory_tokens: m. With 0 there is no retention valve either.
    cache_length: C, the number of positions of earlier segments that a step sees,
      including memory tokens. RATE (appendix F) recommends (S + 2m) times the number of
      segments of a trajectory, and 0 for tasks with sparse events. No gradient flows
      through the cache.
    segment_length: S, in steps of the core. RATE has three tokens per environment step.
    retention: the valve, see `retention`.
    retention_heads: heads of `ca1` and `ca2`; divides `model_dim`.
    retention_activation: what `ca1` and `ca2` apply to the candidate.
    memory_init: M_0 is drawn from N(0, 1), either for each token (`independent`,
      Algorithm 1) or once for all (`shared`, as in RATE's code).
    memory_gradient: whether the loss of a segment trains what earlier segments of the
      unroll wrote (`through_segments`), or gradients are `stopped` between segments.
      RATE's code stops them, and so never trains its valve.
    dropout: share of hidden units dropped in training, that is, where Keras' `training`
      is true: in the first layer's inputs and the last layer's outputs, in position
      encodings, in the outputs of attention and MLP, and within the MLP. The paper has
      0.05 for T-Maze; the default is 0, as for the cores that RATE is compared with.
    attention_dropout: share of the attention weights dropped in training, except the
      valve's. As with `dropout`, the inputs decide which: equal batches drop the same.
    memory_noise: tests what a trained model stores in its memory tokens (Figures 6, 7,
      10 and 13). At the start of each segment, including the first, `M_n` becomes
      `(1 - memory_noise) * M_n + memory_noise * noise`, as in RATE's code, before and
      after the steps and for the valve. The noise is N(0, 1), drawn per row and
      segment, where RATE's code draws per step. A row that begins with a new state
      always gets the same noise.
    cache_noise: the same for the cache of hidden states (Figure 6: 1), with new noise
      for all of it at the start of each segment. Variants other than `trxl` allow only
      0 and 1.

  The defaults are the paper's for T-Maze (Table 8), where S is 30 steps of 3 tokens.
  """

  def __init__(
      self,
      num_layers: config.NumLayers = 8,
      model_dim: config.PositiveInt = 64,
      num_heads: config.PositiveInt = 10,
      head_dim: config.PositiveInt = 64,
      mlp_dim: config.NonNegativeInt = 0,
      variant: xl_block.Variant = 'trxl',
      num_memory_tokens: config.NonNegativeInt = 5,
      cache_length: config.NonNegativeInt = 0,
      segment_length: config.PositiveInt = 90,
      retention: retention_valves.ValveName = 'ca2',
      retention_heads: config.PositiveInt = 4,
      retention_activation: retention_valves.ActivationName = 'relu',
      memory_init: Literal['independent', 'shared'] = 'independent',
      memory_gradient: Literal['through_segments', 'stopped'] = 'through_segments',
      dropout: config.UnitInterval = 0.0,
      attention_dropout: config.UnitInterval = 0.0,
      memory_noise: config.UnitInterval = 0.0,
      cache_noise: config.UnitInterval = 0.0,
      name: Optional[str] = None):
    super().__init__(name=name)
    if num_memory_tokens == 0:
      retention = 'none'
    if retention in ('ca1', 'ca2') and model_dim % retention_heads:
      raise config.ConfigError(
          f'RATE.retention_heads = {retention_heads}: expected a divisor of '
          f'model_dim = {model_dim}')
    if 0 < cache_noise < 1 and variant != 'trxl':
      # A step caches keys and values only, and a norm before them cannot be undone.
      raise config.ConfigError(
          f'RATE.cache_noise = {cache_noise}: expected 0 or 1 with variant = '
          f'{variant!r}, which normalizes before it attends')
    self._model_dim = model_dim
    self._norm_comes_first = variant != 'trxl'
    self._num_memory_tokens = num_memory_tokens
    self._cache_length = cache_length
    self._segment_length = segment_length
    self._memory_init = memory_init
    self._stop_memory = memory_gradient == 'stopped'
    self._dropout = dropout
    self._drops = bool(dropout or attention_dropout)
    self._noise = noise_lib.Noise(
        memory_noise, cache_noise, (cache_length, num_layers, model_dim))
    self._lookahead = max(num_memory_tokens - 1, 0)  # Between memory tokens.
    self.blocks = xl_block.make_blocks(
        num_layers, num_heads, head_dim, mlp_dim, variant, dropout=dropout,
        attention_dropout=attention_dropout)
    self.retention = retention_valves.RETENTION[retention](
        retention_heads, retention_activation, name='retention')

  def build(self, input_shape) -> None:
    self.embedding = core.make_embedding(input_shape, self._model_dim)
    stream_shape = tf.TensorShape([None, None, self._model_dim])
    self.output_norm = (core.layer_norm('output_norm') if self._norm_comes_first
                        else tf.keras.layers.Activation('linear'))
    for layer in (*self.blocks, self.retention, self.output_norm):
      core.build_layer(layer, stream_shape)
    if self._num_memory_tokens:
      def normal(shape, dtype=None, **kwargs):
        rows = 1 if self._memory_init == 'shared' else shape[0]
        drawn = tf.keras.initializers.RandomNormal(stddev=1.0)(
            (rows, shape[1]), dtype, **kwargs)
        return tf.broadcast_to(drawn, shape)

      self.initial_memory = self.add_weight(
          'initial_memory', (self._num_memory_tokens, self._model_dim),
          initializer=normal)
    super().build(input_shape)

  @property
  def output_size(self) -> int:
    return self._model_dim

  @property
  def memory_length(self) -> int:
    """0, because there are no records; see `restore`."""
    return 0

  @property
  def segment_length(self) -> int:
    return self._segment_length

  def initial_state(self, batch_size) -> RATEState:
    memory = tf.zeros((batch_size, self._num_memory_tokens, self._model_dim))
    shape = (batch_size, self._cache_length)
    return RATEState(
        memory=memory, carry=self.retention.initial_carry(memory),
        begun=tf.zeros((batch_size,), tf.bool),
        hidden=tf.zeros((*shape, len(self.blocks), self._model_dim)),
        valid=tf.zeros(shape, tf.bool), noise=self._noise.first_numbers(batch_size))

  def _unroll(self, inputs, is_first, state, training
              ) -> Tuple[tf.Tensor, RATEState]:
    key = dropout_lib.make_key(inputs) if training and self._drops else None
    outputs = []
    for n, (steps, begins) in enumerate(self._segments(inputs, is_first)):
      segment_outputs, state, _ = self._segment(
          steps, begins, state, dropout_lib.fold(key, n))
      outputs.append(segment_outputs)
    return tf.concat(outputs, axis=1), state

  def attention_weights(self, inputs: tf.Tensor, is_first: tf.Tensor, state: RATEState
                        ) -> xl_block.AttentionWeights:
    """Returns the attention weights of an unroll's steps and memory tokens."""
    weights = []
    inputs = tf.cast(inputs, self.compute_dtype)
    for steps, begins in self._segments(inputs, is_first):
      _, state, seen = self._segment(steps, begins, state)
      weights.append(xl_block.weigh(self.blocks, *seen, self._lookahead))
    tokens = self._num_memory_tokens
    queries = ['read'] * tokens + ['step'] * self._segment_length + ['write'] * tokens
    return xl_block.AttentionWeights(
        tf.stack(weights, axis=1), queries, ['cache'] * self._cache_length + queries)

  def _segments(self, inputs, is_first) -> List[Tuple[tf.Tensor, tf.Tensor]]:
    """Returns each segment's steps, and the rows that begin an episode with it."""
    segments = core.segment_slices(inputs.shape[1], self._segment_length)
    within = tf.range(inputs.shape[1]) % self._segment_length > 0
    wrong = tf.reduce_any((is_first & within)[:, :, tf.newaxis], axis=1, keepdims=True)
    tf.debugging.Assert(tf.logical_not(tf.reduce_any(wrong)), [
        'is_first is true within a segment: expected only on the first of every '
        f'{self._segment_length} steps'])
    nan = tf.cast(float('nan'), self.compute_dtype)
    stream = tf.where(wrong, nan, self.embedding(inputs))  # XLA drops assertions.
    return list(zip(tf.split(stream, len(segments), axis=1),
                    (is_first[:, segment.start] for segment in segments)))

  def _segment(self, steps, is_first, state: RATEState, key=None):
    """Returns outputs, the next state, and the arguments of `xl_block.weigh`."""
    num_tokens, num_steps = self._num_memory_tokens, self._segment_length
    memory, carry, valid = self._begin_episodes(
        is_first | ~state.begun, state.memory, state.carry, state.valid)
    memory, hidden, noise = self._noise.mix(state.noise, memory, state.hidden)
    tokens = tf.cast(memory, steps.dtype)
    stream = tf.concat([tokens, steps, tokens], axis=1)
    stream = dropout_lib.drop(stream, self._dropout, key, len(self.blocks))
    mask = masks.segment_mask(valid, num_steps, num_tokens)
    layer_inputs = []
    for i, block in enumerate(self.blocks):
      layer_inputs.append(stream)
      stream = block(stream, hidden[:, :, i], mask, self._lookahead,
                     dropout_lib.fold(key, i))
    stream = dropout_lib.drop(stream, self._dropout, key, len(self.blocks) + 1)
    stream = self.output_norm(stream)
    _, outputs, written = tf.split(stream, [num_tokens, num_steps, num_tokens], axis=1)
    memory, carry = self._retain(memory, written, carry)
    new = tf.cast(tf.stack(layer_inputs, axis=2), hidden.dtype)
    return outputs, RATEState(
        memory=memory, carry=carry, begun=tf.ones_like(state.begun),
        hidden=tf.stop_gradient(self._last(hidden, new, axis=1)),
        valid=self._last(valid, tf.ones_like(new[:, :, 0, 0], tf.bool), axis=1),
        noise=noise), (layer_inputs, hidden, mask)

  def _begin_episodes(self, where, memory, carry, valid):
    """Resets memory, carry and validity of the cache in the rows `where` `[B]`."""
    if self._num_memory_tokens:
      memory = nests.where(
          ~where, memory, tf.cast(self.initial_memory, memory.dtype))
      carry = nests.where(~where, carry, self.retention.initial_carry(memory))
    return memory, carry, valid & ~where[:, tf.newaxis]

  def _retain(self, memory, candidate, carry):
    """Returns memory M_{n+1} and its carry, in the dtype of `memory`."""
    memory_dtype = memory.dtype
    memory, carry = tf.nest.map_structure(
        lambda x: tf.cast(x, self.compute_dtype), (memory, carry))
    retained = self.retention(memory, candidate, carry)
    retained = tf.nest.map_structure(lambda x: tf.cast(x, memory_dtype), retained)
    if self._stop_memory:
      retained = tf.nest.map_structure(tf.stop_gradient, retained)
    return retained

  def _last(self, cached, new, axis):
    """Returns the last C positions of `cached` and `new`; C may be 0."""
    joined = tf.concat([cached, new], axis)
    sizes = [joined.shape[axis] - self._cache_length, self._cache_length]
    return tf.split(joined, sizes, axis)[1]

  def _cache(self, state) -> RATECache:
    memory, carry, valid = self._begin_episodes(
        ~state.begun, state.memory, state.carry, state.valid)
    keys, values = self._keys_and_values(state.hidden)
    return self._begin_segment(memory, carry, keys, values, valid, state.noise)

  def _keys_and_values(self, hidden):
    """Computes every layer's keys and values `[B, H, C, d]` from `[B, C, L, D]`."""
    return tuple(zip(*(
        block.keys_and_values(hidden[:, :, i]) for i, block in enumerate(self.blocks))))

  def _begin_segment(self, memory, carry, keys, values, valid, noise) -> RATECache:
    """Makes a cache with the memory tokens' keys and values and room for the steps."""
    memory, (keys, values), noise = self._noise.mix(
        noise, memory, (keys, values), self._keys_and_values)
    _, read_keys, read_values = self._run_memory_tokens(
        memory, [x[:, :, :0] for x in keys], [x[:, :, :0] for x in values])

    def extend(cached, read):
      return tf.pad(tf.concat([cached, read], axis=2),
                    [[0, 0], [0, 0], [0, self._segment_length], [0, 0]])

    valid = tf.pad(
        valid, [[0, 0], [0, self._num_memory_tokens]], constant_values=True)
    return RATECache(
        memory=memory, carry=carry, keys=tuple(map(extend, keys, read_keys)),
        values=tuple(map(extend, values, read_values)),
        valid=tf.pad(valid, [[0, 0], [0, self._segment_length]]),
        phase=tf.zeros(tf.shape(valid)[:1], tf.int32), noise=noise)

  def _run_memory_tokens(self, memory, keys, values):
    """Runs memory tokens, which see each other and all of `keys`, through all layers.

    Returns:
      The last layer's outputs, and each layer's keys and values of the tokens.
    """
    if not self._num_memory_tokens:
      nothing = [x[:, :, :0] for x in keys]
      return tf.cast(memory, self.compute_dtype), nothing, nothing
    stream = tf.cast(memory, self.compute_dtype)
    num_keys = keys[0].shape[2] + self._num_memory_tokens
    mask = tf.ones((1, self._num_memory_tokens, num_keys), tf.bool)
    own_keys, own_values = [], []
    for block, layer_keys, layer_values in zip(self.blocks, keys, values):
      stream, key, value = block.extend(
          stream, layer_keys, layer_values, mask, self._lookahead)
      own_keys.append(key)
      own_values.append(value)
    return self.output_norm(stream), own_keys, own_values

  def _step(self, inputs, is_first, cache):
    begins = is_first | (cache.phase == self._segment_length)
    cache = tf.cond(
        tf.reduce_any(begins),
        lambda: self._next_segment(begins, is_first, cache), lambda: cache)
    num_slots = cache.valid.shape[1]
    slot = num_slots - self._segment_length + cache.phase
    positions = relative_positions.slot_positions(slot, num_slots, self._model_dim)
    stream = self.embedding(inputs)[:, tf.newaxis]
    keys, values = [], []
    for i, block in enumerate(self.blocks):
      stream, key, value = block.step(
          stream, cache.keys[i], cache.values[i], positions, cache.valid)
      keys.append(slots.put(cache.keys[i], key, slot))
      values.append(slots.put(cache.values[i], value, slot))
    return self.output_norm(stream)[:, 0], cache._replace(
        keys=tuple(keys), values=tuple(values),
        valid=cache.valid | slots.at(slot, num_slots), phase=cache.phase + 1)

  def _next_segment(self, begins, is_first, cache: RATECache) -> RATECache:
    """Begins a new segment in the rows `begins` `[B]`.

    The end of the last segment is computed for all rows. It is meaningful where that
    segment is complete, and an episode's first segment does not use it.
    """
    own = slice(self._cache_length, None)  # The segment's slots.
    candidate, write_keys, write_values = self._run_memory_tokens(
        cache.memory, [x[:, :, own] for x in cache.keys],
        [x[:, :, own] for x in cache.values])
    memory, carry = self._retain(cache.memory, candidate, cache.carry)
    memory, carry, valid = self._begin_episodes(is_first, memory, carry, self._last(
        cache.valid, tf.ones_like(memory[:, :, 0], tf.bool), axis=1))
    # Another episode's may have overflowed, and a weight of 0 does not remove NaN.
    same = ~is_first[:, tf.newaxis, tf.newaxis, tf.newaxis]
    keys, values = tf.nest.map_structure(
        lambda x, new: tf.where(same, self._last(x, new, 2), tf.zeros((), x.dtype)),
        (cache.keys, cache.values), (tuple(write_keys), tuple(write_values)))
    noise = tf.nest.map_structure(  # A segment without steps keeps its noise.
        lambda number: number - tf.cast(cache.phase == 0, tf.int32), cache.noise)
    begun = self._begin_segment(memory, carry, keys, values, valid, noise)
    return nests.where(begins, begun, cache)

  def record(self, cache) -> Tuple[()]:
    return ()

  def restore(self, records, is_first) -> RATEState:
    raise NotImplementedError('RATE has no records to restore a state from: keep states')
