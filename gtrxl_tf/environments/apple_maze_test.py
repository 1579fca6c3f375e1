"""Tests for apple_maze with observation='state', which needs no package."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from gtrxl_tf.environments import apple_maze
from gtrxl_tf.environments import episodic

NAMES = [name for name, _ in apple_maze.CONTINUOUS_ACTIONS]


def _make(**settings):
  return apple_maze.AppleMaze(**{'observation': 'state', 'seed': 0, **settings})


def make_action(grip=0, **values):
  continuous = np.zeros(8, np.float32)
  for name, value in values.items():
    continuous[NAMES.index(name)] = value
  return {'continuous': continuous, 'grip': grip}


def place(environment, x, y, heading):
  environment._x, environment._y, environment._heading = x, y, heading


def put_apple(environment, column, row):
  environment._apple_cell = column, row
  environment._apple = column + .5, row + .5


class AppleMazeTest(parameterized.TestCase):

  @parameterized.parameters(5, 7, 15)
  @pytest.mark.medium
  def test_an_agent_that_knows_the_place_collects_many_apples(self, size):
    environment = _make(size=size)
    self.assertGreater(episodic.informed_return(environment, 3), 12)
    self.assertTrue(environment.episode_success())

  def test_touching_the_apple_rewards_and_teleports_and_leaves_it_there(self):
    environment = _make()
    environment.reset()
    places = set()
    for count in range(1, 30):
      put_apple(environment, 1, 1)
      place(environment, 1.5, 2.1, -math.pi / 2)
      self.assertEqual(environment.step(make_action()).reward, 0)
      self.assertEqual(environment.step(make_action(MOVE_BACK_FORWARD=1)).reward, 1)
      self.assertEqual(environment._apple, (1.5, 1.5))
      places.add((int(environment._x), int(environment._y)))
      self.assertEqual(environment.episode_success(), count >= 2)
    self.assertNotIn((1, 1), places)
    self.assertGreater(len(places), 10)

  def test_the_apple_changes_its_place_between_episodes_only(self):
    environment = _make(size=5, episode_length=100)
    cells = set()
    for _ in range(100):
      environment.reset()
      cell = environment._apple_cell
      cells.add(cell)
      for _ in range(10):
        environment.step(environment.informed_action())
      self.assertEqual(environment._apple_cell, cell)
    self.assertLen(cells, 8)

  @parameterized.parameters(
      (dict(MOVE_BACK_FORWARD=1), 0, .4), (dict(MOVE_BACK_FORWARD=-.5), 0, -.2),
      (dict(STRAFE_LEFT_RIGHT=1), .4, 0), (dict(STRAFE_LEFT_RIGHT=-1), -.4, 0),
      (dict(STRAFE_LEFT_RIGHT=3, MOVE_BACK_FORWARD=9), .4 / 2**.5, .4 / 2**.5))
  def test_moves_four_frames_at_most_at_one_speed(self, action, east, north):
    environment = _make()
    environment.reset()
    place(environment, 4.5, 4.5, math.pi / 2)
    environment.step(make_action(**action))
    np.testing.assert_allclose(
        (environment._x, environment._y), (4.5 + east, 4.5 + north), atol=1e-6)

  def test_looking_right_turns_what_is_seen_to_the_left(self):
    environment = _make(num_landmarks=4)
    environment.reset()
    put_apple(environment, 7, 1)
    place(environment, 4.5, 3.5, math.pi - .35)  # To the west's landmark, row 3.
    def landmark_column():
      state = environment.step(make_action()).observation['state'].reshape(13, 6)
      return np.flatnonzero(state[:, 2 + 2]).mean()

    ahead = landmark_column()
    environment.step(make_action(LOOK_LEFT_RIGHT=-.5))
    self.assertGreater(landmark_column(), ahead)
    environment.step(make_action(LOOK_LEFT_RIGHT=1))
    self.assertLess(landmark_column(), ahead)

  def test_state_holds_distances_the_apple_and_landmarks_by_ray(self):
    environment = _make(num_landmarks=4)
    environment.reset()
    put_apple(environment, 1, 3)
    place(environment, 4.5, 3.5, math.pi)
    state = environment.step(make_action()).observation['state'].reshape(13, 6)
    np.testing.assert_allclose(state[6], [2.75 / (7 * 2**.5), 1, 0, 0, 0, 0], rtol=1e-6)
    self.assertEqual(state[:, 1].sum(), 1)
    put_apple(environment, 7, 7)
    state = environment.step(make_action()).observation['state'].reshape(13, 6)
    np.testing.assert_allclose(state[6], [3.5 / (7 * 2**.5), 0, 0, 0, 1, 0], rtol=1e-6)

  def test_the_apple_is_not_seen_through_blocks(self):
    environment = _make()
    environment.reset()
    put_apple(environment, 1, 2)  # A block is in the next cell to the east.
    for pose, seen in (((3.5, 2.5, math.pi), False),
                       ((1.5, 4.5, -math.pi / 2), True)):
      place(environment, *pose)
      state = environment.step(make_action()).observation['state'].reshape(13, 6)
      self.assertEqual(bool(state[:, 1].any()), seen)

  @parameterized.parameters(
      (dict(grip=2), r"action\['grip'\] = 2: expected 0 or 1"),
      (dict(LOOK_DOWN_UP=np.nan), r"action\['continuous'\].*expected 8 finite numbers"))
  def test_refuses_actions_that_do_not_exist(self, values, message):
    environment = _make()
    environment.reset()
    with self.assertRaisesRegex(ValueError, message):
      environment.step(make_action(**values))


if __name__ == '__main__':
  absltest.main()
