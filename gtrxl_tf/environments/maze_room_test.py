"""Tests for maze_room."""

import re

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from gtrxl_tf.environments import maze_room

SIZES = (5, 7, 9, 11, 13, 15)


def _directions(*angles):
  return np.stack([np.cos(angles), np.sin(angles)], axis=1)


class RoomTest(parameterized.TestCase):

  def test_the_room_is_the_drawing_in_its_docstring(self):
    drawing = re.findall(r'^    ((?:[L.B ] )*[.BL ]*[LB.])$',
                         maze_room.Room.__doc__, re.M)
    grid = np.array([list(line.ljust(17)[::2]) for line in drawing])[::-1]
    self.assertEqual(grid.shape, (9, 9))
    room = maze_room.Room(7, 4)
    self.assertCountEqual(map(tuple, room.blocks),
                          [(x, y) for y, x in np.argwhere(grid == 'B')])
    self.assertCountEqual(room.cells, [(x, y) for y, x in np.argwhere(grid == '.')])
    across = {maze_room.WEST: 0, maze_room.EAST: 8,
              maze_room.SOUTH: 0, maze_room.NORTH: 8}
    self.assertCountEqual(
        [(across[wall], place) if wall < 2 else (place, across[wall])
         for wall, place in room.landmarks],
        [(x, y) for y, x in np.argwhere(grid == 'L')])

  @parameterized.parameters(*SIZES)
  def test_every_cell_can_be_reached(self, size):
    room = maze_room.Room(size, 8)
    self.assertLen(room.cells, size**2 - len(room.blocks))
    self.assertCountEqual(room.steps_to(room.apple_cells[0]), room.cells)

  @parameterized.product(size=SIZES, num_landmarks=(0, 1, 3, 4, 5, 8))
  def test_landmarks_are_apart_and_before_free_cells(self, size, num_landmarks):
    landmarks = maze_room.Room(size, num_landmarks).landmarks
    self.assertLen(set(landmarks), num_landmarks)
    walls = [wall for wall, _ in landmarks]
    counts = [walls.count(wall) for wall in range(4)]
    self.assertLessEqual(max(counts) - min(counts), 1)
    room = maze_room.Room(size, num_landmarks)
    edge = {maze_room.WEST: 1, maze_room.EAST: size,
            maze_room.SOUTH: 1, maze_room.NORTH: size}
    for wall, place in landmarks:
      cell = (edge[wall], place) if wall < 2 else (place, edge[wall])
      self.assertIn(cell, room.cells)

  @parameterized.parameters(5, 7, 9)
  def test_walking_never_enters_blocks_or_walls(self, size):
    room = maze_room.Room(size, 0)
    rng = np.random.default_rng(0)
    lows = np.array([(x, y) for x in range(size + 2) for y in range(size + 2)
                     if (x, y) not in room.cells])
    x, y = room.cells[0][0] + .5, room.cells[0][1] + .5
    visited = set()
    for _ in range(20):
      for angle in rng.uniform(-np.pi, np.pi, 20):
        for _ in range(rng.integers(1, 30)):
          x, y = room.walk(x, y, .1 * np.cos(angle), .1 * np.sin(angle))
          nearest = np.clip((x, y), lows, lows + 1)
          distances = np.hypot(*(nearest - (x, y)).T)
          self.assertGreater(distances.min(), maze_room.AGENT_RADIUS - 1e-9)
          visited.add((int(x), int(y)))
    self.assertGreater(len(visited), 8)

  def test_an_agent_slides_along_a_wall(self):
    room = maze_room.Room(7, 0)
    x, y = 1.5, 1.5
    for _ in range(10):
      x, y = room.walk(x, y, -.07, .07)
    np.testing.assert_allclose((x, y), (1.2, 2.2))

  def test_a_corner_pushes_the_agent_aside(self):
    room = maze_room.Room(7, 0)  # With a block over [2, 3] x [2, 3].
    x, y = 1.5, 1.9
    for _ in range(30):
      x, y = room.walk(x, y, .05, 0)
    self.assertAlmostEqual(y, 1.8)
    self.assertGreater(x, 2.5)

  def test_sees_walls_blocks_and_landmarks(self):
    room = maze_room.Room(7, 4)  # With blocks over [2, 3] and [4, 5] x [2, 3].
    # To the east, the north, the west and the south.
    distances, landmarks = room.look(
        4.5, 4.25, _directions(0, np.pi / 2, np.pi, -np.pi / 2))
    np.testing.assert_allclose(distances, [1.5, 1.75, 1.5, 1.25])
    np.testing.assert_array_equal(landmarks, [-1] * 4)
    distances, landmarks = room.look(3.5, 3.5, _directions(np.pi / 2, np.pi / 4, np.pi))
    np.testing.assert_allclose(distances, [4.5, 2.5 * np.sqrt(2), 2.5])
    np.testing.assert_array_equal(landmarks, [1, -1, 2])

  def test_rays_agree_with_walking_along_them(self):
    room = maze_room.Room(9, 8)
    rng = np.random.default_rng(0)
    directions = _directions(*rng.uniform(-np.pi, np.pi, 300))
    for (cell_x, cell_y) in room.cells[::7]:
      x, y = cell_x + rng.uniform(), cell_y + rng.uniform()
      distances, _ = room.look(x, y, directions)
      free = set(room.cells)
      ends = distances[:, None] * directions
      for scale, expected in ((1 - 1e-3, True), (1 + 1e-3, False)):
        inside = [(int(x + scale * a), int(y + scale * b)) in free for a, b in ends]
        self.assertGreater(np.mean(np.equal(inside, expected)), .97)
      for part in np.linspace(0, .99, 50):
        self.assertTrue(all(
            (int(x + part * a), int(y + part * b)) in free for a, b in ends))


class DistancesToCircleTest(absltest.TestCase):

  def test_known_values(self):
    directions = _directions(
        0, np.pi, np.pi / 2, np.arcsin(.24 / 2), np.arcsin(.26 / 2))
    found = maze_room.distances_to_circle(2, 0, .25, directions)
    np.testing.assert_allclose(found[0], 1.75)
    self.assertTrue(np.isposinf(found[[1, 2, 4]]).all())
    self.assertBetween(found[3], 1.75, 2)


if __name__ == '__main__':
  absltest.main()
