"""Tests of gymnasium.py, most on tasks that need no further package."""

import os
import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import test_utils
import numpy as np

from gtrxl_tf import config
from gtrxl_tf.environments import batched
from gtrxl_tf.environments import gymnasium


class PendulumTest(test_utils.EnvironmentTestMixin, absltest.TestCase):

  def make_object_under_test(self):
    return gymnasium.GymnasiumEnvironment('Pendulum-v1', seed=0)


class CartPoleTest(test_utils.EnvironmentTestMixin, absltest.TestCase):

  def make_object_under_test(self):
    return gymnasium.GymnasiumEnvironment('CartPole-v1', seed=0)


def _play(name, action, seed=0):
  """An episode's time steps."""
  environment = gymnasium.GymnasiumEnvironment(name, seed=seed)
  time_steps = [environment.reset()]
  while not time_steps[-1].last():
    time_steps.append(environment.step(action))
  return time_steps


class GymnasiumTest(parameterized.TestCase):

  def test_a_fallen_pole_ends_the_task(self):
    time_steps = _play('CartPole-v1', 1)
    self.assertBetween(len(time_steps), 5, 20)
    self.assertEqual(time_steps[-1].discount, 0)
    self.assertEqual(sum(step.reward for step in time_steps[1:]), len(time_steps) - 1)

  def test_a_time_limit_cuts_off(self):
    time_steps = _play('Pendulum-v1', np.zeros(1, np.float32))
    self.assertLen(time_steps, 201)
    self.assertEqual(time_steps[-1].discount, 1)

  def test_the_seed_begins_a_stream_of_episodes(self):
    def beginnings(seed):
      environment = gymnasium.GymnasiumEnvironment('CartPole-v1', seed=seed)
      return np.stack([environment.reset().observation for _ in range(3)])

    np.testing.assert_array_equal(beginnings(1), beginnings(1))
    self.assertFalse(np.any(beginnings(1) == beginnings(2)))
    self.assertLen(np.unique(beginnings(1), axis=0), 3)

  @parameterized.parameters(
      ('HalfCheetah-v4', 17, 6), ('Hopper-v4', 11, 3), ('Walker2d-v4', 17, 6))
  def test_mujoco(self, name, observation_size, action_size):
    self.addCleanup(os.chdir, os.getcwd())
    os.chdir(self.create_tempdir().full_path)  # MuJoCo leaves its warnings there.
    try:
      environment = batched.BatchedEnvironment(
          [gymnasium.GymnasiumEnvironment(name, seed=0)])
    except config.ConfigError as error:
      self.skipTest(str(error))
    self.assertEqual(environment.observation_spec().shape, (observation_size,))
    self.assertEqual(environment.action_spec().shape, (action_size,))
    environment.reset()
    seen = environment.step(np.full([1, action_size], 0.1, np.float32))
    self.assertNotEqual(seen.reward[0], 0)
    self.assertEqual(seen.observation.dtype, np.float32)

  @parameterized.parameters(
      ('CartPole', 'No registered env with id: CartPole'),
      ('CartPol-v1', "Environment `CartPol` doesn't exist. Did you mean: `CartPole`?"),
      ('Blackjack-v1', 'has observations of Tuple.*: expected a Box'))
  def test_refuses_a_task(self, name, message):
    with self.assertRaisesRegex(
        config.ConfigError, f'GymnasiumEnvironment.name = {name!r}.*{message}'):
      gymnasium.GymnasiumEnvironment(name)

  def test_says_which_package_is_missing(self):
    module = 'gymnasium.envs.classic_control.pendulum'
    with mock.patch.dict(sys.modules, {module: None}):
      with self.assertRaisesRegex(
          config.ConfigError, f'needs the package {module}, which is not installed'):
        gymnasium.GymnasiumEnvironment('Pendulum-v1')


if __name__ == '__main__':
  absltest.main()
