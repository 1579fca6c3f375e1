"""Tests of two_colors.py, on ViZDoom."""

from unittest import mock

from absl.testing import absltest
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import environments
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.environments import vizdoom_two_colors
from tools import two_colors

# See vizdoom_two_colors_envs_test.
pytestmark = pytest.mark.flaky(reruns=2, only_rerun=['ViZDoomErrorException'])

_MAX_STEPS, _STARTS = 60, (25, 40)


def _make(pillar, seed=0):
  return vizdoom_two_colors.VizdoomTwoColors(
      pillar, max_steps=_MAX_STEPS, frame_skip=4, penalty=1, green_bias=1, height=24,
      width=32, seed=seed)


def _by_interval(rewards):
  """The items taken: each changes the reward of a step, 0.04 or 0, by 1."""
  return [[np.sum(jumps[jumps > 0]), -np.sum(jumps[jumps < 0])]
          for jumps in np.split(np.round(rewards), _STARTS)]


class _Circling:
  """A policy that goes in a circle."""

  def get_initial_state(self, batch_size):
    del batch_size
    return ()

  def action(self, time_step, state):
    action = tf.fill(tf.shape(time_step.reward), vizdoom_two_colors.FORWARD_LEFT)
    return policy_lib.PolicyStep(action, state)


class TwoColorsTest(absltest.TestCase):

  def test_counts_items_by_intervals_of_steps(self):
    counted = two_colors.Counted(_make('red'), _STARTS)
    self.addCleanup(counted.close)
    expected = []
    for policy in ('informed_action', 'biased_action'):
      rewards, time_step = [], counted.reset()
      while not time_step.last():
        time_step = counted.step(getattr(counted, policy)())
        rewards.append(time_step.reward)
      expected.append(_by_interval(rewards))
    np.testing.assert_array_equal(counted.episodes, expected)
    informed, biased = counted.episodes
    self.assertGreater(informed[1:, 0].sum(), 0)  # It takes right items, also late.
    self.assertGreater(biased[1:, 1].sum(), 0)    # The other one takes wrong ones.

  def test_counts_the_items_of_a_policy_by_task(self):
    played = []

    class Logged(environments.Wrapper):
      """Keeps the rewards of each episode."""
      episodes = ()

      def reset(self):
        self.episodes = ([],)
        return super().reset()

      def step(self, action):
        time_step = super().step(action)
        if time_step.first():
          self.episodes += ([],)
        else:
          self.episodes[-1].append(time_step.reward)
        return time_step

    def make_environments(num, stream, wrap):
      del stream
      played.extend(Logged(_make(('red', 'green')[i % 2], seed=i)) for i in range(num))
      return environments.BatchedEnvironment(
          [wrap(environment) for environment in played], tasks=[0, 1, 0, 1])

    experiment = mock.Mock(make_environments=make_environments)
    counts = two_colors.count(experiment, _Circling(), _STARTS, num_episodes=4)
    np.testing.assert_array_equal(counts.tasks, [0, 1, 0, 1])
    self.assertGreater(counts.items.sum(), 0)
    for items, value, of_one in zip(counts.items, counts.returns, played):
      rewards = of_one.episodes[0]
      self.assertAlmostEqual(value, sum(rewards), places=4)
      np.testing.assert_array_equal(items, _by_interval(rewards))

  def test_describes_each_task_and_their_mean(self):
    counts = two_colors.Counts(
        np.array([[[2, 1], [3, 0]], [[0, 0], [1, 3]]]), np.array([5.0, 1.0]),
        np.array([0, 1]))
    self.assertEqual(two_colors.describe(counts, [52], ['red', 'green']).splitlines(), [
        '| pillar | episodes | return | from 0 | from 52 |',
        '| --- | --: | --: | --: | --: |',
        '| red | 1 | 5.00 | 0.67 (2, 1) | 1.00 (3, 0) |',
        '| green | 1 | 1.00 | nan (0, 0) | 0.25 (1, 3) |',
        '| mean | 2 | 3.00 | nan | 0.62 |'])


if __name__ == '__main__':
  absltest.main()
