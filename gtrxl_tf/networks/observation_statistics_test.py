"""Tests of observation_statistics.py."""

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import numpy as np
import tensorflow as tf

from gtrxl_tf import devices_testing
from gtrxl_tf.networks import observation_statistics
from gtrxl_tf.settings import config

devices_testing.split_cpu(2)

_SPEC = {'a': specs.Array((2,), np.float32), 'b': specs.DiscreteArray(3),
         'c': specs.Array((), np.float32), 'd': specs.Array((8, 8, 3), np.float32)}


def _observations(num, seed=0):
  random = np.random.RandomState(seed)
  return {'a': (1000 + random.randn(num, 5, 2)).astype(np.float32),
          'b': random.randint(3, size=[num, 5]).astype(np.int32),
          'c': (0.01 * random.randn(num, 5) - 0.3).astype(np.float32),
          'd': random.rand(num, 5, 8, 8, 3).astype(np.float32)}


class ObservationStatisticsTest(tf.test.TestCase, parameterized.TestCase):

  def test_they_are_those_of_all_steps(self):
    statistics = observation_statistics.ObservationStatistics(_SPEC, running=True)
    batches = [_observations(num, num) for num in (3, 1, 20)]
    for batch in batches:
      statistics.update(statistics.sums(batch))
    everything = tf.nest.map_structure(lambda *x: np.concatenate(x), *batches)
    floats = np.concatenate(
        [everything['a'], everything['c'][..., np.newaxis]], axis=-1).reshape(-1, 3)
    self.assertAllEqual(statistics.count, 24 * 5)
    self.assertAllClose(statistics.mean, floats.mean(axis=0, dtype=np.float64))
    self.assertAllClose(
        statistics.variance, floats.var(axis=0, dtype=np.float64), rtol=1e-3)
    normalized = statistics.normalize(everything)
    for name in 'a', 'c':
      x = tf.reshape(normalized[name], [120, -1])
      self.assertAllClose(tf.reduce_mean(x, axis=0), np.zeros(x.shape[1]), atol=1e-3)
      self.assertAllClose(np.std(x, axis=0), np.ones(x.shape[1]), atol=1e-2)
    for name in 'b', 'd':
      self.assertAllEqual(normalized[name], everything[name])

  def test_wide_integers_are_numbers_and_bits_and_indices_are_not(self):
    spec = {'bits': specs.BoundedArray((3,), np.int8, 0, 1), 'index': specs.DiscreteArray(99),
            'open': specs.Array((), bool), 'time': specs.Array((), np.int64),
            'wide': specs.BoundedArray((2,), np.int16, -2 ** 15, 2 ** 15 - 1)}
    statistics = observation_statistics.ObservationStatistics(spec, running=True)
    self.assertEqual(statistics.mean.shape, [3])
    observations = tf.nest.map_structure(
        lambda x: tf.cast(tf.random.uniform([4, 5, *x.shape], 0, 2, tf.int32), x.dtype), spec)
    statistics.update(statistics.sums(observations))
    normalized = statistics.normalize(observations)
    for name, x in normalized.items():
      self.assertEqual(x.dtype, tf.float32 if name in ('time', 'wide') else spec[name].dtype)
    self.assertAllClose(np.std(normalized['time']), 1, atol=1e-3)
    unbounded = statistics.unbounded(spec)
    self.assertEqual(type(unbounded['wide']), specs.Array)
    self.assertEqual(unbounded['index'], spec['index'])

  def test_one_step_and_an_unroll_are_normalized_equally(self):
    statistics = observation_statistics.ObservationStatistics(_SPEC, running=True)
    observations = _observations(2)
    statistics.update(statistics.sums(observations))
    unrolled = statistics.normalize(observations)
    stepped = statistics.normalize(
        tf.nest.map_structure(lambda x: x[:, 3], observations))
    tf.nest.map_structure(
        lambda x, y: self.assertAllEqual(x[:, 3], y), unrolled, stepped)

  def test_before_the_first_update_only_large_values_change(self):
    statistics = observation_statistics.ObservationStatistics(
        specs.Array((3,), np.float32), running=True)
    self.assertAllClose(statistics.normalize(tf.constant([[-70., 2., 11.]])),
                        [[-10, 2, 10]])

  def test_a_constant_is_zero_and_nothing_becomes_infinite(self):
    statistics = observation_statistics.ObservationStatistics(
        specs.Array((1,), np.float32), running=True)
    statistics.update(statistics.sums(tf.fill([2, 3, 1], 5.)))
    self.assertAllEqual(statistics.normalize(tf.constant([[5.], [6.]])), [[0], [10]])

  def test_the_count_does_not_outgrow_its_precision(self):
    statistics = observation_statistics.ObservationStatistics(
        specs.Array((1,), np.float32), running=True)
    statistics.count.assign(2.0 ** 24)
    statistics.update(statistics.sums(tf.ones([100, 100, 1])))
    self.assertAllEqual(statistics.count, 2.0 ** 24)
    self.assertAllClose(statistics.mean, [1e4 / 2 ** 24], rtol=1e-3)

  def test_two_replicas_equal_one_with_the_global_batch(self):
    def run(strategy):
      with strategy.scope():
        statistics = observation_statistics.ObservationStatistics(_SPEC, running=True)
      observations = _observations(6)

      def share(context):
        num = context.num_replicas_in_sync
        return tf.nest.map_structure(
            lambda x: np.split(x, num)[context.replica_id_in_sync_group], observations)
      batch = strategy.experimental_distribute_values_from_function(share)

      @tf.function(autograph=False)
      def update():
        sums = strategy.run(statistics.sums, (batch,))
        statistics.update(tf.nest.map_structure(
            lambda x: strategy.reduce('SUM', x, axis=None), sums))
      update()
      update()
      return [x.numpy() for variable in (
          statistics.count, statistics.mean, statistics.variance)
              for x in strategy.experimental_local_results(variable)[-1:]]

    self.assertAllClose(run(devices_testing.mirrored(self, 2)),
                        run(tf.distribute.get_strategy()), rtol=1e-4)

  def test_those_of_a_dataset_normalize_floats(self):
    statistics = observation_statistics.ObservationStatistics(
        {name: _SPEC[name] for name in 'abc'}, running=False)
    observation = {'a': tf.constant([[2., 4.]]), 'b': tf.constant([2]),
                   'c': tf.constant([7.])}
    statistics.assign(
        {'a': np.array([1., 1.]), 'b': np.array(1.), 'c': np.array(-93.)},
        {'a': np.array([0.01, 2.]), 'b': np.array(5.), 'c': np.array(1e-9)})
    normalized = statistics.normalize(observation)
    self.assertAllClose(normalized['a'], [[100, 1.5]])  # It is not clipped.
    self.assertAllEqual(normalized['b'], [2])
    self.assertAllClose(normalized['c'], [100])  # A constant is not scaled.

  @parameterized.parameters(np.uint8, np.float32)
  def test_those_of_a_dataset_normalize_images(self, dtype):
    images = np.random.RandomState(0).randint(100, 120, size=(9, 8, 8, 3)).astype(dtype)
    images[:, 0, 0] = 7  # A pixel that never changes.
    statistics = observation_statistics.ObservationStatistics(
        specs.BoundedArray((8, 8, 3), dtype, 0, 255), running=False)
    statistics.assign(images.mean(0), images.std(0))
    numbers = images.astype(np.float64)
    expected = (numbers - numbers.mean(0)) / np.sqrt(np.mean(numbers.std(0)**2))
    self.assertAllClose(statistics.normalize(images), expected, atol=1e-5)
    statistics.assign(np.zeros([8, 8, 3]), np.zeros([8, 8, 3]))
    self.assertAllClose(statistics.normalize(images), images)

  def test_bytes_with_narrow_bounds_are_indices(self):
    statistics = observation_statistics.ObservationStatistics(
        {'a': _SPEC['a'], 'cells': specs.BoundedArray((7, 7, 3), np.uint8, 0, 10)},
        running=False)
    self.assertEqual(statistics.mean.shape, [2])

  @parameterized.parameters((True, 'bd'), (False, 'b'))
  def test_refuses_an_observation_without_floats(self, running, names):
    with self.assertRaisesRegex(config.ConfigError, 'normalize_observations = True with '):
      observation_statistics.ObservationStatistics(
          {name: _SPEC[name] for name in names}, running)


if __name__ == '__main__':
  absltest.main()
