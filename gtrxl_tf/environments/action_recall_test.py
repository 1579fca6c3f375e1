"""Tests for action_recall."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from gtrxl_tf.environments import action_recall
from gtrxl_tf.environments import episodic
from gtrxl_tf.settings import config


class ActionRecallTest(parameterized.TestCase):

  @parameterized.parameters(0, 1, 10)
  def test_a_cue_then_blanks_then_the_flag(self, delay):
    environment = action_recall.ActionRecall(num_actions=3, delay=delay, seed=0)
    for _ in range(5):
      observations = [environment.reset().observation]
      cue = environment.informed_action()
      np.testing.assert_array_equal(observations[0], np.eye(4)[cue])
      for _ in range(delay):
        time_step = environment.step(0)
        np.testing.assert_array_equal(time_step.observation, np.zeros(4))
      np.testing.assert_array_equal(environment.step(0).observation, [0, 0, 0, 1])

  @parameterized.parameters(range(4))
  def test_only_the_action_at_the_flag_counts(self, action):
    environment = action_recall.ActionRecall(delay=3, seed=action)
    rng = np.random.default_rng(0)
    for _ in range(10):
      environment.reset()
      for _ in range(4):
        time_step = environment.step(rng.integers(4))
        self.assertEqual((time_step.reward, time_step.discount), (0, 1))
        self.assertFalse(time_step.last())
      right = action == environment.informed_action()
      time_step = environment.step(action)
      self.assertTrue(time_step.last())
      self.assertEqual((time_step.reward, time_step.discount), (right, 0))
      self.assertEqual(environment.episode_success(), right)

  def test_cues_are_equally_likely(self):
    environment = action_recall.ActionRecall(seed=0)
    cues = [environment.reset().observation.argmax() for _ in range(2000)]
    np.testing.assert_allclose(np.bincount(cues, minlength=4), 500, atol=100)


class ActionAssociativeRetrievalTest(parameterized.TestCase):

  def _play(self, actions, **settings):
    """The time steps of an episode, and whether it was a success."""
    environment = action_recall.ActionAssociativeRetrieval(
        delay=len(actions) - 2, seed=0, **settings)
    time_steps = [environment.reset(), *map(environment.step, actions)]
    self.assertEqual([t.last() for t in time_steps], [False] * len(actions) + [True])
    self.assertEqual([t.reward for t in time_steps[1:-1]], [0] * (len(actions) - 1))
    self.assertEqual(time_steps[-1].discount, 0)
    return time_steps, environment.episode_success()

  @parameterized.parameters(
      ([0, 0], True), ([1, 1], True), ([0, 1], False), ([1, 0], False),
      ([0, 2, 2, 0], True), ([0, 2, 2, 1], False), ([0, 2, 2, 2], False),
      ([2, 2, 2], False), ([2, 0, 0], False),           # It did not begin with a move.
      ([0, 1, 0], False), ([0, 1, 1, 0], True))         # From S0; from S1 again.
  def test_the_last_action_must_repeat_the_first(self, actions, success):
    time_steps, succeeded = self._play(actions)
    self.assertEqual(succeeded, success)
    self.assertEqual(time_steps[-1].reward, 1 if success else -1)

  def test_failure_may_cost_nothing(self):
    time_steps, _ = self._play([0, 2, 1], failure_reward=0.0)
    self.assertEqual(time_steps[-1].reward, 0)

  def test_observations_show_the_state_and_when_to_recall(self):
    time_steps, _ = self._play([1, 2, 0, 1, 2, 1])
    state, flag, _ = np.stack([t.observation for t in time_steps], axis=1)
    np.testing.assert_array_equal(state, [0, 1, 1, 0, 1, 1, 0])
    np.testing.assert_array_equal(flag, [0, 0, 0, 0, 0, 1, 0])
    time_steps, _ = self._play([0] + [2] * 300 + [0])
    values, counts = np.unique(
        [t.observation[2] for t in time_steps], return_counts=True)
    np.testing.assert_array_equal(values, [-1, 0, 1])
    np.testing.assert_allclose(counts, 101, atol=30)

  def test_the_informed_agent_earns_one_by_either_action(self):
    environment = action_recall.ActionAssociativeRetrieval(delay=5, seed=0)
    self.assertEqual(episodic.informed_return(environment, 50), 1)
    beginnings = []
    for _ in range(1000):
      environment.reset()
      beginnings.append(environment.informed_action())
    np.testing.assert_allclose(np.bincount(beginnings), [500, 500], atol=60)

  def test_every_episode_may_draw_its_own_delay(self):
    environment = action_recall.ActionAssociativeRetrieval(
        delay=3, min_delay=1, seed=0)
    delays = []
    for _ in range(300):
      environment.reset()
      delays.append(-1)
      while not environment.step(0).last():
        delays[-1] += 1
    np.testing.assert_allclose(
        np.bincount(delays, minlength=4), [0, 100, 100, 100], atol=30)
    with self.assertRaisesRegex(config.ConfigError, 'min_delay = 4'):
      action_recall.ActionAssociativeRetrieval(delay=3, min_delay=4)


if __name__ == '__main__':
  absltest.main()
