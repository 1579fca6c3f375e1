"""Tests of spec_torso.py."""

import copy
import functools

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import gin
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import spec_torso
from gtrxl_tf.networks import tensor_specs
from gtrxl_tf.networks import torsos
from gtrxl_tf.settings import config

_IMAGE = functools.partial(torsos.PixelTorso, (2,), 4)
_FEATURES = functools.partial(torsos.VectorTorso, ())  # Concatenates only.
_MIXED = {
    'camera': specs.BoundedArray((8, 8, 3), np.uint8, 0, 255),
    'cards': specs.BoundedArray((2,), np.int64, [1, 0], [3, 1]),
    'depth': specs.Array((8, 8, 1), np.float32),
    'open': specs.Array((), bool),
    'place': specs.DiscreteArray(500),
    'speed': specs.Array((2,), np.float32),
}


def _mixed_observation(*leading):
  random = np.random.RandomState(0)
  return tf.nest.map_structure(tf.constant, {
      'camera': random.randint(256, size=(*leading, 8, 8, 3)).astype(np.uint8),
      'cards': random.randint([1, 0], [4, 2], size=(*leading, 2)),
      'depth': random.rand(*leading, 8, 8, 1).astype(np.float32),
      'open': random.rand(*leading) > 0.5,
      'place': random.randint(500, size=leading).astype(np.int32),
      'speed': random.randn(*leading, 2).astype(np.float32)})


def _mixed_torso(**settings):
  return spec_torso.SpecTorso(
      _MIXED, functools.partial(torsos.VectorTorso, (6,)), _IMAGE, units=5,
      embedding_dim=3, **settings)


