"""Runs every check over every core. A new core or variant is one line in `_CASES`.

Checks that take seconds run here for one core of each kind, and for the others in
conformance_slow_test.py.
"""

import functools
import inspect
import json
import os
from unittest import mock

from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.cores import keras
from gtrxl_tf.cores import transformer_xl

_B, _T, _D = 3, 6, 5  # Batch size, unroll length, input width.
_TOLERANCE = dict(atol=1e-5, rtol=1e-5)


def _xl(**settings):
  return lambda: cores.TransformerXL(**{**dict(
      num_layers=2, model_dim=8, num_heads=2, head_dim=6, memory_length=4), **settings})


def _rate(**settings):
  return lambda: cores.RATE(**{**dict(
      num_layers=2, model_dim=8, num_heads=2, head_dim=6, num_memory_tokens=2,
      segment_length=3), **settings})


def _segments(**settings):
  return lambda: cores.SegmentTransformer(**{**dict(
      num_layers=2, model_dim=8, num_heads=2, head_dim=4, mlp_dim=8, segment_length=3),
      **settings})


_CASES = {
    'trxl': _xl(variant='trxl'),
    'trxl_i': _xl(variant='trxl_i'),
    'gtrxl_input': _xl(gate='input'),
    'gtrxl_output': _xl(gate='output'),
    'gtrxl_highway': _xl(gate='highway'),
    'gtrxl_sigtanh': _xl(gate='sigtanh'),
    'gtrxl_gru': _xl(gate='gru'),
    'gtrxl_no_identity_bias': _xl(gate_bias=0.0),
    'gtrxl_projection_biases': _xl(use_bias=True),
    'gtrxl_long_memory': _xl(memory_length=9),
    'gtrxl_memory_of_one': _xl(memory_length=1),
    'rate': _rate(cache_length=9),
    'rate_lstm_valve': _rate(num_layers=1, retention='lstm'),
    'rate_no_memory_tokens': _rate(
        num_layers=1, num_memory_tokens=0, cache_length=4, mlp_dim=8),
    'segments_prefix': _segments(num_prefix=2, positions='bias'),
    'segments_xl': _segments(recurrence='xl', memory_length=4, positions='rope'),
    'segments_same_layer': _segments(
        recurrence='same_layer', memory_length=4, norm='pre', positions='bias'),
    'segments_same_layer_long': _segments(
        recurrence='same_layer', memory_length=4, segment_length=6),
    'lstm_concat': lambda: cores.DeepLSTM(2, 7, 'concat'),
    'lstm_residual': lambda: cores.DeepLSTM(2, 7, 'residual'),
    'gru_concat': lambda: cores.DeepGRU(2, 7, 'concat'),
    'mamba': lambda: cores.Mamba(2, 8, state_dim=3),
    'merlin': lambda: cores.MERLIN(4, 3, num_reads=2, num_layers=2, hidden_dim=7),
    'mamba_dm': lambda: cores.MambaDM(2, 8, state_dim=3, local_length=4),
    'memoryless': lambda: cores.Memoryless(2, 7),
}
_ALL = [(name, name) for name in _CASES]
_WITH_MEMORY = [(name, name) for name in _CASES
                if name not in ('memoryless', 'segments_prefix')]
_WITH_EMPTY_STATE = [case for case in _ALL if case[0].startswith('segments')]
# These differ from another core only in the computation within a step, in a size, or in
# the content of memory.
SIMILAR = [(name, name) for name in (
    'trxl_i', 'gtrxl_input', 'gtrxl_output', 'gtrxl_highway', 'gtrxl_sigtanh',
    'gtrxl_no_identity_bias', 'gtrxl_projection_biases', 'gtrxl_memory_of_one',
    'rate_lstm_valve', 'segments_prefix', 'segments_xl', 'segments_same_layer_long',
    'lstm_residual')]
_DISTINCT = [case for case in _ALL if case not in SIMILAR]


def _inputs(seed, unroll_length, core=None, resets=True):
  random = np.random.RandomState(seed)
  inputs = random.randn(_B, unroll_length, _D).astype(np.float32)
  is_first = random.rand(_B, unroll_length) < (0.2 if resets else 0)
  if isinstance(core, cores.RATE):  # Its episodes start where segments do.
    is_first &= np.arange(unroll_length) % core.segment_length == 0
  is_first[0] = False  # In one row no episode ends.
  return tf.constant(inputs), tf.constant(is_first)


def _make(name):
  """A core with every variable away from its initial value, and a used state.

  All checks share it, so that none may change a variable of a float32 core.
  """
  return _made(name, tf.keras.mixed_precision.global_policy().name)


@functools.cache
def _made(name, _):
  tf.random.set_seed(0)
  core = _CASES[name]()
  inputs, is_first = _inputs(100, 2 * _T, core)
  core(inputs, is_first, core.initial_state(_B))
  random = np.random.RandomState(7)
  for variable in core.trainable_variables:
    variable.assign_add(0.1 * random.randn(*variable.shape))
  _, state = core(inputs, is_first, core.initial_state(_B))
  return core, state


