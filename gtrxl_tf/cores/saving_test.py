"""Tests of saving.py: Keras saves and loads models that have layers of this package."""

import os

from absl.testing import parameterized
import gin
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.cores import keras
from gtrxl_tf.cores import retention
from gtrxl_tf.cores import saving
from gtrxl_tf.cores import xl_block
from gtrxl_tf.settings import config

_B, _T, _D = 2, 4, 6

_LAYERS = {
    **{f'gate_{name}': lambda gate=gate: gate(0.5) for name, gate in cores.GATES.items()},
    **{f'retention_{name}': lambda valve=valve: valve(2, 'leaky_relu')
       for name, valve in retention.RETENTION.items()},
    'attention': lambda: cores.RelativeMultiHeadAttention(2, 3, use_bias=True),
    'block': lambda: xl_block.make_blocks(1, 2, 3, 5, 'gtrxl', 'highway', 1.0)[0],
}


def _gtrxl(**settings):
  return cores.TransformerXL(**{**dict(
      num_layers=1, model_dim=8, num_heads=2, head_dim=4, memory_length=4), **settings})


def _functional(core):
  """A functional model from observations, flags and state to outputs and state."""
  symbols = (tf.keras.Input([_T, _D]), tf.keras.Input([_T], dtype=tf.bool),
             tf.nest.map_structure(lambda x: tf.keras.Input(x.shape[1:], dtype=x.dtype),
                                   core.initial_state(1)))
  embedded = tf.keras.layers.Dense(5)(symbols[0])
  outputs, state = core(embedded, *symbols[1:])
  return tf.keras.Model(symbols, (tf.keras.layers.Dense(3)(outputs), state))


@tf.keras.utils.register_keras_serializable('saving_test')
class _Subclassed(tf.keras.Model):
  """A model as in the README, with the methods that Keras needs to save a subclass."""

  def __init__(self, core, **kwargs):
    super().__init__(**kwargs)
    self.core = core
    self.head = tf.keras.layers.Dense(3)

  def build(self, input_shape):
    if not self.core.built:  # Keras 3 has built a core that it loads.
      self.core.build(input_shape)
    self.head.build([*input_shape[:-1], self.core.output_size])
    self.built = True

  def call(self, inputs, is_first, state):
    outputs, state = self.core(inputs, is_first, state)
    return self.head(outputs), state

  def get_config(self):
    core = tf.keras.utils.serialize_keras_object(self.core)
    return {**super().get_config(), 'core': core}

  @classmethod
  def from_config(cls, config):
    return cls(tf.keras.utils.deserialize_keras_object(config.pop('core')), **config)


@config.configurable
class HolderOfACore:

  def __init__(self, core=None):
    self.core = core


@tf.keras.utils.register_keras_serializable('saving_test')
class _Doubled(cores.DeepLSTM):
  """A user's own core."""

  def __init__(self, factor, *, extra=1, **shared):
    super().__init__(num_layers=1, **shared)
    self.factor = factor
    self.extra = extra


def _data():
  random = np.random.RandomState(0)
  return (tf.constant(random.randn(_B, _T, _D), tf.float32),
          tf.constant(random.rand(_B, _T) < 0.3))


