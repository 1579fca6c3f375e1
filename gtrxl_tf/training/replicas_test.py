"""Tests that N replicas take the same step as one, for every agent."""

import functools

from absl.testing import absltest
from absl.testing import parameterized
import pytest
import tensorflow as tf

from gtrxl_tf import devices_testing
from gtrxl_tf.training import tiny_agents_testing

devices_testing.split_cpu(4)


# Its variables contain the averages of the weights.
_AVERAGING = functools.partial(
    tf.keras.optimizers.AdamW, 1e-2, epsilon=1e-4, use_ema=True, ema_momentum=0.5)


class ReplicasTest(tf.test.TestCase, parameterized.TestCase):

  # RATE and ED carry a state.
  @parameterized.parameters(
      ('vmpo', 2), ('ppo', 4), ('r2d2', 4), ('rate', 2), ('dt', 4), ('cql', 2), ('ed', 2), ('adf', 4),
      ('tap', 2), ('ed', 2, _AVERAGING))
  @pytest.mark.long
  def test_replicas_take_the_step_of_one(
      self, name, num_replicas, optimizer=tiny_agents_testing.ADAM):
    self.assertAllClose(
        tiny_agents_testing.train(
            name, devices_testing.mirrored(self, num_replicas), optimizer),
        tiny_agents_testing.train(name, tf.distribute.get_strategy(), optimizer),
        atol=1e-5, rtol=1e-5)


if __name__ == '__main__':
  absltest.main()
