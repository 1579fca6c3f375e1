"""Tests for action_recall."""

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import test_utils
import numpy as np

from gtrxl_tf.environments import action_recall
from gtrxl_tf.environments import memory_task


class ActionRecallContractTest(test_utils.EnvironmentTestMixin,
                               parameterized.TestCase):

  def make_object_under_test(self):
    return action_recall.ActionRecall(delay=2, seed=0)

  def make_action_sequence(self):
    return np.random.default_rng(0).integers(4, size=20)


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

  def test_the_informed_agent_always_earns_one(self):
    environment = action_recall.ActionRecall(seed=0)
    self.assertEqual(memory_task.informed_return(environment, 50), 1)

  def test_one_seed_gives_one_course_of_episodes(self):
    def course(seed):
      environment = action_recall.ActionRecall(seed=seed)
      return [environment.reset().observation.argmax() for _ in range(20)]

    self.assertEqual(course(3), course(3))
    self.assertNotEqual(course(3), course(4))


if __name__ == '__main__':
  absltest.main()
