"""Segments between memory tokens: RATE, and RMT, Transformer-XL and DT as its settings.

"Recurrent Action Transformer with Memory", section 3. The paper leaves out most of what
defines the model; where nothing else is said, what is here is what its code does.
"""

from typing import Any, Literal, NamedTuple, Optional, Tuple

import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf.cores import core
from gtrxl_tf.cores import dropout as dropout_lib
from gtrxl_tf.cores import masks
from gtrxl_tf.cores import noise as noise_lib
from gtrxl_tf.cores import relative_attention
from gtrxl_tf.cores import retention as retention_valves
from gtrxl_tf.cores import xl_block


class RATEState(NamedTuple):
  """What a segment leaves to the next one."""
  memory: tf.Tensor  # [B, m, D], the memory tokens M_n of the next segment.
  carry: Any         # What the retention valve remembers besides, see `retention`.
  begun: tf.Tensor   # [B], false where M_n is the learned M_0, whatever `memory` holds.
  hidden: tf.Tensor  # [B, C, L, D], every layer's inputs at the last C positions.
  valid: tf.Tensor   # [B, C], true where the position belongs to the present episode.
  noise: Any = ()    # The numbers of the next segment's, see `noise`.


class RATECache(NamedTuple):
  """What a step leaves to the next one."""
  memory: tf.Tensor              # [B, m, D], the memory tokens of this segment.
  carry: Any
  keys: Tuple[tf.Tensor, ...]    # Of each layer, [B, H, C+m+S, d]: those of `hidden`,
  values: Tuple[tf.Tensor, ...]  # of the tokens read, and of the segment's steps.
  valid: tf.Tensor               # [B, C+m+S]
  phase: tf.Tensor               # [B], int32 in 0..S: steps taken in the segment.
  noise: Any = ()


