"""Tests of rollout.py."""

import gc
import sys
import weakref

from absl.testing import absltest
from absl.testing import parameterized
import dm_env
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf
import tree

from gtrxl_tf import environments
from gtrxl_tf import testing
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.environments import t_maze
from gtrxl_tf.training import rollout as rollout_lib

_LENGTHS = (2, 3, 5)  # Episodes of different lengths, side by side.


def _mazes():
  return [t_maze.TMaze(length, penalty=1.0, seed=i)
          for i, length in enumerate(_LENGTHS)]


def _rollout():
  policy = testing.MazeSolver(_mazes()[0])
  return rollout_lib.Rollout(
      environments.BatchedEnvironment(_mazes()), policy.action,
      policy.get_initial_state(len(_LENGTHS)))


class RolloutTest(parameterized.TestCase):

  @parameterized.parameters(False, True)
  def test_each_environment_is_played_as_if_alone(self, warm):
    rollout = _rollout()
    if warm:
      rollout.warm_up()
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

  @pytest.mark.medium
  def test_steps_leave_no_memory_behind(self):
    rollout = _rollout()
    def blocks_after(steps):
      for _ in range(steps):
        rollout.step()
      gc.collect()
      return sys.getallocatedblocks()
    before = blocks_after(300)
    self.assertLess(blocks_after(1000) - before, 1000)  # Each tensor would leave one.

  def test_nests_of_every_dtype_arrive_and_return_unchanged(self):
    dtypes = (np.uint8, np.int64, np.float32, np.bool_)

    class Environment(dm_env.Environment):
      """Shows random values and keeps the actions."""

      def __init__(self, seed):
        self._random = np.random.default_rng(seed)

      def observation_spec(self):
        return {'scalar': specs.Array((), np.float32),
                'images': [specs.Array((2, 3), dtype) for dtype in dtypes]}

      def action_spec(self):
        return {'to': specs.Array((2,), np.float32), 'do': specs.DiscreteArray(300)}

      def reset(self):
        return self.step(None)._replace(step_type=dm_env.StepType.FIRST)

      def step(self, action):
        self.action = action
        return dm_env.transition(self._random.random(), tree.map_structure(
            lambda spec: self._random.integers(0, 99, spec.shape).astype(spec.dtype),
            self.observation_spec()))

    def action(time_step, state):
      images = time_step.observation['images']
      return policy_lib.PolicyStep(
          {'to': tf.stack([time_step.reward, time_step.observation['scalar']], axis=1),
           'do': tf.cast(images[1][:, 0, 0], tf.int32) + 100}, state + 1,
          (time_step.step_type, time_step.observation, state))

    made = [Environment(i) for i in range(3)]
    rollout = rollout_lib.Rollout(
        environments.BatchedEnvironment(made), action, tf.zeros([3], tf.int64))
    for t in range(4):
      seen, done = rollout.step()
      step_type, observation, state = done.info
      tree.map_structure(
          np.testing.assert_array_equal,
          (step_type, observation, state),
          (seen.step_type, seen.observation, np.full(3, t)))
      tree.map_structure(lambda x, y: self.assertEqual(x.dtype, y.dtype),
                         observation, seen.observation)
      for i, environment in enumerate(made):
        np.testing.assert_array_equal(
            environment.action['to'],
            [seen.reward[i], seen.observation['scalar'][i]])
        self.assertEqual(
            environment.action['do'], 100 + seen.observation['images'][1][i, 0, 0])

  def test_the_policys_state_can_be_replaced(self):
    rollout = _rollout()
    rollout.step()
    state = rollout.policy_state
    rollout.policy_state = state._replace(clue=-state.clue)
    returns = []
    while len(returns) < 2 * len(_LENGTHS):
      seen, _ = rollout.step()
      returns += seen.episode_return[seen.last()].tolist()
    # Misled once; it sees the later episodes from their beginning.
    self.assertEqual(returns.count(0), len(_LENGTHS))
    self.assertEqual(returns[-1], 1)

  @parameterized.parameters(False, True)
  def test_its_environments_are_freed_with_it(self, compiled):
    policy = testing.MazeSolver(_mazes()[0])
    made = _mazes()
    rollout = rollout_lib.Rollout(
        environments.BatchedEnvironment(made), policy.action,
        policy.get_initial_state(len(made)), xla=rollout_lib.XLAStep(
            [], lambda _: tf.constant(True), lambda state: state) if compiled else None)
    rollout.step()
    alive = weakref.ref(made[0])
    gc.disable()
    self.addCleanup(gc.enable)
    del rollout, made
    self.assertIsNone(alive())

  def test_a_policy_that_xla_cannot_compile_acts_without(self):
    seen = []

    def action(time_step, state):
      action = tf.numpy_function(
          lambda x: seen.append(x.copy()) or np.argmax(x, -1).astype(np.int32),
          [time_step.observation], tf.int32)
      action.set_shape([len(_LENGTHS)])
      return policy_lib.PolicyStep(action, state + 1)

    rollout = rollout_lib.Rollout(
        environments.BatchedEnvironment(_mazes()), action, tf.constant(0),
        xla=rollout_lib.XLAStep([], lambda _: tf.constant(False), lambda state: state))
    with self.assertLogs(level='WARNING') as logs:
      rollout.warm_up()
    self.assertRegex(logs.output[0], 'acting without XLA, .*PyFunc')
    self.assertEqual(rollout.policy_state, 0)
    time_step, done = rollout.step()
    np.testing.assert_array_equal(seen[-1], time_step.observation)
    np.testing.assert_array_equal(done.action, np.argmax(time_step.observation, -1))
    self.assertEqual(rollout.policy_state, 1)


if __name__ == '__main__':
  absltest.main()