def _steps(core, inputs, is_first, cache):
  outputs, records = [], []
  for t in range(inputs.shape[1]):
    output, cache = core.step(inputs[:, t], is_first[:, t], cache)
    outputs.append(output)
    records.append(core.record(cache))
  return tf.stack(outputs, axis=1), cache, records


class _Servable(tf.Module):
  """A core as a SavedModel for programs without this library."""

  def __init__(self, core):
    super().__init__()
    self._core = core
    cache_spec = tf.nest.map_structure(
        lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype), core.initial_cache(1))
    self.step = tf.function(core.step, input_signature=[
        tf.TensorSpec([None, _D]), tf.TensorSpec([None], tf.bool), cache_spec])
    self.initial_cache = tf.function(
        core.initial_cache, input_signature=[tf.TensorSpec([], tf.int32)])


class Checks(tf.test.TestCase, parameterized.TestCase):
  """The checks that take seconds per core."""

  def assert_nests_close(self, a, b, **tolerance):
    tf.nest.map_structure(
        lambda x, y: self.assertAllClose(x, y, **{**_TOLERANCE, **tolerance})
        if x.dtype.is_floating else self.assertAllEqual(x, y), a, b)

  def check_records_restore_the_state(self, name):
    core, _ = _make(name)
    if isinstance(core, cores.RATE):
      with self.assertRaisesRegex(NotImplementedError, 'no records to restore'):
        core.restore((), tf.zeros((_B, 0), tf.bool))
      return
    inputs, is_first = _inputs(6, 4 * _T, core)
    for taken in (_T, 2 * _T):
      steps = slice(0, taken)
      _, expected = core(inputs[:, steps], is_first[:, steps], core.initial_state(_B))
      starts = tf.concat([tf.ones((_B, 1), tf.bool), is_first[:, 1:taken]], axis=1)
      _, cache, records = _steps(
          core, inputs[:, steps], starts, core.initial_cache(_B))
      # Records from before an actor's first step may hold anything: large numbers.
      blank = tf.nest.map_structure(lambda x: tf.fill(x.shape, 1e3), core.record(cache))
      rows = [blank] * core.memory_length + records
      rows = rows[len(rows) - core.memory_length:]
      restored = core.restore(
          tf.nest.map_structure(lambda *x: tf.stack(x, axis=1), *rows) if rows else (),
          tf.pad(starts, [[0, 0], [core.memory_length, 0]])[
              :, taken:taken + core.memory_length])
      ahead = slice(taken, taken + _T)
      self.assertAllClose(core(inputs[:, ahead], is_first[:, ahead], restored)[0],
                          core(inputs[:, ahead], is_first[:, ahead], expected)[0],
                          **_TOLERANCE)

  def check_xla_computes_the_same(self, name):
    core, state = _make(name)
    inputs, is_first = _inputs(9, _T, core)

    def gradients(inputs, is_first, state):
      with tf.GradientTape() as tape:
        outputs, next_state = core(inputs, is_first, state)
        loss = tf.reduce_sum(tf.sin(outputs))
      return outputs, next_state, tape.gradient(loss, core.trainable_variables)

    compiled = tf.function(gradients, jit_compile=True, autograph=False)
    self.assert_nests_close(
        compiled(inputs, is_first, state), gradients(inputs, is_first, state),
        atol=1e-4, rtol=1e-4)
    step = tf.function(core.step, jit_compile=True, autograph=False)
    cache = core.cache(state)
    self.assert_nests_close(step(inputs[:, 0], is_first[:, 0], cache),
                            core.step(inputs[:, 0], is_first[:, 0], cache))

  def check_saved_model_round_trip(self, name):
    core, _ = _make(name)
    path = os.path.join(self.get_temp_dir(), name)
    tf.saved_model.save(_Servable(core), path)
    loaded = tf.saved_model.load(path)
    inputs, is_first = _inputs(10, _T, core)
    cache = core.initial_cache(_B)
    expected, _, _ = _steps(core, inputs, is_first, cache)
    loaded_cache = loaded.initial_cache(_B)
    for t in range(_T):
      output, loaded_cache = loaded.step(inputs[:, t], is_first[:, t], loaded_cache)
      self.assertAllClose(output, expected[:, t], **_TOLERANCE)

  def check_keras_round_trip(self, name):
    core, state = _make(name)
    inputs, is_first = _inputs(14, _T, core)
    arguments = inputs, is_first, state
    symbols = tf.nest.map_structure(
        lambda x: tf.keras.Input(x.shape[1:], dtype=x.dtype), arguments)
    model = tf.keras.Model(symbols, core(*symbols))
    path = os.path.join(self.get_temp_dir(), f'{name}.keras')
    model.save(path)
    loaded = tf.keras.models.load_model(path)
    expected = tf.nest.flatten(core(*arguments))
    self.assert_nests_close(tf.nest.flatten(loaded(arguments)), expected, atol=0, rtol=0)
    # The loaded core is a core, which also takes steps, and its variables have the
    # same names.
    other = loaded.get_layer(core.name)
    self.assertEqual(*([keras.variable_name(x) for x in y.variables]
                       for y in (other, core)))
    self.assert_nests_close(
        other.step(inputs[:, 0], is_first[:, 0], other.cache(state)),
        core.step(inputs[:, 0], is_first[:, 0], core.cache(state)))

  def check_checkpoint_round_trip(self, name):
    core, state = _make(name)
    path = tf.train.Checkpoint(core=core).save(os.path.join(self.get_temp_dir(), name))
    other = _CASES[name]()
    inputs, is_first = _inputs(11, _T, core)
    other(inputs, is_first, other.initial_state(_B))
    tf.train.Checkpoint(core=other).restore(path).assert_consumed()
    self.assertLen(tf.train.list_variables(path), len(core.variables) + 2)
    for restored, saved in zip(other.variables, core.variables):
      self.assertAllEqual(restored, saved)
    self.assert_nests_close(
        other(inputs, is_first, state), core(inputs, is_first, state))

  def check_mixed_precision(self, name):
    expected, state = _make(name)
    tf.keras.mixed_precision.set_global_policy('mixed_bfloat16')
    try:
      core, _ = _make(name)
    finally:
      tf.keras.mixed_precision.set_global_policy('float32')
    for mixed, full in zip(core.variables, expected.variables):
      self.assertEqual(mixed.dtype, tf.float32)
      mixed.assign(full)
    inputs, is_first = _inputs(12, _T, core)
    outputs, final = core(inputs, is_first, state)
    self.assertEqual(outputs.dtype, tf.bfloat16)
    tf.nest.map_structure(
        lambda x, y: self.assertEqual(x.dtype, y.dtype), state, final)
    reference, _ = expected(inputs, is_first, state)
    self.assertAllClose(tf.cast(outputs, tf.float32), reference, atol=0.1, rtol=0.1)
    stepped, _, _ = _steps(core, inputs, is_first, core.cache(state))
    self.assertAllClose(
        tf.cast(stepped, tf.float32), reference, atol=0.1, rtol=0.1)


