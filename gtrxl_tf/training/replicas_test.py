"""Tests that N replicas take the step that one takes, of every agent; see learner_test.

It splits the CPU.
"""

from absl.testing import absltest
from absl.testing import parameterized
import tensorflow as tf

from gtrxl_tf import testing
from gtrxl_tf.training import devices
from gtrxl_tf.training import learner as learner_lib
from gtrxl_tf.training import tiny_agents_testing

testing.split_cpu(4)


def _train(name, strategy):
  """Metrics of two steps, and all variables after them."""
  make, batch = tiny_agents_testing.AGENTS[name]
  with strategy.scope():
    agent = make()
    # With 1e-8 a gradient of zero but for rounding would make a whole step.
    optimizer = tf.keras.optimizers.legacy.Adam(1e-2, epsilon=1e-4)
  learner = learner_lib.Learner(agent, optimizer, strategy, clip_norm=0.1)
  metrics = [tf.nest.map_structure(
      lambda x: x.numpy(), learner.step(devices.share_out(batch(seed), strategy)))
             for seed in range(2)]
  return metrics, [x.numpy() for x in (*agent.variables, *optimizer.variables())]


class ReplicasTest(tf.test.TestCase, parameterized.TestCase):

  # V-MPO has one in learner_test.py. RATE and ED carry a state.
  @parameterized.parameters('rate', 'cql', 'ed')
  def test_replicas_take_the_step_of_one(self, name):
    if len(tf.config.list_logical_devices('CPU')) < 4:
      self.skipTest('TensorFlow had started before the CPU could be split.')
    expected = _train(name, tf.distribute.get_strategy())
    for num_replicas in 2, 4:
      # Not the collectives it would choose: in one process TensorFlow gives strategies
      # of unlike sizes one group key, and they abort each other.
      strategy = tf.distribute.MirroredStrategy(
          [f'CPU:{i}' for i in range(num_replicas)],
          cross_device_ops=tf.distribute.ReductionToOneDevice())
      tf.nest.map_structure(
          lambda x, y: self.assertAllClose(x, y, atol=1e-5, rtol=1e-5),
          _train(name, strategy), expected)


if __name__ == '__main__':
  absltest.main()