@config.configurable
class RATE(core.Core):
  """A Transformer-XL stack over segments, each between the same memory tokens.

  A segment n of S steps runs through the layers as [M_n, steps, M_n]. Steps see what
  is cached of earlier segments, the M_n before them, and the steps up to themselves;
  `masks.segment_mask` has the whole table. The last layer's outputs at the M_n behind
  them are what the segment wants remembered, of which, and of M_n, a retention valve
  makes M_{n+1}. Positions are relative and signed: memory tokens see one another in
  both directions, where the shift of RATE's code gives later ones no meaningful place.

  Episodes start where segments do. In an unroll, `is_first` may be true only on the
  first step of a segment; in acting each row counts its own segments, and a first
  step starts one at once.

  Its settings are several models:

    RATE            the defaults, for T-Maze; with a cache for most other tasks
    RMT             retention = 'none', mlp_dim > 0
    Transformer-XL  num_memory_tokens = 0, cache_length > 0, mlp_dim > 0
    DT              num_memory_tokens = 0, mlp_dim > 0, a segment the whole context

  A trainer may start a row from any memory: in `initial_state`, `_replace` `memory`,
  and `begun` by true, and let the row's `is_first` be false. States cannot be restored
  from records of single steps, which replay keeps: memory depends on whole segments.

  Args:
    num_layers: L.
    model_dim: D. Inputs that are D wide are taken as they are, as RATE's encoders make
      them, others pass a linear embedding first.
    num_heads: H.
    head_dim: d; in RATE as wide as the model.
    mlp_dim: hidden units of the position-wise MLP; 0 for none, as RATE has it.
    variant: `trxl` (post-norm, RATE's), `trxl_i` or `gtrxl`, see `TransformerXL`. The
      attention is without biases. RATE's code adds the inputs twice before the norm,
      by accident as it seems; here it is once. Where norms come before the sublayers,
      one more normalizes the last layer's outputs, as in other stacks of that kind:
      without it memory grows from segment to segment without bound.
    num_memory_tokens: m. With 0 there is no retention valve either.
    cache_length: C, how many positions of earlier segments a step sees, memory tokens
      counted: RATE recommends (S + 2m) times the segments of a trajectory, and 0 for
      sparse tasks. No gradient passes the cache.
    segment_length: S, in steps of the core: RATE has three tokens a step of the
      environment.
    retention: the valve, see `retention`.
    retention_heads: of `ca1` and `ca2`; divides `model_dim`.
    retention_activation: of `ca1` and `ca2`, on what the segment wants remembered.
    memory_init: M_0 is drawn from N(0, 1), each token `independent`ly (Algorithm 1), or
      one that all start with (`shared`, what RATE's code does).
    memory_gradient: whether the loss of a segment trains what earlier segments of the
      unroll wrote (`through_segments`), or memory is `stopped` between segments. RATE's
      code stops it, and so never trains its valve.
    dropout: share of hidden units dropped in training, which is where Keras' `training`
      is true: of what enters the first layer and leaves the last, of the encodings of
      positions, and of what attention and MLP return. RATE has 0.05 on T-Maze; it is 0
      here, which is comparable with other cores.
    attention_dropout: the same, of the attention's weights, but for the valve's.
    memory_noise: to see what a trained model has in its memory tokens (Figures 6, 7, 10
      and 13), `M_n` becomes `(1 - memory_noise) * M_n + memory_noise * noise` at the
      start of each segment, the first too, as in RATE's code; in both its places, and
      for the valve. The noise is N(0, 1), drawn for each row and segment, where RATE's
      code draws for each step. It is the same whenever a row begins as a new state.
    cache_noise: the same for the cache of hidden states (Figure 6: 1), the whole of it
      anew at each segment's start. What is not `trxl` can only replace it, with 1.

  The defaults are the paper's for T-Maze (Table 8), S being its K = 30 steps in three
  tokens each.
  """

  def __init__(
      self,
      num_layers: config.PositiveInt = 8,
      model_dim: config.PositiveInt = 64,
      num_heads: config.PositiveInt = 10,
      head_dim: config.PositiveInt = 64,
      mlp_dim: config.NonNegativeInt = 0,
      variant: Literal['trxl', 'trxl_i', 'gtrxl'] = 'trxl',
      num_memory_tokens: config.NonNegativeInt = 5,
      cache_length: config.NonNegativeInt = 0,
      segment_length: config.PositiveInt = 90,
      retention: Literal['none', 'ca1', 'ca2', 'gate', 'gru', 'lstm'] = 'ca2',
      retention_heads: config.PositiveInt = 4,
      retention_activation: Literal['relu', 'leaky_relu', 'none'] = 'relu',
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
      # Acting has keys and values of the cache, of which a norm is not undone.
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
    self._lookahead = max(num_memory_tokens - 1, 0)  # Of memory tokens to one another.
    self.blocks = xl_block.make_blocks(
        num_layers, num_heads, head_dim, mlp_dim, variant, dropout=dropout,
        attention_dropout=attention_dropout)
    self.retention = retention_valves.RETENTION[retention](
        retention_heads, retention_activation, name='retention')

  def build(self, input_shape):
    self.embedding = None
    if input_shape[-1] != self._model_dim:
      self.embedding = tf.keras.layers.Dense(self._model_dim, name='embedding')
      core.build_layer(self.embedding, input_shape)
    stream_shape = tf.TensorShape([None, None, self._model_dim])
    self.output_norm = tf.keras.layers.Activation('linear')
    if self._norm_comes_first:
      self.output_norm = tf.keras.layers.LayerNormalization(
          epsilon=1e-5, name='output_norm')
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
  def output_size(self):
    return self._model_dim

  @property
  def memory_length(self):
    """0: there are no records, see `restore`."""
    return 0

  @property
  def segment_length(self):
    return self._segment_length

  def initial_state(self, batch_size):
    memory = tf.zeros((batch_size, self._num_memory_tokens, self._model_dim))
    shape = (batch_size, self._cache_length)
    return RATEState(
        memory=memory, carry=self.retention.initial_carry(memory),
        begun=tf.zeros((batch_size,), tf.bool),
        hidden=tf.zeros((*shape, len(self.blocks), self._model_dim)),
        valid=tf.zeros(shape, tf.bool), noise=self._noise.first_numbers(batch_size))

  def call(self, inputs, is_first, state, training=None):
    key = dropout_lib.make_key(inputs) if training and self._drops else None
    outputs = []
    for n, (steps, begins) in enumerate(self._segments(inputs, is_first)):
      segment_outputs, state, _ = self._segment(
          steps, begins, state, dropout_lib.fold(key, n))
      outputs.append(segment_outputs)
    return tf.concat(outputs, axis=1), state

  def attention_weights(self, inputs, is_first, state
                        ) -> xl_block.AttentionWeights:
    """Whom steps and memory tokens of an unroll attend to."""
    weights = []
    inputs = tf.cast(inputs, self.compute_dtype)
    for steps, begins in self._segments(inputs, is_first):
      _, state, seen = self._segment(steps, begins, state)
      weights.append(xl_block.weigh(self.blocks, *seen, self._lookahead))
    tokens = self._num_memory_tokens
    queries = ['read'] * tokens + ['step'] * self._segment_length + ['write'] * tokens
    return xl_block.AttentionWeights(
        tf.stack(weights, axis=1), queries, ['cache'] * self._cache_length + queries)

  def _segments(self, inputs, is_first):
    """Each segment's steps, and which rows begin an episode with it."""
    unroll_length = inputs.shape[1]
    if unroll_length % self._segment_length:
      raise ValueError(
          f'inputs have {unroll_length} steps: expected a multiple of '
          f'segment_length = {self._segment_length}')
    starts = range(0, unroll_length, self._segment_length)
    within = tf.constant([t not in starts for t in range(unroll_length)])
    tf.debugging.Assert(
        tf.logical_not(tf.reduce_any(is_first & within)),
        ['is_first is true within a segment: expected only on the first of every '
         f'{self._segment_length} steps'])
    stream = self._embed(inputs)
    return [(stream[:, start:start + self._segment_length], is_first[:, start])
            for start in starts]

  def _embed(self, inputs):
    return inputs if self.embedding is None else self.embedding(inputs)

  def _segment(self, steps, is_first, state: RATEState, key=None):
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
    memory, carry = self._retain(memory, stream[:, num_tokens + num_steps:], carry)
    new = tf.cast(tf.stack(layer_inputs, axis=2), hidden.dtype)
    outputs = stream[:, num_tokens:num_tokens + num_steps]
    return outputs, RATEState(
        memory=memory, carry=carry, begun=tf.ones_like(state.begun),
        hidden=tf.stop_gradient(self._last(hidden, new, axis=1)),
        valid=self._last(valid, tf.ones_like(new[:, :, 0, 0], tf.bool), axis=1),
        noise=noise), (layer_inputs, hidden, mask)

  def _begin_episodes(self, where, memory, carry, valid):
    """Memory, carry and validity of a cache, for a new episode where `where` `[B]`."""
    if self._num_memory_tokens:
      choose = lambda new, old: tf.where(where[:, tf.newaxis, tf.newaxis], new, old)
      memory = choose(tf.cast(self.initial_memory, memory.dtype), memory)
      carry = tf.nest.map_structure(
          choose, self.retention.initial_carry(memory), carry)
    return memory, carry, valid & ~where[:, tf.newaxis]

  def _retain(self, memory, candidate, carry):
    """M_{n+1}, and the carry that goes with it."""
    cast = lambda x: tf.cast(x, self.compute_dtype)
    retained = self.retention(
        cast(memory), candidate, tf.nest.map_structure(cast, carry))
    retained = tf.nest.map_structure(lambda x: tf.cast(x, memory.dtype), retained)
    if self._stop_memory:
      retained = tf.nest.map_structure(tf.stop_gradient, retained)
    return retained

  def _last(self, cached, new, axis):
    """The last C positions of `cached` and `new`, C being 0 or more."""
    joined = tf.concat([cached, new], axis)
    sizes = [joined.shape[axis] - self._cache_length, self._cache_length]
    return tf.split(joined, sizes, axis)[1]

  def cache(self, state):
    memory, carry, valid = self._begin_episodes(
        ~state.begun, state.memory, state.carry, state.valid)
    keys, values = self._keys_and_values(state.hidden)
    return self._begin_segment(memory, carry, keys, values, valid, state.noise)

  def _keys_and_values(self, hidden):
    """Those of every layer, `[B, H, C, d]`, of its inputs in `[B, C, L, D]`."""
    return tuple(zip(*(
        block.keys_and_values(hidden[:, :, i]) for i, block in enumerate(self.blocks))))

  def _begin_segment(self, memory, carry, keys, values, valid, noise) -> RATECache:
    """Joins keys and values of memory tokens, and room for steps, to those cached."""
    memory, (keys, values), noise = self._noise.mix(
        noise, memory, (keys, values), self._keys_and_values)
    nothing = lambda windows: [x[:, :, :0] for x in windows]
    _, read_keys, read_values = self._run_memory_tokens(
        memory, nothing(keys), nothing(values))
    extend = lambda cached, read: tf.pad(
        tf.concat([cached, read], axis=2),
        [[0, 0], [0, 0], [0, self._segment_length], [0, 0]])
    valid = tf.pad(
        valid, [[0, 0], [0, self._num_memory_tokens]], constant_values=True)
    return RATECache(
        memory=memory, carry=carry, keys=tuple(map(extend, keys, read_keys)),
        values=tuple(map(extend, values, read_values)),
        valid=tf.pad(valid, [[0, 0], [0, self._segment_length]]),
        phase=tf.zeros(tf.shape(valid)[:1], tf.int32), noise=noise)

  def _run_memory_tokens(self, memory, keys, values):
    """Memory tokens behind `keys`, all of which they see, through all layers.

    Returns:
      The last layer's outputs, and the tokens' own keys and values of each layer.
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
    positions = relative_attention.slot_positions(slot, num_slots, self._model_dim)
    stream = self._embed(inputs)[:, tf.newaxis]
    keys, values = [], []
    for i, block in enumerate(self.blocks):
      stream, key, value = block.step(
          stream, cache.keys[i], cache.values[i], positions, cache.valid)
      keys.append(xl_block.put(cache.keys[i], key, slot))
      values.append(xl_block.put(cache.values[i], value, slot))
    here = tf.range(num_slots) == slot[:, tf.newaxis]
    return self.output_norm(stream)[:, 0], cache._replace(
        keys=tuple(keys), values=tuple(values), valid=cache.valid | here,
        phase=cache.phase + 1)

  def _next_segment(self, begins, is_first, cache: RATECache) -> RATECache:
    """The cache with a segment begun in the rows where `begins`.

    What a row's last segment leaves is computed for all rows, and means something where
    the segment is complete. An episode's first segment takes nothing of it.
    """
    own = lambda windows: [x[:, :, self._cache_length:] for x in windows]
    candidate, write_keys, write_values = self._run_memory_tokens(
        cache.memory, own(cache.keys), own(cache.values))
    memory, carry = self._retain(cache.memory, candidate, cache.carry)
    written = tf.ones_like(memory[:, :, 0], tf.bool)
    memory, carry, valid = self._begin_episodes(
        is_first, memory, carry, self._last(cache.valid, written, axis=1))
    move = lambda window, write: self._last(window, write, axis=2)
    begun = self._begin_segment(
        memory, carry, tuple(map(move, cache.keys, write_keys)),
        tuple(map(move, cache.values, write_values)), valid, cache.noise)
    return tf.nest.map_structure(
        lambda new, old: tf.where(
            tf.reshape(begins, [-1] + [1] * (old.shape.rank - 1)), new, old),
        begun, cache)

  def record(self, cache):
    return ()

  def restore(self, records, is_first):
    raise NotImplementedError(
        'RATE has no records to restore a state from: start at an episode\'s first '
        'segment, or keep its state')