class ConformanceTest(Checks):

  def test_every_core_is_listed(self):
    self.assertEqual({type(make()) for make in _CASES.values()}, set(cores.CORES))

  def test_nested_lists_are_inputs(self):
    core, inputs, is_first = cores.DeepLSTM(1, 4), [[[1., 2.], [3., 4.]]], [[True, False]]
    first, cache = core.step([[1., 2.]], [True], core.initial_cache(1))
    second, _ = core.step([[3., 4.]], [False], cache)
    self.assertAllClose(core(inputs, is_first), tf.stack([first, second], axis=1))

  @parameterized.named_parameters(_ALL)
  @pytest.mark.medium
  def test_shapes(self, name):
    core, state = _make(name)
    inputs, is_first = _inputs(0, _T, core)
    outputs, next_state = core(inputs, is_first, state)
    self.assertEqual(outputs.shape, (_B, _T, core.output_size))
    def same_spec(x, y):
      self.assertEqual((x.shape, x.dtype), (y.shape, y.dtype))
    tf.nest.map_structure(same_spec, next_state, core.initial_state(_B))
    cache = core.initial_cache(_B)
    output, next_cache = core.step(inputs[:, 0], is_first[:, 0], cache)
    self.assertEqual(output.shape, (_B, core.output_size))
    tf.nest.map_structure(same_spec, next_cache, cache)

  @parameterized.named_parameters(_ALL)
  @pytest.mark.medium
  def test_every_variable_has_its_own_name(self, name):
    core = _CASES[name]()
    core.build(tf.TensorShape([None, None, _D]))
    names = [keras.variable_name(variable) for variable in core.variables]
    self.assertLen(set(names), len(names), names)

  @parameterized.named_parameters(_DISTINCT)
  @pytest.mark.long
  def test_a_call_without_a_state_returns_the_outputs_of_one_with_it(self, name):
    core, _ = _make(name)
    inputs, is_first = _inputs(15, _T, core)
    expected, state = core(inputs, is_first, core.initial_state(_B))
    self.assertAllClose(core(inputs, is_first), expected, **_TOLERANCE)
    self.assert_nests_close(core(inputs, is_first, None), (expected, state))
    no_resets, _ = core(inputs, tf.zeros_like(is_first), core.initial_state(_B))
    self.assertAllClose(core(inputs), no_resets, **_TOLERANCE)
    # The last segment may then be incomplete.
    self.assertAllClose(core(inputs[:, :4]), no_resets[:, :4], **_TOLERANCE)

  @parameterized.named_parameters(_DISTINCT)
  @pytest.mark.long
  def test_a_sequential_model_is_built_from_a_core(self, name):
    core, _ = _make(name)
    inputs, _ = _inputs(16, _T)
    model = tf.keras.Sequential([tf.keras.Input([_T, _D]), core])
    self.assertAllClose(model(inputs), core(inputs), **_TOLERANCE)

  @parameterized.named_parameters(_ALL)
  @pytest.mark.medium
  def test_a_state_or_cache_that_does_not_fit_is_refused_in_one_line(self, name):
    core, state = _make(name)
    inputs, is_first = _inputs(17, _T, core)
    cache = core.cache(state)
    pair = inputs, state
    wrong = [(pair, None), (None, pair)]
    if tf.nest.flatten(state):
      more = core.initial_state(_B + 1)
      wrong += [(more, None), (None, core.cache(more))]
    if type(state) is not type(cache):
      wrong += [(cache, None), (None, state)]
    for wrong_state, wrong_cache in wrong:
      with self.assertRaisesRegex(ValueError, (
          rf'\A(state|cache)\S* of (type|shape) .*: expected .*, as from core\.initial_'
          rf'(state\({_B}\)|cache\({_B}\) or core\.cache\(state\))\Z')):
        if wrong_state is not None:
          core(inputs, is_first, wrong_state)
        else:
          core.step(inputs[:, 0], is_first[:, 0], wrong_cache)

  @parameterized.named_parameters(_DISTINCT)
  @pytest.mark.medium
  def test_integers_and_numpys_arrays_are_cast(self, name):
    core, state = _make(name)
    inputs, is_first = (x.numpy() for x in _inputs(18, _T, core))
    inputs = np.round(inputs)
    expected = core(tf.constant(inputs), tf.constant(is_first), state)
    arrays = tf.nest.map_structure(np.array, state)
    for given in (inputs.astype(np.int32), inputs.astype(np.float64)):
      self.assert_nests_close(core(given, is_first.astype(np.float32), arrays), expected)
    cache = core.cache(state)
    self.assert_nests_close(
        core.step(inputs[:, 0].astype(np.int32), is_first[:, 0],
                  tf.nest.map_structure(np.array, cache)),
        core.step(tf.constant(inputs[:, 0]), tf.constant(is_first[:, 0]), cache))

  @parameterized.named_parameters(_WITH_EMPTY_STATE)
  def test_an_unroll_from_the_empty_state_equals_one_from_the_initial(self, name):
    core, _ = _make(name)
    inputs, is_first = _inputs(13, _T, core)
    initial, _ = core(inputs, is_first, core.initial_state(_B))
    empty, _ = core(inputs, is_first, core.empty_state(_B))
    self.assertAllClose(initial, empty, **_TOLERANCE)

  @parameterized.named_parameters(_ALL)
  def test_one_unroll_equals_two_halves(self, name):
    core, state = _make(name)
    inputs, is_first = _inputs(1, 2 * _T, core)
    complete, final = core(inputs, is_first, state)
    first, middle = core(inputs[:, :_T], is_first[:, :_T], state)
    second, last = core(inputs[:, _T:], is_first[:, _T:], middle)
    self.assertAllClose(complete, tf.concat([first, second], axis=1), **_TOLERANCE)
    self.assert_nests_close(final, last)

  @parameterized.named_parameters(_ALL)
  def test_steps_equal_unroll(self, name):
    core, state = _make(name)
    inputs, is_first = _inputs(2, 2 * _T, core)
    unrolled, final = core(inputs, is_first, state)
    stepped, cache, _ = _steps(core, inputs, is_first, core.cache(state))
    self.assertAllClose(unrolled, stepped, **_TOLERANCE)
    # The caches agree too: further steps from either are the same.
    more, more_first = _inputs(3, _T, core)
    stepped, _, _ = _steps(core, more, more_first, cache)
    from_state, _, _ = _steps(core, more, more_first, core.cache(final))
    self.assertAllClose(stepped, from_state, **_TOLERANCE)

  @parameterized.named_parameters(_ALL)
  def test_resets_equal_episodes_run_separately(self, name):
    core, state = _make(name)
    inputs, _ = _inputs(4, _T, core, resets=False)
    start = 3  # Segments of 3 steps start here too.
    is_first = tf.tile([[t == start for t in range(_T)]], [_B, 1])
    together, final = core(inputs, is_first, state)
    no_first = tf.zeros((_B, start), tf.bool)
    if core.segment_length > start:  # The episode starts within a segment: pad.
      pad = tf.zeros((_B, start, _D))
      separate, _ = core(tf.concat([inputs[:, :start], pad], 1),
                         tf.zeros((_B, _T), tf.bool), state)
      self.assertAllClose(together[:, :start], separate[:, :start], **_TOLERANCE)
      return
    before, _ = core(inputs[:, :start], no_first, state)
    after, separate = core(inputs[:, start:], no_first, core.initial_state(_B))
    self.assertAllClose(together, tf.concat([before, after], axis=1), **_TOLERANCE)
    # The states agree where they are valid: further outputs are the same.
    more, more_first = _inputs(5, _T, core, resets=False)
    self.assertAllClose(core(more, more_first, final)[0],
                        core(more, more_first, separate)[0], **_TOLERANCE)

  @parameterized.named_parameters(_WITH_MEMORY)
  @pytest.mark.medium
  def test_an_episode_forgets_states_of_any_size(self, name):
    core, state = _make(name)
    huge = tf.nest.map_structure(
        lambda x: tf.where(x > 0, 1e20, -1e20) if x.dtype.is_floating else x, state)
    inputs, _ = _inputs(6, _T, core)
    begins = tf.tile([[t == 0 for t in range(_T)]], [_B, 1])
    expected, _ = core(inputs, begins, core.initial_state(_B))
    self.assertAllClose(core(inputs, begins, huge)[0], expected, **_TOLERANCE)
    stepped, _, _ = _steps(core, inputs, begins, core.cache(huge))
    self.assertAllClose(stepped, expected, **_TOLERANCE)

  @parameterized.named_parameters(_DISTINCT)
  @pytest.mark.medium
  def test_records_restore_the_state(self, name):
    self.check_records_restore_the_state(name)

  @parameterized.named_parameters(_WITH_MEMORY)
  @pytest.mark.medium
  def test_memory_is_used(self, name):
    core, state = _make(name)
    inputs, is_first = _inputs(7, _T, core, resets=False)
    used, _ = core(inputs, is_first, state)
    fresh, _ = core(inputs, is_first, core.initial_state(_B))
    self.assertGreater(np.abs(used - fresh).max(), 1e-3)

  @parameterized.named_parameters(_ALL)
  @pytest.mark.medium
  def test_gradients_reach_every_variable_and_no_memory(self, name):
    core, state = _make(name)
    inputs, is_first = _inputs(8, _T, core)
    floating = [x for x in tf.nest.flatten(state) if x.dtype.is_floating]
    if isinstance(core, (cores.DeepLSTM, cores.DeepGRU, cores.Mamba)):
      stopped = []  # Gradients flow through these states.
    elif isinstance(core, cores.RATE):  # Gradients flow through memory tokens.
      stopped = [state.hidden]
    elif isinstance(core, cores.MERLIN):
      stopped = [state.memory, state.usage, state.trace]
    else:
      stopped = floating
    with tf.GradientTape() as tape:
      tape.watch(floating)
      outputs, _ = core(inputs, is_first, state)
      loss = tf.reduce_sum(tf.sin(outputs))
    memory_gradients, variable_gradients = tape.gradient(
        loss, (stopped, core.trainable_variables))
    self.assertEqual(memory_gradients, [None] * len(stopped))
    for variable, gradient in zip(core.trainable_variables, variable_gradients):
      self.assertIsNotNone(gradient, variable.name)
      gradient = tf.convert_to_tensor(gradient).numpy()
      self.assertTrue(np.isfinite(gradient).all(), variable.name)
      # The softmax cancels what all scores share.
      if 'key_bias' not in keras.variable_name(variable):
        self.assertGreater(np.abs(gradient).max(), 0, variable.name)

  @parameterized.named_parameters(_DISTINCT)
  @pytest.mark.long
  def test_xla_computes_the_same(self, name):
    self.check_xla_computes_the_same(name)

  @parameterized.named_parameters(_DISTINCT)
  @pytest.mark.long
  def test_saved_model_round_trip(self, name):
    self.check_saved_model_round_trip(name)

  @parameterized.named_parameters(_DISTINCT)
  @pytest.mark.long
  def test_keras_round_trip(self, name):
    self.check_keras_round_trip(name)

  @parameterized.named_parameters(_ALL)
  def test_a_config_makes_an_equal_core(self, name):
    core = _CASES[name]()
    config = json.loads(json.dumps(tf.keras.utils.serialize_keras_object(core)))
    self.assertEqual(config['registered_name'], f'gtrxl_tf>{type(core).__name__}')
    other = tf.keras.utils.deserialize_keras_object(config)
    self.assertIs(type(other), type(core))
    self.assertEqual(other.get_config(), core.get_config())
    constructor = inspect.signature(type(core)).parameters
    self.assertContainsSubset(constructor, core.get_config())

  @parameterized.named_parameters(_DISTINCT)
  @pytest.mark.medium
  def test_checkpoint_round_trip(self, name):
    self.check_checkpoint_round_trip(name)

  @parameterized.named_parameters(_DISTINCT)
  @pytest.mark.long
  def test_mixed_precision(self, name):
    self.check_mixed_precision(name)


