"""Tests for memory_maze, which need the package memory-maze."""

from absl.testing import absltest
import numpy as np

from gtrxl_tf.environments import memory_maze
from gtrxl_tf.environments import optional
from gtrxl_tf.environments import rendering

FORWARD, LEFT, RIGHT = 1, 2, 3


class MemoryMazeTest(absltest.TestCase):

  def _make(self, **settings):
    environment = memory_maze.MemoryMaze(**settings)
    self.addCleanup(environment.close)
    return environment

  def test_shows_and_earns_what_the_plain_package_does(self):
    rendering.choose_backend()
    plain = optional.load('memory_maze.tasks', needed_by='test').memory_maze_9x9(seed=5)
    self.addCleanup(plain.close)
    ours = self._make(seed=5)
    expected, found = plain.reset(), ours.reset()
    for environment in (plain, ours._environment):
      _put_targets_before_agent(environment)
    rewards = []
    for action in [FORWARD] * 30 + [LEFT, LEFT, FORWARD, RIGHT] * 8:
      np.testing.assert_array_equal(
          found.observation['image'], expected.observation['image'])
      self.assertEqual(found[:3], expected[:3])
      rewards.append(expected.reward)
      expected, found = plain.step(action), ours.step(action)
    self.assertGreater(rewards.count(1.0), 1)  # There were touches to compare.

  def test_the_time_limit_ends_the_episode_with_discount_one(self):
    environment = self._make(seed=0)
    environment.reset()
    inner = environment._environment
    inner.physics.data.time = 250 - 2 / 4  # Two steps before the end.
    time_step = environment.step(0)
    self.assertFalse(time_step.last())
    time_step = environment.step(0)
    self.assertTrue(time_step.last())
    self.assertEqual(time_step.discount, 1)
    self.assertTrue(environment.step(0).first())


def _put_targets_before_agent(environment) -> None:
  """Puts all targets one behind the other, where the agent is looking."""
  mjcf = optional.load('dm_control.mjcf', needed_by='test')
  task, physics = environment.task, environment.physics
  agent = physics.bind(task._walker.root_body)
  ahead = agent.xmat.reshape(3, 3)[:, 1]
  for i, target in enumerate(task._targets):
    frame = physics.bind(mjcf.get_attachment_frame(target.mjcf_model))
    frame.pos[:2] = (agent.xpos + (2 + i) * ahead)[:2]


if __name__ == '__main__':
  absltest.main()
