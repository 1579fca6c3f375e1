"""Tests of observation_statistics.py."""

from absl.testing import absltest
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


class ObservationStatisticsTest(tf.test.TestCase):

  def test_they_are_those_of_all_steps(self):
    statistics = observation_statistics.ObservationStatistics(_SPEC)
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

  def test_one_step_and_an_unroll_are_normalized_equally(self):
    statistics = observation_statistics.ObservationStatistics(_SPEC)
    observations = _observations(2)
    statistics.update(statistics.sums(observations))
    unrolled = statistics.normalize(observations)
    stepped = statistics.normalize(
        tf.nest.map_structure(lambda x: x[:, 3], observations))
    tf.nest.map_structure(
        lambda x, y: self.assertAllEqual(x[:, 3], y), unrolled, stepped)

  def test_before_the_first_update_only_large_values_change(self):
    statistics = observation_statistics.ObservationStatistics(
        specs.Array((3,), np.float32))
    self.assertAllClose(statistics.normalize(tf.constant([[-70., 2., 11.]])),
                        [[-10, 2, 10]])

  def test_a_constant_is_zero_and_nothing_becomes_infinite(self):
    statistics = observation_statistics.ObservationStatistics(
        specs.Array((1,), np.float32))
    statistics.update(statistics.sums(tf.fill([2, 3, 1], 5.)))
    self.assertAllEqual(statistics.normalize(tf.constant([[5.], [6.]])), [[0], [10]])

  def test_the_count_does_not_outgrow_its_precision(self):
    statistics = observation_statistics.ObservationStatistics(
        specs.Array((1,), np.float32))
    statistics.count.assign(2.0 ** 24)
    statistics.update(statistics.sums(tf.ones([100, 100, 1])))
    self.assertAllEqual(statistics.count, 2.0 ** 24)
    self.assertAllClose(statistics.mean, [1e4 / 2 ** 24], rtol=1e-3)

  def test_two_replicas_equal_one_with_the_global_batch(self):
    if len(tf.config.list_logical_devices('CPU')) < 2:
      self.skipTest('TensorFlow started with one device')

    def run(strategy):
      with strategy.scope():
        statistics = observation_statistics.ObservationStatistics(_SPEC)
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

    self.assertAllClose(run(tf.distribute.MirroredStrategy(
        ['CPU:0', 'CPU:1'], cross_device_ops=tf.distribute.ReductionToOneDevice())),
                        run(tf.distribute.get_strategy()), rtol=1e-4)

  def test_refuses_an_observation_without_floats(self):
    spec = {'b': _SPEC['b'], 'd': _SPEC['d']}
    with self.assertRaisesRegex(
        config.ConfigError, 'ActorCritic.normalize_observations = True with .*expected '
        'an array of floats'):
      observation_statistics.ObservationStatistics(spec)


if __name__ == '__main__':
  absltest.main()