class TailTest(Checks):
  """A Transformer-XL's cache, whose windows move when their tails are full."""

  def make(self, memory_length, tail_length=3, **settings):
    with mock.patch.object(transformer_xl, 'TAIL_LENGTH', tail_length):
      core = _xl(memory_length=memory_length, **settings)()
    core.build(tf.TensorShape([None, None, _D]))
    random = np.random.RandomState(7)
    for variable in core.trainable_variables:
      variable.assign_add(0.3 * random.randn(*variable.shape))
    return core

  @parameterized.parameters((1, 3), (3, 3), (4, 3), (8, 3), (8, 1))
  @pytest.mark.medium
  def test_steps_equal_the_unroll_over_several_tails(self, memory_length, tail_length):
    core = self.make(memory_length, tail_length)
    self.assertEqual(core.initial_cache(1).tail_keys[0].shape[2],
                     min(memory_length, tail_length))
    first, no = _inputs(0, memory_length + 1, resets=False)
    _, state = core(first, no, core.initial_state(_B))
    inputs, is_first = _inputs(1, 4 * tail_length + 2)
    unrolled, _ = core(inputs, is_first, state)
    stepped, _, _ = _steps(core, inputs, is_first, core.cache(state))
    self.assertAllClose(stepped, unrolled, **_TOLERANCE)

  @pytest.mark.medium
  def test_an_odd_width_has_positions_too(self):
    core = self.make(4, model_dim=7)
    inputs, is_first = _inputs(1, 11)
    unrolled, _ = core(inputs, is_first, core.initial_state(_B))
    stepped, _, _ = _steps(core, inputs, is_first, core.initial_cache(_B))
    self.assertAllClose(stepped, unrolled, **_TOLERANCE)

  @parameterized.parameters(2, 3, 7)
  @pytest.mark.medium
  def test_rows_of_different_age_equal_each_alone(self, memory_length):
    core = self.make(memory_length)
    ages = (1, 5, 9)
    inputs, is_first = _inputs(2, max(ages) + 8)
    caches, expected = [], []
    for row, age in enumerate(ages):
      row = slice(row, row + 1)
      _, cache, _ = _steps(
          core, inputs[row, :age], is_first[row, :age], core.initial_cache(1))
      caches.append(cache)
      outputs, _, _ = _steps(
          core, inputs[row, age:age + 8], is_first[row, age:age + 8], cache)
      expected.append(outputs)
    cache = tf.nest.map_structure(lambda *x: tf.concat(x, axis=0), *caches)
    if memory_length > 2:  # The tail has more than one place.
      self.assertGreater(len(np.unique(cache.count)), 1)
    def ahead(x):
      return tf.stack([x[i, a:a + 8] for i, a in enumerate(ages)])
    outputs, _, _ = _steps(core, ahead(inputs), ahead(is_first), cache)
    self.assertAllClose(outputs, tf.concat(expected, axis=0), **_TOLERANCE)

  @pytest.mark.medium
  def test_a_compiled_step_computes_the_same_and_leaves_the_window(self):
    core = self.make(7)
    inputs, is_first = _inputs(3, 8)
    _, cache, _ = _steps(core, inputs, is_first, core.initial_cache(_B))
    window = []  # For each tensor of the cache, whether a step returns it as it was.

    @tf.function(jit_compile=True, autograph=False)
    def step(inputs, is_first, cache):
      outputs, new = core.step(inputs, is_first, cache, move=False)
      window[:] = [x is y for x, y in zip(*map(tf.nest.flatten, (cache, new)))]
      return outputs, new

    moves = 0
    for t in range(8):
      expected = core.step(inputs[:, t], is_first[:, t], cache)
      outputs, unmoved = step(inputs[:, t], is_first[:, t], cache)
      self.assertTrue(all(tf.nest.flatten(
          tf.nest.pack_sequence_as(cache, window).keys)))
      self.assert_nests_close((outputs, core.move(unmoved)), expected)
      moved = bool(core.must_move(unmoved))
      self.assertEqual(moved, bool(tf.reduce_all(expected[1].count == 0)))
      moves += moved
      cache = expected[1]
    self.assertBetween(moves, 2, 3)


