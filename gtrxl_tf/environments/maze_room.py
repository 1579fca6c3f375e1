"""The room of `AppleMaze`: its plan, movement, lines of sight, and pictures.

Lengths are in cells. The room of size S covers [1, S + 1] x [1, S + 1]; the cell
(column, row) is the unit square with this lower left corner. x goes with columns,
to the east, and y with rows, to the north.
"""

import collections
import math
from typing import Sequence

import numpy as np

from gtrxl_tf.environments import optional
from gtrxl_tf.environments import rendering

WEST, EAST, SOUTH, NORTH = range(4)  # Walls: 2 * axis, and 1 more on the far side.

AGENT_RADIUS = 0.2

HEIGHT, WIDTH = 72, 96
FIELD_OF_VIEW = np.pi / 2  # From left to right.

# Not red, which is the apple's colour.
LANDMARK_COLOURS = (
    (0.1, 0.3, 0.9), (0.95, 0.85, 0.1), (0.1, 0.7, 0.2), (0.8, 0.2, 0.8),
    (0.1, 0.8, 0.85), (0.95, 0.5, 0.05), (1.0, 1.0, 1.0), (0.1, 0.1, 0.1))

_CLOSING = 0.02  # Cells by which each finger moves.


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
    self.apple_cells = [(x + centre, y + centre) for x, y in free if max(abs(x), abs(y)) > 1]

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

  def look(self, x: float, y: float, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns where rays from (x, y), outside all blocks, end.

    `directions` are unit vectors [R, 2]. The results are distances [R] to the nearest wall
    or block, and the landmarks that are there, int [R], or -1.
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
    to_blocks = np.where((enters < leaves) & (enters > 0), enters, np.inf).min(axis=1)

    walls = 2 * axes + (directions[rays, axes] > 0)
    along = np.array([y, x])[axes] + distances * directions[rays, 1 - axes]
    landmarks = self._landmark_at[walls, along.astype(int)]
    return (np.minimum(distances, to_blocks), np.where(to_blocks < distances, -1, landmarks))

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


class Scene:
  """Draws pictures of a room. MuJoCo simulates nothing: the task sets positions."""

  def __init__(self, room: Room, apple_radius: float, needed_by: str):
    """Builds the scene of a room; `needed_by` is the environment's name, for errors."""
    rendering.choose_backend()
    rendering.require_backend(needed_by)
    dm_mujoco = optional.load('dm_control.mujoco', needed_by)
    self._mujoco = optional.load('mujoco', needed_by)
    self._physics = dm_mujoco.Physics.from_xml_string(_xml(room, apple_radius))
    self._eye = dm_mujoco.Camera(self._physics, HEIGHT, WIDTH, 'eye')

  def image(self, agent: Sequence[float], apple: Sequence[float]) -> np.ndarray:
    """Returns the agent's view, uint8 [72, 96, 3], with the apple at x and y.

    `agent` has x, y, heading (radians from the east to the north) and pitch (radians up); the
    hand's rotations around the axes to the right, up and forward (radians), its distance
    (cells), and its grip: 0 open, 1 closed.
    """
    *pose, grip = agent
    self._physics.data.qpos[:] = [*pose, _CLOSING * grip, _CLOSING * grip]
    self._physics.data.mocap_pos[0, :2] = apple
    model, data = self._physics.model.ptr, self._physics.data.ptr
    self._mujoco.mj_kinematics(model, data)
    self._mujoco.mj_camlight(model, data)
    return self._eye.render().copy()  # The camera draws into the same array again.

  def close(self) -> None:
    self._physics.free()


def _xml(room: Room, apple_radius: float) -> str:
  """Returns the model in MuJoCo's XML; z is up and walls are one cell high."""
  size = room.size
  middle = 1 + size / 2
  fovy = np.degrees(2 * np.arctan(HEIGHT / WIDTH * np.tan(FIELD_OF_VIEW / 2)))
  blocks = '\n'.join(
      f'<geom type="box" material="block" size=".5 .5 .5" pos="{x + .5} {y + .5} .5"/>'
      for x, y in room.blocks)
  walls = '\n'.join(
      _wall(room, wall, middle, size / 2, .05, .05, 'material="wall"')
      for wall in range(4))
  landmarks = '\n'.join(
      _wall(room, wall, place + .5, .5, 0, .02,
            'rgba="{} {} {} 1"'.format(*LANDMARK_COLOURS[i]))
      for i, (wall, place) in enumerate(room.landmarks))
  return f"""
<mujoco>
  <compiler boundmass="1" boundinertia="1"/>
  <visual>
    <quality shadowsize="0" offsamples="0"/>
    <map znear=".02" zfar="{2 * size}"/>
    <headlight ambient=".5 .5 .5" diffuse=".5 .5 .5" specular="0 0 0"/>
  </visual>
  <statistic extent="1" center="{middle} {middle} 0"/>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" width="16" height="96"
             rgb1=".75 .85 .95" rgb2=".3 .4 .6"/>
    <texture name="floor" type="2d" builtin="checker" width="64" height="64"
             rgb1=".42 .38 .33" rgb2=".36 .33 .29"/>
    <texture name="block" type="cube" builtin="flat" width="64" height="64"
             rgb1=".55 .6 .62" rgb2=".55 .6 .62" mark="edge" markrgb=".3 .33 .35"/>
    <material name="floor" texture="floor" texrepeat="1 1" texuniform="true"/>
    <material name="block" texture="block"/>
    <material name="wall" rgba=".62 .55 .48 1"/>
  </asset>
  <default>
    <geom contype="0" conaffinity="0"/>
    <joint limited="false"/>
  </default>
  <worldbody>
    <geom type="plane" material="floor" pos="{middle} {middle} 0"
          size="{size / 2} {size / 2} 1"/>
    {blocks}
    {walls}
    {landmarks}
    <camera name="top" pos="{middle} {middle} {size * 1.3}" fovy="45"/>
    <body name="apple" mocap="true" pos="0 0 {apple_radius}">
      <geom type="sphere" size="{apple_radius}" rgba=".9 .1 .1 1"/>
      <geom type="capsule" fromto="0 0 {apple_radius} .03 0 {apple_radius + .1}"
            size=".02" rgba=".3 .2 .1 1"/>
    </body>
    <body name="agent">
      <joint type="slide" axis="1 0 0"/>
      <joint type="slide" axis="0 1 0"/>
      <joint type="hinge" axis="0 0 1"/>
      <geom type="cylinder" size="{AGENT_RADIUS} .15" pos="0 0 .15"
            rgba=".9 .9 .95 1"/>
      <body name="head" pos="0 0 .5">
        <joint type="hinge" axis="0 -1 0"/>
        <camera name="eye" xyaxes="0 -1 0 0 0 1" fovy="{fovy}"/>
        <body name="hand" pos=".25 -.1 -.13">
          <joint type="hinge" axis="0 -1 0"/>
          <joint type="hinge" axis="0 0 1"/>
          <joint type="hinge" axis="1 0 0"/>
          <joint type="slide" axis="1 0 0"/>
          <geom type="box" size=".03 .035 .012" rgba=".95 .75 .6 1"/>
          <body pos=".05 .03 0">
            <joint type="slide" axis="0 -1 0"/>
            <geom type="box" size=".03 .008 .01" rgba=".9 .65 .5 1"/>
          </body>
          <body pos=".05 -.03 0">
            <joint type="slide" axis="0 1 0"/>
            <geom type="box" size=".03 .008 .01" rgba=".9 .65 .5 1"/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def _wall(room: Room, wall: int, along: float, half_length: float,
          shift: float, half_thickness: float, look: str) -> str:
  """Returns a box on `wall`, centred at `along` and `shift` outside of the room."""
  axis, far = divmod(wall, 2)
  position = [along, along]
  position[axis] = room.size + 1 + shift if far else 1 - shift
  half = [half_length, half_length]
  half[axis] = half_thickness
  return (f'<geom type="box" {look} pos="{position[0]} {position[1]} .5" '
          f'size="{half[0]} {half[1]} .5"/>')
