"""Tests of source.py."""

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import numpy as np

from gtrxl_tf import environments
from gtrxl_tf.collecting import source
from gtrxl_tf.environments import task_batch


class _Sums(task_batch.TaskBatch):
  """Sums actions; the state, which is also observed, is one array that changes."""

  def __init__(self, reward=1, observed=lambda sums: sums[:, np.newaxis]):
    super().__init__(num_tasks=2, num_actions=3)
    self._sums = np.zeros(2, np.int64)
    self._reward, self._observed = reward, observed

  def observation_spec(self):
    return specs.BoundedArray([1], np.uint8, 0, 255)

  def reward_spec(self):
    return specs.Array([], np.int8)

  def state_spec(self):
    return specs.DiscreteArray(256)

  @property
  def state(self):
    return self._sums

  def observe(self, state):
    return self._observed(state)

  def restart(self):
    self._sums[:] = 0

  def informed_actions(self):
    return np.ones(2, np.int64)

  def _step(self, actions):
    self._sums += actions
    never = np.zeros(2, bool)
    return task_batch.Outcome(
        np.full(2, self._reward, np.float32), never, never, self._sums)


class _Ones:
  """Takes action 1, from an array that it changes."""

  def __init__(self):
    self.learned = []
    self._actions = np.empty(2, np.int64)

  def act(self, unused_observation, unused_state):
    self._actions[:] = 1
    return self._actions

  def learn(self, state, action, outcome):
    self.learned.append((state[0], action[0], outcome.state[0]))
    action[:] = 0


class PlayTest(parameterized.TestCase):

  def test_arrays_that_change_are_stored_as_they_were(self):
    player = _Ones()
    played = source.play(_Sums(), player, num_steps=3)
    np.testing.assert_array_equal(played.observation, [[[0], [1], [2]]] * 2)
    np.testing.assert_array_equal(played.action, [[1, 1, 1]] * 2)
    np.testing.assert_array_equal(played.reward, [[1, 1, 1]] * 2)
    self.assertEqual(player.learned, [(0, 1, 1), (1, 1, 2), (2, 1, 3)])

  @parameterized.parameters(
      (dict(reward=-0.1), 'the reward is -0.1.* in a task: expected values of int8'),
      (dict(reward=200), 'the reward is 200.0 in a task: expected values of int8'),
      (dict(observed=lambda sums: sums[:, np.newaxis] + 256),
       'the observation is 256 in a task: expected values of uint8'),
      (dict(observed=lambda sums: sums), r'shape \(2,\): expected \(2, 1\)'))
  def test_what_does_not_fit_its_spec_is_refused(self, settings, expected):
    with self.assertRaisesRegex(
        environments.EnvironmentFailed, f'^_Sums played by _Ones, step 1 of .*{expected}'):
      source.play(_Sums(**settings), _Ones(), num_steps=3)


if __name__ == '__main__':
  absltest.main()