class ReachTest(tf.test.TestCase, parameterized.TestCase):

  def test_a_step_sees_itself_and_memory_length_steps_before_it(self):
    core = cores.TransformerXL(1, 8, 2, 4, memory_length=3)
    inputs, _ = _inputs(0, 8)
    is_first = tf.zeros((_B, 8), tf.bool)
    with tf.GradientTape() as tape:
      tape.watch(inputs)
      outputs, _ = core(inputs, is_first, core.initial_state(_B))
      last = tf.reduce_sum(tf.sin(outputs[:, -1]))
    seen = tf.reduce_any(tape.gradient(last, inputs) != 0, axis=[0, 2])
    self.assertAllEqual(seen, [False] * 4 + [True] * 4)

  @pytest.mark.medium
  def test_same_layer_memory_reaches_back_without_bound(self):
    inputs, is_first = _inputs(0, 24, resets=False)
    for recurrence, reaches in (('xl', False), ('same_layer', True)):
      core = cores.SegmentTransformer(2, 8, 2, 4, 8, segment_length=2,
                                      recurrence=recurrence, memory_length=2)
      outputs, _ = core(inputs, is_first, core.initial_state(_B))
      other = tf.concat([inputs[:, :1] + 1, inputs[:, 1:]], axis=1)
      changed, _ = core(other, is_first, core.initial_state(_B))
      self.assertEqual(
          bool(tf.reduce_any(outputs[:, -1] != changed[:, -1])), reaches)

  @parameterized.parameters(
      lambda: cores.SegmentTransformer(1, 8, 2, 4, 8, segment_length=4),
      lambda: cores.RATE(1, 8, num_heads=2, head_dim=4, segment_length=4))
  def test_unroll_must_be_complete_segments(self, make):
    core = make()
    inputs, is_first = _inputs(0, 6)
    with self.assertRaisesRegex(ValueError, '^inputs have 6 steps'):
      core(inputs, is_first, core.initial_state(_B))

  def test_the_defaults_take_short_sequences(self):
    inputs = tf.zeros([1, 6, 4])
    for make in (cores.RATE, cores.SegmentTransformer):
      core = make(num_layers=1)
      self.assertGreater(core.segment_length, 6)
      self.assertEqual(core(inputs).shape, (1, 6, core.output_size))


