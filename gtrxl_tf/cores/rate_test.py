"""Compares RATE with its formulas, with other models, and acting with unrolls."""

from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.cores import keras
from gtrxl_tf.cores import masks
from gtrxl_tf.settings import config

_B, _D = 2, 8
_TOLERANCE = dict(atol=1e-5, rtol=1e-5)


def _rate(**settings):
  """A core with two layers and all variables moved from their initial values."""
  tf.keras.utils.set_random_seed(0)
  core = cores.RATE(**{**dict(
      num_layers=2, model_dim=_D, num_heads=2, head_dim=3, num_memory_tokens=2,
      segment_length=3, retention_heads=2), **settings})
  core.build(tf.TensorShape([None, None, _D]))
  random = np.random.RandomState(0)
  for variable in core.trainable_variables:
    variable.assign_add(0.2 * random.randn(*variable.shape))
  return core


def _inputs(length, seed=0):
  inputs = np.random.RandomState(seed).randn(_B, length, _D).astype(np.float32)
  return tf.constant(inputs), tf.zeros((_B, length), tf.bool)


def _run(core, inputs, state=None):
  """The outputs and final state of an unroll in which no episode starts."""
  state = core.initial_state(inputs.shape[0]) if state is None else state
  return core(inputs, tf.zeros(inputs.shape[:2], tf.bool), state)


class Reference:
  """RATE's layers as loops over queries and keys: one row, post-norm, no MLP."""

  def __init__(self, core):
    self.core = core

  def position(self, distance):
    frequencies = 1 / 10000 ** (np.arange(0, _D, 2) / _D)
    return np.concatenate([np.sin(distance * frequencies),
                           np.cos(distance * frequencies)])

  def layer(self, block, keys, first_query, sees):
    """Applies a layer to keys `[S, D]`; those from `first_query` on are queries."""
    def w(name):
      return getattr(block.attention, name).numpy()
    outputs = []
    for i in range(first_query, len(keys)):
      attended = 0
      for h in range(2):
        query = keys[i] @ w('query_kernel')[:, h]
        scores = np.full(len(keys), -np.inf)
        for j in filter(lambda j: sees(i, j), range(len(keys))):
          relative = self.position(i - j) @ w('relative_kernel')[:, h]
          scores[j] = (
              (query + w('content_bias_u')[h]) @ (keys[j] @ w('key_kernel')[:, h])
              + (query + w('position_bias_v')[h]) @ relative) / np.sqrt(3)
        weights = np.exp(scores) / np.exp(scores).sum()
        attended += (weights @ (keys @ w('value_kernel')[:, h])) @ w('output_kernel')[h]
      x = keys[i] + attended
      normal = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
      outputs.append(normal * block.attention_norm.gamma.numpy()
                     + block.attention_norm.beta.numpy())
    return np.array(outputs)

  def segment(self, steps, memory, cached):
    """Runs a segment.

    Args:
      steps: `[S, D]`.
      memory: `[m, D]`.
      cached: each layer's cached inputs `[C, D]`.

    Returns:
      The outputs of steps and of written tokens, and each layer's inputs.
    """
    m, c = len(memory), len(cached[0])
    kinds = ['cache'] * c + ['read'] * m + ['step'] * len(steps) + ['write'] * m
    table = {('read', 'read'), ('step', 'cache'), ('step', 'read'), ('step', 'step'),
             ('write', 'read'), ('write', 'step'), ('write', 'write')}

    def sees(i, j):
      later_step = kinds[i] == kinds[j] == 'step' and j > i
      return (kinds[i], kinds[j]) in table and not later_step

    stream, inputs = np.concatenate([memory, steps, memory]), []
    for block, layer_cache in zip(self.core.blocks, cached):
      inputs.append(stream)
      stream = self.layer(block, np.concatenate([layer_cache, stream]), c, sees)
    return stream[m:-m], stream[-m:], inputs


