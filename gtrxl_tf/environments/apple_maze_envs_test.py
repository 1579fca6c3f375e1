"""Tests for apple_maze with observation='pixels', which needs dm_control."""

import math

from absl.testing import absltest
import numpy as np

from gtrxl_tf.environments import apple_maze
from gtrxl_tf.environments import apple_maze_test
from gtrxl_tf.environments import maze_room

HORIZON = maze_room.HEIGHT // 2 - 1  # The row of pixels above eye level.

# The angle of each column of pixels from the heading, from left to right.
COLUMN_ANGLES = np.arctan(
    np.linspace(1, -1, 2 * maze_room.WIDTH + 1)[1::2]
    * np.tan(maze_room.FIELD_OF_VIEW / 2))


class ApplePixelsTest(absltest.TestCase):

  def _make(self, **settings):
    environment = apple_maze.AppleMaze(**{'seed': 0, **settings})
    self.addCleanup(environment.close)
    environment.reset()
    return environment

  def _image(self, environment):
    return environment._observation()['image'].astype(int)

  def test_shows_landmarks_where_the_rays_meet_them(self):
    environment = self._make(num_landmarks=4)
    apple_maze_test.put_apple(environment, 1, 1)
    rng = np.random.default_rng(0)
    wrong, seen = [], set()
    for column, row in environment._room.cells[::2]:
      x, y, heading = column + .5, row + .5, rng.uniform(-math.pi, math.pi)
      apple_maze_test.place(environment, x, y, heading)
      angles = heading + COLUMN_ANGLES
      _, landmarks = environment._room.look(
          x, y, np.stack([np.cos(angles), np.sin(angles)], axis=1))
      # Light scales a colour, so its direction identifies it. Blocks and walls are
      # greyer.
      pixels = self._image(environment)[HORIZON - 2].astype(float)
      pixels /= np.linalg.norm(pixels, axis=1, keepdims=True)
      colours = np.array([*maze_room.LANDMARK_COLOURS[:4], (.6, .6, .6)])
      colours /= np.linalg.norm(colours, axis=1, keepdims=True)
      shown = np.argmax(pixels @ colours.T, axis=1)
      wrong.append(np.mean(shown != np.where(landmarks < 0, 4, landmarks)))
      seen.update(landmarks)
    self.assertEqual(seen, {-1, 0, 1, 2, 3})
    self.assertLess(np.mean(wrong), .01)

  def test_shows_the_apple_where_the_rays_meet_it(self):
    environment = self._make(num_landmarks=0)
    apple_maze_test.put_apple(environment, 1, 3)
    found = set()
    for x, y in ((4.5, 3.5), (1.5, 5.5), (3.5, 5.5), (5.5, 5.5)):
      for heading in np.linspace(-math.pi, math.pi, 9):
        apple_maze_test.place(environment, x, y, heading)
        angles = heading + COLUMN_ANGLES
        directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        distances, _ = environment._room.look(x, y, directions)
        expected = maze_room.distances_to_circle(
            1.5 - x, 3.5 - y, .25, directions) < distances
        red, green, _ = np.moveaxis(self._image(environment), -1, 0)
        shown = ((red > 3 * green) & (red > 60)).any(axis=0)
        self.assertLessEqual(np.sum(shown != expected), 2)
        found.add(bool(expected.any()))
    self.assertEqual(found, {False, True})

  def test_each_action_of_the_hand_is_seen_and_moves_nothing_else(self):
    environment = self._make()
    for name in ('HAND_ROTATE_AROUND_RIGHT', 'HAND_ROTATE_AROUND_UP',
                 'HAND_ROTATE_AROUND_FORWARD', 'HAND_PUSH_PULL', 'grip'):
      environment.reset()
      apple_maze_test.place(environment, 4.5, 4.5, 0)
      before = environment.step(apple_maze_test.make_action()).observation['image']
      value = {'HAND_PUSH_PULL': -10, 'grip': 1}.get(name, 1)
      action = apple_maze_test.make_action(**{name: value})
      after = environment.step(action).observation['image']
      changed = (before != after).any(axis=-1)
      self.assertTrue(changed.any(), name)
      self.assertFalse(changed[:36].any(), name)  # Above the horizon.
      self.assertEqual((environment._x, environment._y), (4.5, 4.5))

  def test_looking_up_moves_the_view_down(self):
    environment = self._make()
    apple_maze_test.place(environment, 4.5, 4.5, 0)

    def brightest(action):
      image = environment.step(action).observation['image']
      return (image[:, :, 2] > image[:, :, 0]).sum()  # The sky is blue.

    level = brightest(apple_maze_test.make_action())
    self.assertGreater(brightest(apple_maze_test.make_action(LOOK_DOWN_UP=1)), level)
    self.assertLess(brightest(apple_maze_test.make_action(LOOK_DOWN_UP=-2)), level + 1)

  def test_two_environments_draw_side_by_side(self):
    def course(environment):
      yield environment.reset().observation['image']
      for _ in range(5):
        yield environment.step(environment.informed_action()).observation['image']

    apart = [list(course(self._make(seed=seed))) for seed in (1, 2)]
    together = list(zip(course(self._make(seed=1)), course(self._make(seed=2))))
    # `_make` has begun an episode in each, so both courses are of second episodes.
    np.testing.assert_array_equal(np.swapaxes(together, 0, 1), apart)
    self.assertTrue((np.array(apart[0]) != apart[1]).any())


if __name__ == '__main__':
  absltest.main()