class ShapesTest(parameterized.TestCase, tf.test.TestCase):

  @parameterized.parameters(
      (lambda x, _: x, r'WrongCore._unroll returned .*: expected a pair of outputs and'),
      (lambda x, state: (x[:, -1], state),
       rf"outputs of WrongCore._unroll of shape \({_B}, {_D}\): expected \[B, T, D'\]"),
      (lambda x, state: (x[..., :2], state),
       rf"outputs of WrongCore._unroll of shape .*expected .* with B = {_B}, T = 8, D = {_D}"))
  def test_an_error_names_the_method_that_returned_something_else(self, wrong, error):
    class WrongCore(cores.Memoryless):
      def _unroll(self, inputs, is_first, state, training=None):
        return wrong(inputs, state)

    core = WrongCore(1, _D)
    inputs, is_first = _inputs(0, 8)
    with self.assertRaisesRegex(ValueError, error):
      core(inputs, is_first, core.initial_state(_B))

  @parameterized.parameters(
      (lambda x, _: (x, (x,)), "_step's cache of .*: expected .*core.initial_cache"),
      (lambda x, cache: (x, cache[:, 1:]), "_step's cache of shape .*: expected .*8, 4"),
      (lambda x, cache: (x, tf.cast(cache, tf.float64)),
       "_step's cache of type float64: expected float32"))
  def test_an_error_names_what_does_not_fit_the_next_step(self, wrong, error):
    class WrongCore(cores.Core):
      output_size = _D

      def initial_state(self, batch_size):
        return tf.zeros([batch_size, 8, 4])

      def _unroll(self, inputs, is_first, state, training=None):
        return inputs, state

      def _step(self, inputs, is_first, cache):
        return wrong(inputs, cache)

    core = WrongCore()
    with self.assertRaisesRegex(ValueError, error):
      core.step(tf.zeros([_B, _D]), tf.zeros([_B], tf.bool), core.initial_cache(_B))

  def test_a_state_of_another_batch_size_is_refused(self):
    class WrongCore(cores.Memoryless):
      def initial_state(self, batch_size):
        return tf.zeros([8, 4])

    with self.assertRaisesRegex(
        ValueError, r'WrongCore.initial_state\(1\) has a tensor of shape \(8, 4\)'):
      WrongCore(1, _D)(*_inputs(0, 8), None)

  def test_a_build_that_does_not_call_its_base_runs_once(self):
    class ScaleCore(cores.Memoryless):
      def build(self, input_shape):
        self.scale = self.add_weight('scale', (input_shape[-1],))

      def _unroll(self, inputs, is_first, state, training=None):
        return self.scale * inputs, state

      def _step(self, inputs, is_first, cache):
        return self.scale * inputs, cache

    core = ScaleCore(1, _D)
    inputs, is_first = _inputs(0, 8)
    for _ in range(2):
      core.step(inputs[:, 0], is_first[:, 0], core.initial_cache(_B))
    core(inputs, is_first)
    self.assertLen(core.variables, 1)

  def test_a_state_may_be_made_of_arrays(self):
    class ArrayCore(cores.Memoryless):
      def initial_state(self, batch_size):
        return np.zeros([batch_size, 4], np.float32)

    self.assertEqual(ArrayCore(1, _D)(*_inputs(0, 8), None)[0].shape, (_B, 8, _D))

  def test_a_mask_of_keras_reaches_what_follows(self):
    model = tf.keras.Sequential([
        tf.keras.layers.Embedding(5, _D, mask_zero=True), cores.DeepLSTM(1, _D),
        tf.keras.layers.Dense(1)])
    ids = tf.constant([[1, 2, 0, 0]])
    self.assertAllEqual(model(ids)._keras_mask, ids > 0)

  @pytest.mark.medium
  @parameterized.parameters('gtrxl_highway', 'rate')
  @pytest.mark.medium
  def test_what_keras_masks_is_skipped(self, name):
    inputs, _ = _inputs(0, 6)
    steps = tf.constant([[3, 4, 5], [0, 2, 5], [0, 1, 2]])  # Those that are not padding.
    is_real = tf.reduce_any(steps[..., tf.newaxis] == tf.range(6), axis=1)
    core, _ = _make(name)
    outputs = tf.keras.Sequential([tf.keras.layers.Masking(9.), core])(
        tf.where(is_real[..., tf.newaxis], inputs, 9.))
    self.assertAllClose(tf.gather(outputs, steps, batch_dims=1),
                        core(tf.gather(inputs, steps, batch_dims=1)), **_TOLERANCE)

  def test_an_error_names_the_argument_of_another_shape(self):
    core = cores.TransformerXL(1, 8, 2, 4, memory_length=3)
    inputs, is_first = _inputs(0, 8)
    state = core.initial_state(_B)
    with self.assertRaisesRegex(ValueError, r'no variables yet.*build\(\[None, None, D'):
      core.initial_cache(_B)
    core.build([None, None, _D])
    for arguments, error in (
        ((inputs[:, 0], is_first, state),
         rf'inputs of shape \({_B}, {_D}\): expected \[B, T, D\] with D = {_D}$'),
        ((inputs, is_first[:, :3], state),
         rf'is_first of shape .*: expected .*, as inputs with B = {_B}, T = 8$'),
        ((inputs, state, is_first), r'is_first of type XLState: expected \[B, T\]'),
        ((inputs, {'memory': inputs}), r'is_first of type dict: expected \[B, T\]'),
        (([inputs, None, state],), r'^inputs of type list: expected \[B, T, D\]'),
        (([inputs, is_first],), r'^inputs of type list: expected \[B, T, D\]'),
        ((inputs, is_first, core.initial_state(1)),
         rf'state.memory of shape \(1, 3, 1, 8\): expected \({_B}, 3, 1, 8\), as from '),
        ((inputs[:, :, :2],),
         rf'inputs of shape \({_B}, 8, 2\): expected \[B, T, D\] with D = {_D}$'),
        ((inputs, [[True], [True, False]], None), r'^is_first is a ragged list: expec'),
        ((inputs, [False] * 8, None), rf'is_first of shape \(8,\): .* B = {_B}, T = 8$'),
        ((inputs[:, :0],), '^inputs have 0 steps: expected at least one$')):
      with self.assertRaisesRegex(ValueError, error):
        core(*arguments)
    cache = core.initial_cache(_B)
    with self.assertRaisesRegex(ValueError, 'inputs of shape '):
      core.step(inputs, is_first, cache)
    with self.assertRaisesRegex(ValueError, rf'is_first .* as inputs with B = {_B}$'):
      core.step(inputs[:, 0], is_first, cache)
    for flags, shape in (True, ''), ([True] * (_B + 1), f'{_B + 1},'):
      with self.assertRaisesRegex(ValueError, rf'is_first of shape \({shape}\): .*{_B}$'):
        core.step(inputs[:, 0], flags, cache)
    core.step(inputs[:, 0], [True] * _B, cache)
    with self.assertRaisesRegex(ValueError, rf'expected \[B, D\] with D = {_D}$'):
      core.step(inputs[:, 0, :2], is_first[:, 0], cache)
    other = cores.TransformerXL(1, 16, 2, 4, memory_length=3)
    other.build([None, None, _D])
    with self.assertRaisesRegex(ValueError, 'cache.record of shape .*, 16.'):
      core.step(inputs[:, 0], is_first[:, 0], other.initial_cache(_B))

  def test_what_a_functional_model_cannot_hold_is_refused_in_one_line(self):
    core = cores.TransformerXL(1, 8, 2, 4, memory_length=3)
    symbol = tf.keras.Input([_T, _D])
    for arguments, error in (
        ((symbol, None, core.initial_state(_B)), '^state is a constant .* of the model$'),
        ((symbol, tf.zeros([_B, _T], tf.bool)), '^is_first is a constant .* the model$'),
        ((tf.keras.Input([None, _D]),), '^inputs have an unknown number of steps T: .*')):
      with self.assertRaisesRegex(ValueError, error):
        core(*arguments)
    for core in (cores.DeepLSTM(1, 7), cores.Memoryless(1, 7)):
      self.assertEqual(tuple(core(tf.keras.Input([None, _D])).shape), (None, None, 7))


if __name__ == '__main__':
  tf.test.main()