class RATETest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters('none', 'ca2')
  @pytest.mark.medium
  def test_two_segments_agree_with_loops(self, retention):
    core = _rate(cache_length=4, retention=retention)
    inputs, _ = _inputs(6)
    outputs, state = _run(core, inputs)
    reference = Reference(core)
    for b in range(_B):
      memory, cached = core.initial_memory.numpy(), [np.zeros((0, _D))] * 2
      for n in range(2):
        steps = inputs[b, 3 * n:3 * n + 3].numpy()
        expected, candidate, layer_inputs = reference.segment(steps, memory, cached)
        self.assertAllClose(outputs[b, 3 * n:3 * n + 3], expected, **_TOLERANCE)
        memory, candidate = (
            tf.constant(x[np.newaxis], tf.float32) for x in (memory, candidate))
        memory = core.retention(memory, candidate, ())[0][0].numpy()
        cached = [np.concatenate(x)[-4:] for x in zip(cached, layer_inputs)]
      self.assertAllClose(state.memory[b], memory, **_TOLERANCE)
      self.assertAllClose(state.hidden[b], np.stack(cached, axis=1), **_TOLERANCE)

  def test_positions_that_each_position_sees(self):
    # Two cached positions, the first not valid; then two read, two steps, two written.
    table = ['..rr....',
             '..rr....',
             '.crrs...',
             '.crrss..',
             '..rrssww',
             '..rrssww']
    core = _rate(num_layers=1)
    random = np.random.RandomState(1)
    positions = random.randn(1, 8, _D).astype(np.float32)
    mask = masks.segment_mask(
        tf.constant([[False, True]]), segment_length=2, num_memory_tokens=2)
    def run(x):
      return core.blocks[0](x[:, 2:], x[:, :2], mask, 1)[0].numpy()
    before = run(positions)
    for j in range(8):
      changed = positions.copy()
      changed[0, j] += 1
      seen = np.any(run(changed) != before, axis=-1)
      self.assertEqual([row[j] != '.' for row in table], seen.tolist(), j)

  def test_order_of_memory_tokens_is_seen_in_both_directions(self):
    core = _rate(num_layers=1, num_memory_tokens=3)
    random = np.random.RandomState(1)
    tokens = random.randn(1, 3, _D).astype(np.float32)
    # The first and third token are equal; only the order distinguishes them.
    tokens[:, 2] = tokens[:, 0]
    mask = tf.ones((1, 3, 3), tf.bool)
    outputs = core.blocks[0](tokens, tf.zeros((1, 0, _D)), mask, 2)
    self.assertGreater(np.abs(outputs[0, 0] - outputs[0, 2]).max(), 1e-3)

  @pytest.mark.medium
  def test_without_memory_tokens_it_is_transformer_xl(self):
    core = _rate(num_memory_tokens=0, cache_length=6, mlp_dim=5)
    xl = cores.TransformerXL(2, _D, 2, 3, 5, memory_length=6, variant='trxl')
    inputs, is_first = _inputs(6)
    xl(inputs, is_first, xl.initial_state(_B))
    xl.embedding.kernel.assign(tf.eye(_D))
    for block, other in zip(xl.blocks, core.blocks):
      block.set_weights(other.get_weights())
    expected, _ = xl(inputs, is_first, xl.initial_state(_B))
    self.assertAllClose(_run(core, inputs)[0], expected, **_TOLERANCE)
    # A decision transformer forgets between segments.
    forgetful = _rate(num_memory_tokens=0, mlp_dim=5)
    outputs, state = _run(forgetful, inputs)
    for n in (slice(0, 3), slice(3, 6)):
      expected, _ = xl(inputs[:, n], is_first[:, n], xl.initial_state(_B))
      self.assertAllClose(outputs[:, n], expected, **_TOLERANCE)
    for empty in (state.memory, state.hidden, state.valid):
      self.assertEqual(tf.size(empty), 0)

  @parameterized.parameters('through_segments', 'stopped')
  def test_gradient_between_segments(self, memory_gradient):
    core = _rate(memory_gradient=memory_gradient)
    inputs, is_first = _inputs(6)
    with tf.GradientTape() as tape:
      tape.watch(inputs)
      outputs, _ = core(inputs, is_first, core.initial_state(_B))
      loss = tf.reduce_sum(tf.sin(outputs[:, 3:]))
    of_inputs, of_valve, of_variables = tape.gradient(
        loss, (inputs, core.retention.trainable_variables, core.trainable_variables))
    reached = np.any(of_inputs != 0, axis=(0, 2))
    if memory_gradient == 'stopped':
      self.assertAllEqual(reached, [False] * 3 + [True] * 3)
      self.assertEqual(of_valve, [None] * 8)
      return
    self.assertAllEqual(reached, [True] * 6)
    for variable, gradient in zip(core.trainable_variables, of_variables):
      # A term that all scores share does not change the softmax.
      if 'retention/key_bias' not in keras.variable_name(variable):
        self.assertGreater(np.abs(gradient).max(), 1e-7, variable.name)

  def test_no_gradient_flows_through_the_cache(self):
    core = _rate(num_memory_tokens=0, cache_length=3)
    inputs, is_first = _inputs(6)
    with tf.GradientTape(persistent=True) as tape:
      tape.watch(inputs)
      outputs, state = core(inputs, is_first, core.initial_state(_B))
      loss = tf.reduce_sum(tf.sin(outputs[:, 3:]))
    reached = np.any(tape.gradient(loss, inputs) != 0, axis=(0, 2))
    self.assertAllEqual(reached, [False] * 3 + [True] * 3)
    self.assertIsNone(tape.gradient(state.hidden, inputs))

  @parameterized.named_parameters(
      ('compiled', True, {}),
      ('cache_longer_than_a_segment', False, dict(cache_length=12)),
      ('cache_shorter_than_a_segment', False, dict(cache_length=4)),
      ('lstm_valve', False, dict(retention='lstm', num_memory_tokens=1)),
      ('gtrxl', False, dict(variant='gtrxl', cache_length=3, retention='gru')),
      ('no_memory_tokens', False, dict(num_memory_tokens=0, cache_length=5)))
  @pytest.mark.medium
  def test_steps_equal_unroll_in_rows_out_of_phase(self, compiled, settings):
    core = _rate(**settings)
    # When each row's episodes start, some within a segment of another row.
    starts = [[0], [0, 8], [2], [1, 3, 4]]
    length = 13
    inputs = np.random.RandomState(2).randn(4, length, _D).astype(np.float32)
    is_first = np.zeros((4, length), bool)
    for row, row_starts in enumerate(starts):
      is_first[row, row_starts] = True
    step = tf.function(core.step, autograph=False, jit_compile=compiled)
    cache, stepped = core.initial_cache(4), []
    for t in range(length):
      outputs, cache = step(inputs[:, t], is_first[:, t], cache)
      stepped.append(outputs)
    stepped = np.stack(stepped, axis=1)
    unroll = tf.function(lambda x: _run(core, x)[0], autograph=False)
    for row, row_starts in enumerate(starts):
      for start, end in zip(row_starts, row_starts[1:] + [length]):
        episode = np.zeros((1, 15, _D), np.float32)
        episode[0, :end - start] = inputs[row, start:end]
        self.assertAllClose(stepped[row, start:end], unroll(episode)[0, :end - start],
                            **_TOLERANCE, msg=f'row {row} from {start}')

  def test_a_row_may_start_from_any_memory(self):
    core = _rate()
    inputs, _ = _inputs(6)
    complete, final = _run(core, inputs)
    _, middle = _run(core, inputs[:, :3])
    start = core.initial_state(_B)._replace(
        memory=middle.memory, begun=tf.constant([True, False]))
    later, end = _run(core, inputs[:, 3:], start)
    self.assertAllClose(later[0], complete[0, 3:], **_TOLERANCE)
    self.assertAllClose(end.memory[0], final.memory[0], **_TOLERANCE)
    fresh, _ = _run(core, inputs[:, 3:])
    self.assertAllClose(later[1], fresh[1], **_TOLERANCE)
    self.assertNotAllClose(later[0], fresh[0], atol=1e-3)
    cache, output = core.cache(start), None
    for t in range(3):
      output, cache = core.step(inputs[:, 3 + t], [False, False], cache)
    self.assertAllClose(output, later[:, -1], **_TOLERANCE)

  @pytest.mark.medium
  def test_noise_replaces_memory(self):
    inputs, _ = _inputs(6)
    for settings, field in ((dict(memory_noise=1.0), 'memory'),
                            (dict(cache_noise=1.0, num_memory_tokens=0), 'hidden')):
      core = _rate(cache_length=3 if field == 'hidden' else 0, **settings)
      _, state = _run(core, inputs)
      changed = state._replace(**{field: getattr(state, field) + 1})
      outputs, after = _run(core, inputs[:, :3], state)
      self.assertAllEqual(_run(core, inputs[:, :3], changed)[0], outputs)
      # Each segment has its own noise, and so has each row.
      later, _ = _run(core, inputs[:, :3], state._replace(noise=after.noise))
      self.assertNotAllClose(later, outputs, atol=1e-2)
      same = tf.tile(inputs[:1, :3], [_B, 1, 1])
      per_row, _ = _run(core, same, tf.nest.map_structure(
          lambda x: x if x is state.noise else tf.repeat(x[:1], _B, 0), state))
      self.assertNotAllClose(per_row[0], per_row[1], atol=1e-2)

  @pytest.mark.medium
  def test_noise_is_standard_normal_and_mixed(self):
    memory = {}
    for share in (0.0, 0.25, 1.0):
      core = _rate(num_memory_tokens=20, memory_noise=share, segment_length=1)
      memory[share] = core.initial_cache(50).memory.numpy()
    self.assertAllClose(memory[1.0].mean(), 0, atol=0.03)
    self.assertAllClose(memory[1.0].std(), 1, atol=0.03)
    self.assertAllClose(memory[0.25], 0.75 * memory[0.0] + 0.25 * memory[1.0])

  @parameterized.named_parameters(
      ('saved', False, dict(memory_noise=0.3, cache_noise=0.4)),
      ('compiled', True, dict(memory_noise=1.0, cache_noise=1.0, variant='gtrxl')))
  @pytest.mark.long
  def test_steps_and_unroll_read_the_same_noise(self, compiled, settings):
    core = _rate(cache_length=4, num_layers=1, **settings)
    inputs, _ = _inputs(6)
    is_first = tf.constant([[t in (0, 3) for t in range(6)], [False] * 6])

    def unroll():
      return core(inputs, is_first, core.initial_state(_B))[0]

    if compiled:
      expected = tf.function(unroll, autograph=False, jit_compile=True)()
      step = tf.function(core.step, autograph=False, jit_compile=True)
    else:
      expected = unroll()
      servable = tf.Module()
      servable.core = core
      servable.step = tf.function(core.step, input_signature=[
          tf.TensorSpec([None, _D]), tf.TensorSpec([None], tf.bool),
          tf.nest.map_structure(lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype),
                                core.initial_cache(1))])
      tf.saved_model.save(servable, self.get_temp_dir())
      loaded = tf.saved_model.load(self.get_temp_dir())
      step = loaded.step
    # Compiled code draws other noise, so the cache must be compiled too.
    cache = tf.function(core.initial_cache, autograph=False, jit_compile=compiled)(_B)
    for t in range(6):
      output, cache = step(inputs[:, t], is_first[:, t], cache)
      self.assertAllClose(output, expected[:, t], **_TOLERANCE)

  def test_without_noise_the_state_has_no_numbers(self):
    core = _rate()
    self.assertEqual(core.initial_state(_B).noise, ())
    self.assertEqual(core.initial_cache(_B).noise, ())

  def test_cache_noise_needs_post_norm_unless_it_replaces_the_cache(self):
    with self.assertRaisesRegex(config.ConfigError, 'cache_noise = 0.5'):
      cores.RATE(variant='gtrxl', cache_noise=0.5)

  def test_attention_weights_reproduce_the_outputs(self):
    core = _rate(cache_length=4, num_layers=1)
    inputs, is_first = _inputs(6)
    attention = core.attention_weights(inputs, is_first, core.initial_state(_B))
    weights = attention.weights.numpy()
    self.assertEqual(weights.shape, (_B, 2, 1, 2, 7, 11))
    kinds = ['read'] * 2 + ['step'] * 3 + ['write'] * 2
    self.assertEqual(attention.queries, kinds)
    self.assertEqual(attention.keys, ['cache'] * 4 + kinds)
    self.assertAllClose(weights.sum(axis=-1), np.ones(weights.shape[:-1]))
    self.assertAllEqual(weights[:, 0, ..., :4], np.zeros((_B, 1, 2, 7, 4)))
    # The layer's outputs, computed from its weights.
    _, middle = _run(core, inputs[:, :3])
    outputs, _ = _run(core, inputs[:, 3:], middle)
    block = core.blocks[0]
    stream = tf.concat([middle.memory, inputs[:, 3:], middle.memory], axis=1)
    values = tf.einsum('bsd,dhe->bhse', tf.concat([middle.hidden[:, :, 0], stream], 1),
                       block.attention.value_kernel)
    attended = tf.einsum('bhts,bhse,hed->btd', weights[:, 1, 0], values,
                         block.attention.output_kernel)
    expected = block.attention_norm(stream + attended)
    self.assertAllClose(outputs, expected[:, 2:5], **_TOLERANCE)

  def test_initial_memory(self):
    drawn = {}
    for init in ('independent', 'shared'):
      core = cores.RATE(1, 64, 2, 4, num_memory_tokens=20, memory_init=init)
      core.build(tf.TensorShape([None, None, 64]))
      drawn[init] = core.initial_memory.numpy()
      self.assertAllClose(drawn[init].std(), 1, atol=0.3)
    self.assertLen(np.unique(drawn['shared'], axis=0), 1)
    self.assertLen(np.unique(drawn['independent'], axis=0), 20)

  def test_inputs_of_the_models_width_are_not_embedded(self):
    def names(core):
      return {keras.variable_name(v).removeprefix(f'{core.name}/').split('/')[0]
              for v in core.variables}
    core = _rate()
    self.assertNotIn('embedding', names(core))
    core = cores.RATE(1, _D, 2, 3)
    core.build(tf.TensorShape([None, None, _D + 1]))
    self.assertIn('embedding', names(core))

  def test_size_of_the_papers_t_maze_model(self):
    core = cores.RATE()
    core.build(tf.TensorShape([None, None, 64]))
    attention = 8 * (5 * 64 * 640 + 2 * 640 + 2 * 64)  # Kernels, u and v, norm.
    valve, memory = 4 * (64 * 64 + 64), 5 * 64
    self.assertEqual(core.count_params(), attention + valve + memory)

  def test_episodes_must_start_with_segments(self):
    core = _rate()
    inputs, is_first = _inputs(6)
    is_first = is_first | (tf.range(6) == 4)
    with self.assertRaisesRegex(tf.errors.InvalidArgumentError, 'within a segment'):
      core(inputs, is_first, core.initial_state(_B))
    # Compiled code has no assertions.
    outputs = tf.function(core, jit_compile=True, autograph=False)(
        inputs, is_first & (tf.range(_B)[:, tf.newaxis] == 0))
    self.assertAllEqual(tf.reduce_all(tf.math.is_nan(outputs), [1, 2]),
                        tf.range(_B) == 0)

  def test_heads_of_the_valve_must_divide_its_width(self):
    with self.assertRaisesRegex(config.ConfigError, 'retention_heads = 4'):
      cores.RATE(model_dim=6, retention='ca1')
    cores.RATE(model_dim=6, retention='gate')


if __name__ == '__main__':
  tf.test.main()
