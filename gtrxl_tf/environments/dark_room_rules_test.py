"""Tests for dark_room, against the rules in plain Python, and of the splits."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from gtrxl_tf.environments import dark_room
from gtrxl_tf.environments import task_batch
from gtrxl_tf.environments.dark_room import DOWN
from gtrxl_tf.environments.dark_room import LEFT
from gtrxl_tf.environments.dark_room import NONE
from gtrxl_tf.environments.dark_room import RIGHT
from gtrxl_tf.environments.dark_room import UP
from gtrxl_tf.settings import config


class _Reference:
  """One room, by the text of the paper."""

  def __init__(self, targets, setting):
    self._targets = [tuple(target) for target in targets]
    self._setting = setting
    self.begin()

  def begin(self):
    self.x = self.y = self._setting.size // 2
    self.has_key = len(self._targets) == 1  # A goal is a door that needs none.
    self._left = self._setting.episode_length

  def step(self, action):
    """Reward, terminated, truncated."""
    last = self._setting.size - 1
    if action == UP:
      self.y = min(self.y + 1, last)
    elif action == DOWN:
      self.y = max(self.y - 1, 0)
    elif action == LEFT:
      self.x = max(self.x - 1, 0)
    elif action == RIGHT:
      self.x = min(self.x + 1, last)
    self._left -= 1
    target = self._targets[-1] if self.has_key else self._targets[0]
    there = (self.x, self.y) == target
    over = there and self.has_key
    self.has_key = self.has_key or there
    reward = {
        'normal': 1 if there else 0,
        'quick': -1,
        'dense': -abs(self.x - target[0]) - abs(self.y - target[1])}
    return reward[self._setting.task], over, self._left == 0 and not over


class DarkRoomsTest(parameterized.TestCase):

  @parameterized.parameters(*dark_room.SETTINGS)
  @pytest.mark.medium
  def test_random_play_follows_the_rules(self, name):
    family = dark_room.DarkRoomFamily(name, size=5)
    rooms = family.make('training', 20, seed=1)
    singles = [_Reference(targets, family.setting) for targets in rooms.targets]
    random = np.random.default_rng(0)
    ended = np.zeros(2)
    for _ in range(400):
      np.testing.assert_array_equal(
          rooms.observe(rooms.state), [(one.x, one.y) for one in singles])
      actions = random.integers(5, size=20)
      outcome = rooms.step(actions)
      expected = [one.step(action) for one, action in zip(singles, actions)]
      np.testing.assert_array_equal(np.transpose(outcome[:3]), expected)
      np.testing.assert_array_equal(
          rooms.observe(outcome.state), [(one.x, one.y) for one in singles])
      for one, (_, terminated, truncated) in zip(singles, expected):
        if terminated or truncated:
          one.begin()
          ended += terminated, truncated
    self.assertTrue((ended > 20).all(), ended)

  def test_only_the_source_sees_the_key(self):
    key, door = [2, 1], [0, 1]
    rooms = dark_room.DarkRooms([[key, door]], 3, 50, 'normal')
    expected = [  # The centre is cell 4 of 9; with the key a state is 9 higher.
        (LEFT, 3, 0, [0, 1]), (RIGHT, 4, 0, [1, 1]), (RIGHT, 9 + 5, 1, key),
        (NONE, 9 + 5, 0, key), (LEFT, 9 + 4, 0, [1, 1]), (LEFT, 9 + 3, 1, door)]
    for action, state, reward, seen in expected:
      outcome = rooms.step(np.array([action]))
      self.assertEqual((outcome.state, outcome.reward), (state, reward))
      np.testing.assert_array_equal(rooms.observe(outcome.state), [seen])
    self.assertTrue(outcome.terminated[0])
    self.assertEqual(rooms.state, 4)  # Without the key again.

  def test_a_goal_reached_in_the_last_step_is_no_truncation(self):
    rooms = dark_room.DarkRooms([[[2, 2]], [[0, 0]]], 3, 2, 'quick')
    rooms.step(np.array([RIGHT, RIGHT]))
    outcome = rooms.step(np.array([UP, UP]))
    np.testing.assert_array_equal(outcome.terminated, [True, False])
    np.testing.assert_array_equal(outcome.truncated, [False, True])

  @parameterized.parameters(
      ('dr', 1.0), ('dktd', 2.0), ('drlq', -6.5), ('dktdlq', -4.5 - 5.93))
  def test_the_informed_return(self, name, expected):
    # Distances of random cells: from the centre 6.5 (13 x 13) and 4.5 (9 x 9), and of
    # two of them 5.93 + 0.
    rooms = dark_room.DarkRoomFamily(name).make('training', 2000, seed=0)
    self.assertAlmostEqual(
        task_batch.informed_return(rooms).mean(), expected, delta=0.25)

  @parameterized.parameters(
      (np.array([0, 5]), r'in \[0, 5\]: expected'),
      (np.array([0]), r'shape \(1,\)'), (np.array([0., 1.]), 'float64'))
  def test_refuses_actions_that_do_not_exist(self, actions, message):
    rooms = dark_room.DarkRooms([[[2, 2]], [[0, 0]]], 3, 2, 'quick')
    with self.assertRaisesRegex(ValueError, message):
      rooms.step(actions)


class DarkRoomFamilyTest(parameterized.TestCase):

  @parameterized.parameters(
      ('dr', 80, 2500), ('dktd', 6320, 7500), ('drln', 168, 7500),
      ('drlq', 168, 12_500), ('drld', 224, 8750), ('dktdln', 14_280, 14_000),
      ('dktdlq', 6320, 20_000), ('dktdld', 14_280, 24_500))
  def test_table_s1_and_targets_that_are_kept_for_evaluation(
      self, name, num_tasks, num_steps):
    family = dark_room.DarkRoomFamily(name)
    self.assertEqual(family.num_steps, num_steps)
    training, evaluation = (
        {tuple(targets.ravel()) for targets in family.targets(split)}
        for split in ('training', 'evaluation'))
    self.assertEmpty(training & evaluation)
    self.assertLen(training | evaluation, num_tasks)
    self.assertLen(training, round(0.85 * num_tasks))
    for split, tasks in (('training', training), ('evaluation', evaluation)):
      rooms = family.make(split, 100, seed=0)
      drawn = {tuple(targets.ravel()) for targets in rooms.targets}
      self.assertContainsSubset(drawn, tasks)
    another = dark_room.DarkRoomFamily(name, split_seed=1)
    self.assertFalse(np.array_equal(another.targets('evaluation'),
                                    family.targets('evaluation')))

  @parameterized.parameters(('dktd', 80), ('dktdln', 120))
  def test_cells_of_keys_and_doors_can_be_kept_for_evaluation(self, name, num_cells):
    def cells(split_by):
      family = dark_room.DarkRoomFamily(name, split_by=split_by)
      return [{tuple(cell) for cell in family.targets(split).reshape(-1, 2)}
              for split in ('training', 'evaluation')]
    training, evaluation = cells('tasks')
    self.assertEqual((len(training), len(evaluation)), (num_cells, num_cells))
    training, evaluation = cells('cells')
    self.assertEmpty(training & evaluation)
    self.assertLen(training, round(0.85 * num_cells))
    self.assertLen(training | evaluation, num_cells)

  def test_one_target_is_split_equally_by_task_and_by_cell(self):
    family = dark_room.DarkRoomFamily('dr', split_by='cells')
    self.assertEqual(family.targets('evaluation')[:, 0].tolist(), _DR_EVALUATION)

  def test_the_split_is_the_same_everywhere(self):
    family = dark_room.DarkRoomFamily('dr')
    self.assertEqual(family.targets('evaluation')[:, 0].tolist(), _DR_EVALUATION)

  def test_refuses_splits_without_tasks(self):
    with self.assertRaisesRegex(config.ConfigError, 'leaves tasks for evaluation'):
      dark_room.DarkRoomFamily('dr', training_share=1.0)
    # No pair can be made of one cell.
    with self.assertRaisesRegex(config.ConfigError, 'for evaluation, of 8 cells'):
      dark_room.DarkRoomFamily('dktd', size=3, split_by='cells')
    with self.assertRaisesRegex(config.ConfigError, "setting = 'drl'"):
      dark_room.DarkRoomFamily('drl')


_DR_EVALUATION = [[6, 0], [4, 3], [7, 4], [8, 3], [1, 8], [4, 5],
                  [4, 7], [1, 3], [2, 7], [0, 2], [1, 1], [6, 7]]


if __name__ == '__main__':
  absltest.main()
