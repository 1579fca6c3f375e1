"""Tests of two_colors.py, on ViZDoom."""

import re
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
      # An item changes the reward of a step, 0.04 or 0, by 1.
      expected.append([[np.sum(jumps > 0), np.sum(jumps < 0)]
                       for jumps in np.split(np.round(rewards), _STARTS)])
    np.testing.assert_array_equal(counted.episodes, expected)
    informed, biased = counted.episodes
    self.assertGreater(informed[1:, 0].sum(), 0)  # It takes right items, also late.
    self.assertGreater(biased[1:, 1].sum(), 0)    # The other one takes wrong ones.

  def test_the_table_has_a_row_for_each_task(self):
    made = []

    def make_environments(num, stream, wrap):
      del stream
      made.extend(wrap(_make(('red', 'green')[i % 2], seed=i)) for i in range(num))
      return environments.BatchedEnvironment(made, tasks=[0, 1, 0, 1])

    experiment = mock.Mock(
        make_environments=make_environments, task_names=['red', 'green'])
    rows = list(two_colors.table(experiment, _Circling(), _STARTS, num_episodes=4))
    self.assertEqual([row['episodes'] for row in rows], ['2', '2', '4'])
    found = [re.findall(r'\((\d+), (\d+)\)', ' '.join(row.values())) for row in rows[:2]]
    expected = [sum(x.episodes[0] for x in made[task::2]) for task in range(2)]
    np.testing.assert_array_equal(np.array(found, int), expected)
    self.assertGreater(np.sum(expected), 0)


if __name__ == '__main__':
  absltest.main()
