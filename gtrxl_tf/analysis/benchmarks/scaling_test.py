"""Tests of scaling.py, except its measurements."""

from absl.testing import absltest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.analysis.benchmarks import scaling
from gtrxl_tf.environments import t_maze
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import torsos
from gtrxl_tf.training.online import experiment


def _experiment(num_environments):
  def network(action_spec):
    return actor_critic.ActorCritic(
        action_spec, torsos.VectorTorso((4,)),
        cores.TransformerXL(2, 8, 2, 4, memory_length=5), head_units=4)
  return experiment.OnlineExperiment(
      environment=lambda seed: t_maze.TMaze(3, seed=seed), network=network,
      unroll_length=7,
      batch_size=num_environments, environments_per_actor=num_environments)


class ScalingTest(absltest.TestCase):

  def test_traffic_is_per_environment(self):
    found = scaling.traffic(_experiment(4))
    one = scaling.traffic(_experiment(1))
    # The records of two layers of 8, in 5 rows of memory; observations in 7 + 1 rows.
    records, observation = 2 * 8 * 4, 4 * 4
    self.assertGreater(found.row, records + observation)
    self.assertGreater(found.unroll, 5 * records + 8 * observation)
    # Except for the two numbers that an item has once.
    self.assertLessEqual(one.row - found.row, 16)
    # Five numbers of 4 bytes come with the observation, and an action returns.
    self.assertEqual(found.call, observation + 5 * 4 + 4)
    network = _experiment(1).acting_network
    self.assertEqual(found.weights, 4 * sum(
        v.shape.num_elements() for v in network.variables if v.dtype == tf.float32))


if __name__ == '__main__':
  absltest.main()
