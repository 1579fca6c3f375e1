"""Tests of q_learning.py."""

from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import numpy as np
import pytest

from gtrxl_tf.collecting import q_learning
from gtrxl_tf.collecting import source
from gtrxl_tf.environments import dark_room
from gtrxl_tf.environments import task_batch
from gtrxl_tf.settings import config
from gtrxl_tf.training.offline import history_curves


def _play(family, num_tasks, **settings):
  tasks = family.make('training', num_tasks, seed=0)
  learner = q_learning.QLearning(tasks, family.num_steps, seed=0, **settings)
  return tasks, source.play(tasks, learner, family.num_steps)


def _family(setting, **settings):
  return dark_room.DarkRoomFamily(
      setting, **{'size': 5, 'episode_length': 30, 'num_episodes': 100, **settings})


class QLearningTest(parameterized.TestCase):

  @parameterized.parameters('dr', 'dktd', 'drlq', 'dktdlq', 'drld')
  @pytest.mark.medium
  def test_reaches_the_optimum(self, setting):
    tasks, histories = _play(_family(setting, num_episodes=200), 60)
    curve = history_curves.curve(histories.reward, histories.end, 20)
    optimum = task_batch.informed_return(tasks).mean()
    self.assertAlmostEqual(curve.mean[-1], optimum, delta=0.05)
    self.assertLess(curve.mean[0], optimum - 0.3)

  @parameterized.product(setting=['dktd', 'dktdld'], bootstrap=[True, False],
                         sweep=[True, False], learning_rate=[1.0, 0.5])
  @pytest.mark.medium
  def test_greedy_actions_are_those_of_q_learning_done_by_hand(
      self, setting, bootstrap, sweep, learning_rate):
    family = _family(setting, size=3, episode_length=8)
    tasks, histories = _play(
        family, 3, initial_epsilon=0.0, bootstrap_truncations=bootstrap,
        sweep_on_success=sweep, learning_rate=learning_rate)
    sure = 0
    for i in range(3):
      values = np.zeros((18, 5), np.float32)
      one = dark_room.DarkRooms(tasks.targets[i:i + 1], 3, 8, family.setting.task)
      episode = []
      for action in histories.action[i]:
        [state] = one.state
        self.assertEqual(values[state, action], values[state].max())
        sure += (values[state] == values[state].max()).sum() == 1
        outcome = one.step(np.array([action]))
        over = outcome.terminated[0] or (outcome.truncated[0] and not bootstrap)
        episode.append((state, action, outcome.reward[0], outcome.state[0], over))
        again = episode[::-1] if sweep and outcome.terminated[0] else []
        for s, a, reward, after, over in [episode[-1], *again]:
          target = reward + np.float32(0 if over else 0.97) * values[after].max()
          values[s, a] += np.float32(learning_rate) * (target - values[s, a])
        if outcome.terminated[0] or outcome.truncated[0]:
          episode = []
    self.assertGreater(sure, 100)

  def test_epsilon_falls_linearly_to_zero(self):
    # Action 1 becomes the best one everywhere.
    tasks = _family('dr').make('training', 1000, seed=0)
    learner = q_learning.QLearning(tasks, 100, seed=0, initial_epsilon=0.8,
                                   epsilon_share=0.5)
    epsilons, randoms = [], []
    for _ in range(100):
      state = tasks.state
      learner._values[1] = 1e9  # pylint: disable=protected-access
      action = learner.act(tasks.observe(state), state)
      epsilons.append(learner.epsilon)
      randoms.append(np.mean(action != 1))
      learner.learn(state, action, tasks.step(action))
    expected = 0.8 * np.maximum(0, 1 - np.arange(100) / 50)
    np.testing.assert_allclose(epsilons, expected, atol=1e-12)
    # Every fifth random action is the best one.
    np.testing.assert_allclose(randoms, expected * 0.8, atol=0.06)

  def test_equal_actions_are_equally_likely(self):
    random = np.random.default_rng(0)
    values = np.zeros((5, 20_000), np.float32)
    values[1] = -1
    chosen = source.random_maximum(values, np.False_, random)
    np.testing.assert_allclose(
        np.bincount(chosen, minlength=5) / 20_000, [.25, 0, .25, .25, .25], atol=0.02)

  def test_needs_states_for_a_table(self):
    tasks = _family('dr').make('training', 1, seed=0)
    with mock.patch.object(tasks, 'state_spec', lambda: specs.Array((2,), np.float32)):
      with self.assertRaisesRegex(config.ConfigError, 'QLearning.tasks have states'):
        q_learning.QLearning(tasks, 10, 0)


if __name__ == '__main__':
  absltest.main()