class SavingTest(tf.test.TestCase, parameterized.TestCase):

  def path(self, name):
    return os.path.join(self.create_tempdir().full_path, name)

  def assert_same(self, a, b):
    a, b = tf.nest.flatten(a), tf.nest.flatten(b)
    self.assertLen(a, len(b))
    for x, y in zip(a, b):
      self.assertAllEqual(x, y)

  @parameterized.named_parameters(*((name, name) for name in _LAYERS))
  def test_a_config_makes_an_equal_layer(self, name):
    layer = _LAYERS[name]()
    layer.build(tf.TensorShape([_B, _T, _D]))
    saved = tf.keras.utils.serialize_keras_object(layer)
    other = tf.keras.utils.deserialize_keras_object(saved)
    self.assertIs(type(other), type(layer))
    self.assertEqual(other.get_config(), layer.get_config())
    self.assertEqual(
        [(x.shape, x.dtype) for x in other.variables],
        [(x.shape, x.dtype) for x in layer.variables])

  @parameterized.named_parameters(
      ('gtrxl', _gtrxl),
      ('lstm', lambda: cores.DeepLSTM(1, 7)),
      ('memoryless', lambda: cores.Memoryless(1, 7)))
  @pytest.mark.medium
  def test_a_functional_model_is_saved_and_loaded(self, make):
    core = make()
    model = _functional(core)
    inputs, is_first = _data()
    outputs, state = model((inputs, is_first, core.initial_state(_B)))
    path = self.path('model.keras')
    model.save(path)
    loaded = tf.keras.models.load_model(path)
    self.assert_same(
        loaded((inputs, is_first, core.initial_state(_B))), (outputs, state))
    # The loaded model's outputs can be its next inputs.
    _, loaded_state = loaded((inputs, is_first, core.initial_state(_B)))
    self.assert_same(loaded((inputs, is_first, loaded_state)),
                     model((inputs, is_first, state)))
    weights = self.path('model.weights.h5')
    model.save_weights(weights)
    other = _functional(make())
    other.load_weights(weights)
    self.assert_same(other((inputs, is_first, state)), model((inputs, is_first, state)))

  @parameterized.named_parameters(
      ('gtrxl', _gtrxl),
      ('segments', lambda: cores.SegmentTransformer(1, 8, 2, 4, 8)),
      ('memoryless', lambda: cores.Memoryless(1, 7)))
  @pytest.mark.long
  def test_a_sequential_model_is_saved_and_loaded(self, make):
    inputs, _ = _data()
    before, after = self.path('before.keras'), self.path('after.keras')
    model = tf.keras.Sequential([make(), tf.keras.layers.Dense(3)])
    model.save(before)  # Without variables.
    self.assertEqual(tf.keras.models.load_model(before)(inputs).shape, (_B, _T, 3))
    model.compile('adam', 'mse')
    model.fit(inputs, tf.zeros([_B, _T, 3]), verbose=0)
    model.save(after)
    loaded = tf.keras.models.load_model(after)
    self.assert_same(loaded(inputs), model(inputs))

  @pytest.mark.medium
  def test_a_functional_model_begins_with_the_initial_state(self):
    core = _gtrxl()
    inputs, is_first = _data()
    symbols = tf.keras.Input([_T, _D]), tf.keras.Input([_T], dtype=tf.bool)
    path = self.path('model.keras')
    tf.keras.Model(symbols, core(*symbols, None)).save(path)
    loaded = tf.keras.models.load_model(path)
    self.assert_same(loaded((inputs, is_first)), core(inputs, is_first, None))

  @pytest.mark.medium
  def test_a_functional_model_trains_after_loading(self):
    core = _gtrxl()
    path = self.path('model.keras')
    _functional(core).save(path)
    model = tf.keras.models.load_model(path)
    inputs, is_first = _data()
    with tf.GradientTape() as tape:
      outputs, _ = model((inputs, is_first, core.initial_state(_B)), training=True)
      loss = tf.reduce_sum(tf.square(outputs))
    for gradient in tape.gradient(loss, model.trainable_variables):
      self.assertIsNotNone(gradient)

  def test_a_subclassed_model_is_saved_and_loaded(self):
    model = _Subclassed(_gtrxl())
    inputs, is_first = _data()
    state = model.core.initial_state(_B)
    expected = model(inputs, is_first, state)
    path = self.path('model.keras')
    model.save(path)
    self.assert_same(tf.keras.models.load_model(path)(inputs, is_first, state), expected)

  def test_what_gin_sets_is_saved(self):
    self.addCleanup(gin.clear_config)
    config.parse([], ['TransformerXL.model_dim = 12', 'TransformerXL.num_layers = 2',
                      'DeepLSTM.hidden_dim = 5'])
    core = cores.TransformerXL(memory_length=3)
    saved = core.get_config()
    self.assertEqual((saved['model_dim'], saved['num_layers']), (12, 2))
    gin.clear_config()
    config.parse([], ['TransformerXL.model_dim = 20', 'TransformerXL.gate = "input"'])
    self.assertEqual(cores.TransformerXL.from_config(saved).get_config(), saved)

  def test_a_scope_of_gin_changes_no_registered_class(self):
    self.addCleanup(gin.clear_config)
    config.parse([], ['large/DeepLSTM.hidden_dim = 5',
                      'HolderOfACore.core = @large/DeepLSTM()'])
    core = HolderOfACore().core
    self.assertEqual(core.get_config()['hidden_dim'], 5)
    self.assertIs(type(core), cores.DeepLSTM)
    self.assertIs(
        tf.keras.utils.get_registered_object('gtrxl_tf>DeepLSTM'), cores.DeepLSTM)

  def test_a_users_core_records_its_own_arguments(self):
    core = _Doubled(2, hidden_dim=7, name='mine')
    saved = core.get_config()
    del saved['dtype']  # Keras 2 and 3 write it differently.
    self.assertEqual(saved, {
        'name': 'mine', 'trainable': True, 'factor': 2, 'extra': 1, 'hidden_dim': 7})
    other = _Doubled.from_config(core.get_config())
    self.assertEqual(other.get_config(), core.get_config())

  @pytest.mark.medium
  def test_a_config_keeps_the_policy_and_what_is_frozen(self):
    tf.keras.mixed_precision.set_global_policy('mixed_bfloat16')
    try:
      core = _gtrxl()
      model = _functional(core)
    finally:
      tf.keras.mixed_precision.set_global_policy('float32')
    core.trainable = False
    inputs, is_first = _data()
    state = core.initial_state(_B)
    expected = model((inputs, is_first, state))
    path = self.path('model.keras')
    model.save(path)
    loaded = tf.keras.models.load_model(path)
    self.assert_same(loaded((inputs, is_first, state)), expected)
    other = loaded.get_layer(core.name)
    self.assertEmpty(other.trainable_variables)
    for layer in other.submodules:
      if isinstance(layer, tf.keras.layers.Layer) and layer.weights:
        self.assertEqual(layer.dtype_policy.name, 'mixed_bfloat16', layer.name)
    self.assertEqual(tf.keras.mixed_precision.global_policy().name, 'float32')

  @parameterized.parameters(
      lambda: cores.RATE(1, 8, num_heads=2, head_dim=4, segment_length=3),
      lambda: cores.RATE(1, 6, num_heads=2, head_dim=4, segment_length=3,
                         retention='lstm'),
      lambda: cores.SegmentTransformer(1, 8, num_heads=2, head_dim=4),
      lambda: cores.Mamba(1, 8), lambda: cores.MambaDM(1, 8),
      lambda: cores.DeepLSTM(1, 8), lambda: cores.MERLIN(2, 3, num_layers=1), _gtrxl)
  @pytest.mark.medium
  def test_a_core_keeps_the_policy_with_which_it_was_made(self, make):
    with saving.global_policy('mixed_bfloat16'):
      core = make()
    core(tf.ones([_B, _T, _D]))
    for layer in core.submodules:
      if isinstance(layer, tf.keras.layers.Layer) and layer.weights:
        self.assertEqual(layer.dtype_policy.name, 'mixed_bfloat16', layer.name)

  @parameterized.parameters('model.keras', 'model.h5', 'model')
  @pytest.mark.long
  def test_the_policy_of_a_saved_model_is_not_that_of_the_program(self, name):
    if keras.IS_3 and name != 'model.keras':
      self.skipTest('Keras 3 saves models in one format.')
    with saving.global_policy('mixed_bfloat16'):
      model = tf.keras.Sequential([
          tf.keras.Input([_T, _D]),
          cores.RATE(1, 8, num_heads=2, head_dim=4, segment_length=2)])
    inputs, path = tf.ones([_B, _T, _D]), self.path(name)
    model.save(path)
    loaded = tf.keras.models.load_model(path)
    self.assert_same(loaded(inputs), model(inputs))
    self.assertEqual(tf.keras.models.clone_model(loaded)(inputs).dtype, tf.bfloat16)

  def test_arguments_are_not_in_checkpoints(self):
    gate = cores.GATES['gru'](1.0)
    gate.build(tf.TensorShape([1, 3]))
    names = [name for name, _ in tf.train.list_variables(
        tf.train.Checkpoint(gate=gate).save(self.path('gate')))]
    self.assertFalse([name for name in names if 'arguments' in name])
    self.assertIsInstance(gate, saving.SavableLayer)


if __name__ == '__main__':
  tf.test.main()