class SpecTorsoTest(tf.test.TestCase, parameterized.TestCase):

  def features(self, spec, x, **settings):
    """The inputs that the layers of a vector torso get from one array, of two steps."""
    torso = spec_torso.SpecTorso(spec, _FEATURES, _IMAGE, **settings)
    return torso(tf.constant(x), 1)

  @parameterized.parameters(
      (specs.DiscreteArray(3), [2, 0], [[0, 0, 1], [1, 0, 0]]),
      (specs.BoundedArray((2,), np.int64, [1, -1], [3, 0]), [[3, -1], [1, 0]],
       [[0, 0, 1, 1, 0], [1, 0, 0, 0, 1]]),
      (specs.BoundedArray((1, 2), np.uint8, 0, 2), [[[2, 1]], [[0, 0]]],
       [[0, 0, 1, 0, 1, 0], [1, 0, 0, 1, 0, 0]]),
      (specs.BoundedArray((3,), np.int8, 0, 1), [[1, 0, 1], [0, 0, 1]],
       [[1, 0, 1], [0, 0, 1]]),
      (specs.BoundedArray((), np.int32, 5, 6), [6, 5], [[1], [0]]),
      (specs.DiscreteArray(2), [1, 0], [[0, 1], [1, 0]]),
      (specs.Array((2,), bool), [[True, False], [False, True]], [[1, 0], [0, 1]]),
      (specs.Array((), np.int32), [7, -3], [[7], [-3]]),
      (specs.BoundedArray((), np.int64, -2 ** 63, 2 ** 63 - 1), [7, -3], [[7], [-3]]),
      (specs.BoundedArray((), np.int32, 0, 10 ** 6), [250_000, 0], [[0.25], [0]]),
      (specs.BoundedArray((84, 84), np.uint8, 0, 255), np.full((2, 84, 84), 51),
       np.full((2, 84 * 84), 0.2)),
      (specs.BoundedArray((), np.int64, 10 ** 9, 10 ** 9 + 10 ** 6),
       [10 ** 9, 10 ** 9 + 5], [[0], [5e-6]]),
      (specs.BoundedArray((2,), np.int16, -2 ** 15, 2 ** 15 - 1),
       [[-2 ** 15, 2 ** 15 - 1], [0, -1]], [[-1, 1], [1 / 65535, -1 / 65535]]),
      (specs.Array((2, 1), np.float64), [[[0.5], [2]], [[1], [3]]], [[0.5, 2], [1, 3]]),
      (specs.BoundedArray((4,), np.float32, [0, 950, -4, -np.inf], [2e6, 1050, 8, 1]),
       [[2e6, 950, -4, 7], [500_000, 1000, 2, 0]], [[1, 0, -4, 7], [0.25, 0.5, 2, 0]]))
  def test_features_of_one_array(self, spec, x, expected):
    self.assertAllClose(self.features(spec, np.asarray(x, spec.dtype)), expected)

  def test_bounds_within_30_leave_floats_as_they_are(self):
    x = np.float32([[-28, 0.3], [1e-30, 1]])
    self.assertAllEqual(self.features(specs.BoundedArray((2,), np.float32, -30, 30), x), x)

  def test_images_of_floats_are_scaled_and_bytes_are_not(self):
    pixels = np.full([1, 8, 8, 3], 51)
    found = []
    for spec in (specs.BoundedArray((8, 8, 3), np.float32, 0, 255),
                 specs.BoundedArray((8, 8, 3), np.uint8, 0, 255)):
      tf.keras.utils.set_random_seed(1)
      found.append(self.features(spec, pixels.astype(spec.dtype)))
    self.assertAllClose(*found)

  def test_integers_of_many_values_have_their_own_rows(self):
    spec = specs.BoundedArray((2,), np.int32, [0, 10], [99, 79])
    torso = spec_torso.SpecTorso(spec, _FEATURES, embedding_dim=3)
    found = torso(tf.constant([[4, 10], [99, 79], [0, 500]]), 1)
    [table] = torso.trainable_variables
    self.assertEqual(table.shape, [170, 3])
    self.assertAllEqual(found, tf.reshape(
        tf.gather(table, [[4, 100], [99, 169], [0, 169]]), [3, 6]))
    self.assertAllClose(np.linalg.norm(table, axis=1).mean(), 1, atol=0.15)

  @parameterized.parameters(64, 65)
  def test_the_number_of_values_decides(self, num_values):
    torso = spec_torso.SpecTorso(specs.DiscreteArray(num_values), _FEATURES)
    width = {64: 64, 65: 32}[num_values]  # One-hot vectors, or rows of a table.
    self.assertEqual(torso(tf.constant([3]), 1).shape, [1, width])

  @parameterized.parameters(
      (specs.Array((5, 4, 2), np.uint8), True),
      (specs.BoundedArray((5, 4, 2), np.uint8, 0, 255), True),
      (specs.BoundedArray((5, 4, 2), np.uint8, 0, 10), False),
      (specs.Array((8, 9, 3), np.float32), True),
      (specs.Array((8, 9, 2), np.float32), False),
      (specs.Array((32, 33, 12), np.float32), True),
      (specs.Array((31, 33, 12), np.float32), False),
      (specs.Array((7, 9, 3), np.float32), False),
      (specs.Array((9, 9), np.float32), False),
      (specs.Array((9, 9, 3), np.int32), False))
  def test_which_arrays_are_images(self, spec, is_image):
    torso = spec_torso.SpecTorso(spec, _FEATURES, _IMAGE)
    outputs = torso(tensor_specs.zeros(spec, [2]), 1)
    convolutions = [x for x in torso.submodules if isinstance(x, torsos.PixelTorso)]
    self.assertLen(convolutions, is_image)
    if is_image:
      self.assertEqual(outputs.shape, [2, 4])

  @parameterized.parameters(
      (specs.Array((5,), np.float32),),
      ({'b': specs.Array((), np.float32),
        'a': specs.BoundedArray((2, 2), np.float32, 0, 1)},))
  @pytest.mark.medium
  def test_floats_are_embedded_as_by_a_vector_torso_bit_for_bit(self, spec):
    def outputs(torso):
      tf.keras.utils.set_random_seed(3)
      network = actor_critic.ActorCritic(
          specs.DiscreteArray(3), torso(), cores.DeepLSTM(1, 4), head_units=4)
      network.create_variables(spec)
      random = np.random.RandomState(0)
      inputs = actor_critic.NetworkInputs(
          tf.nest.map_structure(
              lambda x: tf.constant(random.randn(2, 3, *x.shape), tf.float32), spec),
          tf.zeros([2, 3], tf.int32), tf.ones([2, 3]), tf.zeros([2, 3], tf.bool))
      with tf.GradientTape() as tape:
        found, _ = network(inputs, network.initial_state(2))
        loss = tf.reduce_sum(found.value ** 2) + tf.reduce_sum(found.policy.logits)
      return (network.variables, found.policy.logits, found.value,
              tape.gradient(loss, network.trainable_variables))
    tf.nest.map_structure(
        self.assertAllEqual, outputs(torsos.VectorTorso), outputs(lambda: None))

  def test_the_settings_of_a_vector_torso_apply_to_the_default_too(self):
    self.addCleanup(gin.clear_config)
    config.parse([], ['VectorTorso.units = (7,)'])
    torso = spec_torso.SpecTorso(specs.DiscreteArray(3))
    self.assertEqual(torso(tf.constant([1]), 1).shape, [1, 7])

  def test_mixed_observations(self):
    torso = _mixed_torso()
    observation = _mixed_observation(2, 3)
    with tf.GradientTape() as tape:
      outputs = torso(observation, 2)
      loss = tf.reduce_sum(tf.square(outputs))
    self.assertEqual(outputs.shape, [2, 3, 5])
    for variable, gradient in zip(
        torso.trainable_variables, tape.gradient(loss, torso.trainable_variables)):
      self.assertIsNotNone(gradient, variable.name)
      self.assertGreater(np.abs(tf.convert_to_tensor(gradient)).max(), 0, variable.name)
    names = [variable.name for variable in torso.variables]
    self.assertLen(names, 2 + 1 + 2 * 12 + 2)  # Vectors, a table, two images, the join.
    flat = tf.nest.map_structure(
        lambda x: tf.reshape(x, [6, *x.shape[2:]]), observation)
    self.assertAllClose(torso(flat, 1), tf.reshape(outputs, [6, 5]), atol=1e-6)
    compiled = tf.function(lambda x: torso(x, 2), autograph=False, jit_compile=True)
    self.assertAllClose(compiled(observation), outputs, atol=1e-5)

  def test_every_part_of_a_mixed_observation_is_seen(self):
    torso = _mixed_torso()
    for variable in torso.variables:
      variable.assign(np.random.RandomState(1).randn(*variable.shape))
    observation = _mixed_observation(20)
    outputs = torso(observation, 1)
    for name in _MIXED:
      changed = {**observation, name: tf.reverse(observation[name], [0])}
      self.assertNotAllClose(torso(changed, 1), outputs, msg=name)

  def test_a_copy_has_its_own_variables(self):
    torso = _mixed_torso()
    observation = _mixed_observation(2)
    outputs = torso(observation, 1)
    copied = copy.deepcopy(torso)
    for variable in copied.variables:
      variable.assign(tf.zeros_like(variable))
    self.assertAllEqual(torso(observation, 1), outputs)
    self.assertAllEqual(copied(observation, 1), tf.zeros([2, 5]))

  @parameterized.parameters(
      ({'a': specs.StringArray(())}, r"observation_spec\['a'\] = StringArray.*numbers"),
      (specs.Array((2,), np.complex64), 'observation_spec = .*an array of numbers'),
      ({}, 'observation_spec = {}: expected at least one number'),
      (specs.Array((0,), np.float32), 'observation_spec = .*at least one number'))
  def test_refuses_what_is_not_numbers(self, spec, message):
    with self.assertRaisesRegex(config.ConfigError, message):
      spec_torso.SpecTorso(spec)

  def test_refuses_a_torso_in_place_of_a_function(self):
    with self.assertRaisesRegex(config.ConfigError, 'SpecTorso.vector = '):
      spec_torso.SpecTorso(specs.Array([2], np.float32), vector=torsos.VectorTorso())


class MixedPrecisionTest(tf.test.TestCase):

  def setUp(self):
    super().setUp()
    tf.keras.mixed_precision.set_global_policy('mixed_bfloat16')
    self.addCleanup(tf.keras.mixed_precision.set_global_policy, 'float32')

  def test_computes_in_bfloat16_with_float32_variables(self):
    torso = _mixed_torso()
    self.assertEqual(torso(_mixed_observation(2), 1).dtype, tf.bfloat16)
    for variable in torso.variables:
      self.assertEqual(variable.dtype, tf.float32)


if __name__ == '__main__':
  absltest.main()
