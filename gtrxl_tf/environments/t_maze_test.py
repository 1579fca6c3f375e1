"""Tests for t_maze."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from gtrxl_tf.environments import clues
from gtrxl_tf.environments import episodic
from gtrxl_tf.environments import t_maze
from gtrxl_tf.environments.t_maze import DOWN
from gtrxl_tf.environments.t_maze import LEFT
from gtrxl_tf.environments.t_maze import RIGHT
from gtrxl_tf.environments.t_maze import UP
from gtrxl_tf.settings import config


def _play(environment, actions):
  """The time steps of a new episode."""
  return [environment.reset()] + [environment.step(action) for action in actions]


def _column(time_steps, name):
  index = ('y', 'clue', 'flag', 'noise').index(name)
  return [time_step.observation[index] for time_step in time_steps]


class TMazeTest(parameterized.TestCase):

  @parameterized.parameters(1, 2, 28)
  def test_the_right_turn_earns_one_and_the_wrong_turn_nothing(self, length):
    environment = t_maze.TMaze(corridor_length=length, seed=0)
    outcomes = set()
    for episode in range(20):
      turn = UP if episode % 2 else DOWN
      time_steps = _play(environment, [RIGHT] * length + [turn])
      clue = _column(time_steps, 'clue')[0]
      right = (clue == 1) == (turn == UP)
      outcomes.add((clue, right))
      self.assertEqual([t.reward for t in time_steps[1:]], [0] * length + [right])
      self.assertEqual([t.last() for t in time_steps], [False] * (length + 1) + [True])
      self.assertEqual(time_steps[-1].discount, 0)
      self.assertEqual(environment.episode_success(), right)
      self.assertEqual(_column(time_steps, 'y')[-1], 1 if turn == UP else -1)
    self.assertLen(outcomes, 4)

  def test_the_clue_is_seen_in_the_first_observation_only(self):
    environment = t_maze.TMaze(corridor_length=4, seed=0)
    for _ in range(10):
      time_steps = _play(environment, [LEFT, LEFT, RIGHT, LEFT])
      clue, *others = _column(time_steps, 'clue')
      self.assertIn(clue, (-1, 1))
      self.assertEqual(others, [0] * 4)

  def test_the_flag_is_up_one_step_before_the_junction(self):
    environment = t_maze.TMaze(corridor_length=3, seed=0)
    time_steps = _play(environment, [RIGHT, RIGHT, RIGHT, LEFT])
    self.assertEqual(_column(time_steps, 'flag'), [0, 0, 1, 0, 1])
    environment = t_maze.TMaze(corridor_length=1, seed=0)
    self.assertEqual(_column(_play(environment, [RIGHT, UP]), 'flag'), [1, 0, 0])

  def test_the_flag_may_be_up_at_the_junction(self):
    environment = t_maze.TMaze(corridor_length=2, flag='at', seed=0)
    time_steps = _play(environment, [RIGHT, RIGHT, RIGHT, UP])
    self.assertEqual(_column(time_steps, 'flag'), [0, 0, 1, 1, 0])

  def test_an_oracle_tells_the_right_turn(self):
    environment = t_maze.TMaze(corridor_length=3, seed=0)
    seen, turns = [], []
    for _ in range(20):
      seen.append(environment.reset().observation)
      actions = [environment.informed_action()]
      while not environment.step(actions[-1]).last():
        actions.append(environment.informed_action())
      turns.append(float(actions[-1] == UP))
    np.testing.assert_array_equal(clues.t_maze_bit(np.stack(seen)), turns)
    self.assertLen(set(turns), 2)

  def test_a_clue_is_not_looked_for_in_stacked_frames(self):
    stacked = 'has 8 numbers .* expected 4, as with OfflineExperiment.frame_stack = 1'
    with self.assertRaisesRegex(config.ConfigError, stacked):
      clues.t_maze_bit(np.zeros([2, 8]))
    with self.assertRaisesRegex(config.ConfigError, stacked):
      clues.t_maze_clue(np.zeros([2, 5, 8]), np.ones([2, 5], bool))

  def test_every_episode_may_draw_its_own_corridor(self):
    environment = t_maze.TMaze(
        corridor_length=5, min_corridor_length=2, penalty=1.0, seed=0)
    lengths = []
    for _ in range(400):
      time_steps = _play(environment, [UP])
      while not time_steps[-1].last():
        time_steps.append(environment.step(RIGHT))
      length = len(time_steps) - 3  # An episode has at most L + 2 steps.
      self.assertEqual(_column(time_steps, 'flag').index(1), length)
      self.assertEqual([t.reward for t in time_steps[1:]],
                       [-1 / length] + length * [0] + [-1 / length])
      lengths.append(length)
    values, counts = np.unique(lengths, return_counts=True)
    np.testing.assert_array_equal(values, [2, 3, 4, 5])
    np.testing.assert_allclose(counts, 100, atol=30)

  def test_walls_cost_a_step_and_nothing_else(self):
    environment = t_maze.TMaze(corridor_length=3, seed=0)
    for wall in ([LEFT, RIGHT, RIGHT, RIGHT], [RIGHT, UP, RIGHT, RIGHT],
                 [RIGHT, RIGHT, DOWN, RIGHT], [RIGHT, RIGHT, RIGHT, RIGHT]):
      time_steps = _play(environment, wall)
      self.assertFalse(time_steps[-1].last())
      self.assertEqual(_column(time_steps, 'y'), [0] * 5)
      time_step = environment.step(environment.informed_action())
      self.assertEqual((time_step.last(), time_step.reward), (True, 1))

  def test_steps_that_neither_advance_nor_turn_are_penalised(self):
    environment = t_maze.TMaze(corridor_length=4, penalty=2.0, seed=0)
    time_steps = _play(environment, [UP, LEFT, RIGHT, RIGHT, LEFT, DOWN])
    self.assertEqual([t.reward for t in time_steps[1:]],
                     [-0.5, -0.5, 0, 0, -0.5, -0.5])
    self.assertTrue(time_steps[-1].last())
    time_steps = _play(environment, [RIGHT] * 5)
    self.assertEqual([t.reward for t in time_steps[1:]], [0] * 4 + [-0.5])
    wrong = DOWN if environment.informed_action() == UP else UP
    self.assertEqual(environment.step(wrong).reward, 0)

  @parameterized.parameters((30, 0.0), (30, 1.0), (1, 0.0))
  def test_the_informed_agent_always_earns_one(self, length, penalty):
    environment = t_maze.TMaze(length, penalty, seed=0)
    self.assertEqual(episodic.informed_return(environment, 50), 1)

  def test_refuses_a_shortest_corridor_above_the_longest(self):
    with self.assertRaisesRegex(config.ConfigError, 'min_corridor_length = 6'):
      t_maze.TMaze(corridor_length=5, min_corridor_length=6)


if __name__ == '__main__':
  absltest.main()
