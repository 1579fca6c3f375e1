"""Tests of rollout.py."""

from absl.testing import absltest
from absl.testing import parameterized
import dm_env
import numpy as np

from gtrxl_tf import environments
from gtrxl_tf import testing
from gtrxl_tf.environments import t_maze
from gtrxl_tf.training import rollout as rollout_lib

_LENGTHS = (2, 3, 5)  # Episodes of different lengths, side by side.


def _mazes():
  return [t_maze.TMaze(length, penalty=1.0, seed=i)
          for i, length in enumerate(_LENGTHS)]


def _rollout(jit_compile=False):
  policy = testing.MazeSolver(_mazes()[0])
  return rollout_lib.Rollout(
      environments.BatchedEnvironment(_mazes()), policy.action,
      policy.get_initial_state(len(_LENGTHS)), jit_compile)


class RolloutTest(parameterized.TestCase):

  @parameterized.parameters(False, True)
  def test_each_environment_is_played_as_if_alone(self, jit_compile):
    rollout = _rollout(jit_compile)
    seen, done = zip(*(rollout.step() for _ in range(15)))
    for i, maze in enumerate(_mazes()):
      time_step = maze.reset()
      for t in range(15):
        self.assertEqual(seen[t].step_type[i], time_step.step_type)
        np.testing.assert_array_equal(seen[t].observation[i], time_step.observation)
        if time_step.first():
          self.assertEqual((seen[t].reward[i], seen[t].discount[i]), (0, 1))
        else:
          self.assertEqual(seen[t].reward[i], np.float32(time_step.reward))
          self.assertEqual(seen[t].discount[i], time_step.discount)
        if not time_step.last():
          self.assertEqual(done[t].action[i], maze.informed_action())
        time_step = maze.step(done[t].action[i])

  def test_what_was_seen_is_what_was_answered(self):
    rollout = _rollout()
    for _ in range(15):
      seen, _ = rollout.step()
      np.testing.assert_array_equal(
          rollout.policy_state.flag, seen.observation[:, 2])

  def test_its_policys_state_can_be_replaced(self):
    rollout = _rollout()
    rollout.step()
    state = rollout.policy_state
    rollout.policy_state = state._replace(clue=-state.clue)
    returns = []
    while len(returns) < 2 * len(_LENGTHS):
      seen, _ = rollout.step()
      returns += seen.episode_return[seen.last()].tolist()
    # Misled once, it goes on with episodes that it sees from their beginning.
    self.assertEqual(returns.count(0), len(_LENGTHS))
    self.assertEqual(returns[-1], 1)

  def test_a_policy_is_traced_once(self):
    policy = testing.MazeSolver(_mazes()[0])
    traces = []
    def action(time_step, state):
      traces.append(None)
      return policy.action(time_step, state)
    rollout = rollout_lib.Rollout(
        environments.BatchedEnvironment(_mazes()), action, policy.get_initial_state(3))
    kinds = set()
    for _ in range(12):
      kinds.update(rollout.step()[0].step_type.tolist())
    self.assertLen(traces, 1)
    self.assertEqual(kinds, set(map(int, dm_env.StepType)))


if __name__ == '__main__':
  absltest.main()
