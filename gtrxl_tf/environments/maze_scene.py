"""The room of `AppleMaze` as MuJoCo draws it.

Nothing is simulated: the task sets the joints' positions, and MuJoCo draws the picture.
"""

from typing import Sequence

import numpy as np

from gtrxl_tf.environments import maze_room
from gtrxl_tf.environments import optional
from gtrxl_tf.environments import rendering

HEIGHT, WIDTH = 72, 96
FIELD_OF_VIEW = np.pi / 2  # From left to right.

# Not red, which is the apple's colour.
LANDMARK_COLOURS = (
    (0.1, 0.3, 0.9), (0.95, 0.85, 0.1), (0.1, 0.7, 0.2), (0.8, 0.2, 0.8),
    (0.1, 0.8, 0.85), (0.95, 0.5, 0.05), (1.0, 1.0, 1.0), (0.1, 0.1, 0.1))

_CLOSING = 0.02  # Cells by which each finger moves.


class Scene:
  """Draws pictures of a room."""

  def __init__(self, room: maze_room.Room, apple_radius: float, needed_by: str):
    """Builds the scene.

    Args:
      room: its plan.
      apple_radius: in cells.
      needed_by: the environment's name, for errors.
    """
    rendering.choose_backend()
    rendering.require_backend(needed_by)
    dm_mujoco = optional.load('dm_control.mujoco', needed_by)
    self._mujoco = optional.load('mujoco', needed_by)
    self._physics = dm_mujoco.Physics.from_xml_string(_xml(room, apple_radius))
    self._eye = dm_mujoco.Camera(self._physics, HEIGHT, WIDTH, 'eye')

  def image(self, agent: Sequence[float], apple: Sequence[float]) -> np.ndarray:
    """Returns the agent's view, uint8 [72, 96, 3].

    Args:
      agent: x, y, heading (radians from the east to the north) and pitch (radians
        up); the hand's rotations around the axes to the right, up and forward
        (radians), its distance (cells), and its grip: 0 open, 1 closed.
      apple: x and y.
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


def _xml(room: maze_room.Room, apple_radius: float) -> str:
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
      <geom type="cylinder" size="{maze_room.AGENT_RADIUS} .15" pos="0 0 .15"
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


def _wall(room: maze_room.Room, wall: int, along: float, half_length: float,
          shift: float, half_thickness: float, look: str) -> str:
  """Returns a box on `wall`, centred at `along` and `shift` outside of the room."""
  axis, far = divmod(wall, 2)
  position = [along, along]
  position[axis] = room.size + 1 + shift if far else 1 - shift
  half = [half_length, half_length]
  half[axis] = half_thickness
  return (f'<geom type="box" {look} pos="{position[0]} {position[1]} .5" '
          f'size="{half[0]} {half[1]} .5"/>')
