"""The room of `AppleMaze` in the plane: its plan, movement and lines of sight.

Lengths are in cells. The room of size S covers [1, S + 1] x [1, S + 1]; the cell
(column, row) is the unit square with this lower left corner. x goes with columns,
to the east, and y with rows, to the north.
"""

import collections
import math

import numpy as np

WEST, EAST, SOUTH, NORTH = range(4)  # Walls: 2 * axis, and 1 more on the far side.

AGENT_RADIUS = 0.2


class Room:
  """A square room with a central chamber, blocks around it, and landmarks.

  Blocks stand on every other cell of every other row, counted from the centre. The
  centre itself has none, which makes the chamber of 3 x 3 cells. This is the plan of
  size 7 with 4 landmarks (B is a block, L a landmark):

          L
      . . . . . . .
      . B . B . B .
      . . . . . . . L
      . B . . . B .
    L . . . . . . .
      . B . B . B .
      . . . . . . .
              L

  A landmark covers the outer wall along one cell. Landmarks are spread evenly around
  the room, where no block hides them. The plan has a fourfold symmetry that the
  landmarks' colours break.

  Attributes:
    size: S, odd and at least 5.
    num_landmarks: L, at most 8.
    blocks: int [B, 2], the cells with blocks.
    cells: the cells without blocks; all are connected.
    apple_cells: those of `cells` that are outside the chamber.
    landmarks: L pairs of a wall and a column or row, in the order of their colours.
  """

  def __init__(self, size: int, num_landmarks: int):
    self.size = size
    self.num_landmarks = num_landmarks
    half = size // 2
    centre = half + 1
    offsets = range(-half, half + 1)
    blocks = [(x, y) for x in offsets for y in offsets
              if x % 2 == 0 and y % 2 == 0 and (x, y) != (0, 0)]
    free = [(x, y) for x in offsets for y in offsets if (x, y) not in blocks]
    self.blocks = np.array(blocks) + centre
    self.cells = [(x + centre, y + centre) for x, y in free]
    self.apple_cells = [
        (x + centre, y + centre) for x, y in free if max(abs(x), abs(y)) > 1]

    # Places once around the room, along the columns and rows that have no blocks.
    ascending = [centre + offset for offset in offsets if offset % 2]
    descending = ascending[::-1]
    places = [(wall, place) for wall, along in (
        (EAST, ascending), (NORTH, descending), (WEST, descending), (SOUTH, ascending))
              for place in along]
    middle = len(ascending) // 2
    self.landmarks = [
        places[(i * len(places) // num_landmarks + middle) % len(places)]
        for i in range(num_landmarks)]

    self._solid = np.ones([size + 2, size + 2], bool)
    self._solid[tuple(np.transpose(self.cells))] = False
    self._solid = self._solid.tolist()
    self._block_x, self._block_y = self.blocks.T.astype(np.float64)
    self._landmark_at = np.full([4, size + 2], -1)
    for i, place in enumerate(self.landmarks):
      self._landmark_at[place] = i

  def walk(self, x: float, y: float, dx: float, dy: float) -> tuple[float, float]:
    """Returns where a step by (dx, dy) from (x, y) leads an agent's centre.

    The agent slides along obstacles. The step is shorter than the agent's radius.
    """
    x, y = x + dx, y + dy
    column, row = int(x), int(y)
    # At most one neighbour along each axis is in reach, and the one diagonal to both.
    side_x = int(x - column > 1 - AGENT_RADIUS) - int(x - column < AGENT_RADIUS)
    side_y = int(y - row > 1 - AGENT_RADIUS) - int(y - row < AGENT_RADIUS)
    edge_x, edge_y = column + (side_x > 0), row + (side_y > 0)
    solid_x = self._solid[column + side_x][row]
    solid_y = self._solid[column][row + side_y]
    if solid_x:
      x = edge_x - side_x * AGENT_RADIUS
    if solid_y:
      y = edge_y - side_y * AGENT_RADIUS
    if not solid_x and not solid_y and self._solid[column + side_x][row + side_y]:
      distance = math.hypot(x - edge_x, y - edge_y)
      if distance < AGENT_RADIUS:  # The corner pushes the agent straight away.
        x = edge_x + (x - edge_x) * AGENT_RADIUS / distance
        y = edge_y + (y - edge_y) * AGENT_RADIUS / distance
    return x, y

  def look(self, x: float, y: float, directions: np.ndarray
           ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distances and landmarks at which rays from (x, y) end.

    The place is outside all blocks; `directions` are unit vectors [R, 2].

    Returns:
      distances: [R], to the nearest wall or block.
      landmarks: int [R], the landmark that is there, or -1.
    """
    # A ray along an axis then meets the lines parallel to it, very far away.
    directions = np.where(np.abs(directions) < 1e-9, 1e-9, directions)
    inverse = 1 / directions
    to_walls = (np.where(directions > 0, self.size + 1, 1) - (x, y)) * inverse
    axes = np.argmin(to_walls, axis=1)
    rays = np.arange(len(directions))
    distances = to_walls[rays, axes]

    # The ray is within a block where it is within both its columns and its rows.
    inverse_x, inverse_y = inverse.T[:, :, None]
    low_x = (self._block_x - x) * inverse_x
    low_y = (self._block_y - y) * inverse_y
    high_x = low_x + inverse_x
    high_y = low_y + inverse_y
    enters = np.maximum(np.minimum(low_x, high_x), np.minimum(low_y, high_y))
    leaves = np.minimum(np.maximum(low_x, high_x), np.maximum(low_y, high_y))
    to_blocks = np.where(
        (enters < leaves) & (enters > 0), enters, np.inf).min(axis=1)

    walls = 2 * axes + (directions[rays, axes] > 0)
    along = np.array([y, x])[axes] + distances * directions[rays, 1 - axes]
    landmarks = self._landmark_at[walls, along.astype(int)]
    return (np.minimum(distances, to_blocks),
            np.where(to_blocks < distances, -1, landmarks))

  def steps_to(self, cell: tuple[int, int]) -> dict[tuple[int, int], int]:
    """Returns the number of steps from each cell to `cell`."""
    steps = {cell: 0}
    queue = collections.deque([cell])
    while queue:
      column, row = queue.popleft()
      for neighbour in neighbours(column, row):
        if not self._solid[neighbour[0]][neighbour[1]] and neighbour not in steps:
          steps[neighbour] = steps[column, row] + 1
          queue.append(neighbour)
    return steps


def neighbours(column: int, row: int) -> list[tuple[int, int]]:
  """Returns the four cells beside a cell."""
  return [(column + 1, row), (column, row + 1), (column - 1, row), (column, row - 1)]


def distances_to_circle(offset_x: float, offset_y: float, radius: float,
                        directions: np.ndarray) -> np.ndarray:
  """Returns distances of rays from the origin to a circle, [R]; inf if they miss it.

  The origin lies outside the circle; `directions` are unit vectors [R, 2].
  """
  ahead = directions @ (offset_x, offset_y)
  half_chord_squared = ahead**2 - (offset_x**2 + offset_y**2 - radius**2)
  met = (half_chord_squared > 0) & (ahead > 0)
  return np.where(met, ahead - np.sqrt(np.maximum(half_chord_squared, 0)), np.inf)
