"""The Numpad of *GTrXL*: a ball that rolls and jumps over pads, simulated by MuJoCo."""

from typing import Annotated, Optional

import dm_env
from dm_env import specs
import numpy as np

from gtrxl_tf.environments import episodic
from gtrxl_tf.environments import numpad
from gtrxl_tf.environments import optional
from gtrxl_tf.environments import rendering
from gtrxl_tf.settings import config

# Lengths in metres. The gap of 0.2 between the centres of neighbouring pads lets the
# ball reach every other pad without pressing one, straight or diagonally.
_SPACING = 0.5  # From pad to pad.
_PAD = 0.2  # Half the side of a pad.
_CENTRE = 0.15  # Half the side of its centre; touching the centre presses the pad.
_RADIUS = 0.1  # The ball's.
_MARGIN = 0.05  # How far the ball's centre gets beyond the cells of the outer pads.
_CLEARANCE = 0.01  # A ball higher above the floor than this presses nothing.

# At full force the ball reaches 3.6 m/s, and two thirds of that after 0.14 s. From pad
# to pad it takes about 5 control steps.
_MASS = 1.0  # kg
_FORCE = 36.0  # N, along each axis.
_DRAG = 10.0  # N s / m
_FRICTION = 1.5  # With less the ball would slide at full force.
_JUMP = 1.5  # m/s, which lifts the ball by more than its radius.

_SUBSTEPS = 10
_TIMESTEP = 0.005  # s
_CONTROL_TIMESTEP = _SUBSTEPS * _TIMESTEP

_GRAVITY = 9.81
_PROPRIOCEPTION = ('position', 'velocity', 'acceleration', 'angular_velocity')


@config.configurable
class NumpadMujoco(episodic.MemoryTask):
  """The Numpad with a ball; the module `numpad` has the rules of the sequence.

  The ball starts at rest, at a place drawn uniformly. It presses a pad by touching the
  pad's centre (figure 8), which is three quarters as wide as the pad. It cannot press
  the same pad again, nor the pad that it starts on, before it has left that pad
  completely. More than 1 cm above the floor, in a jump, it presses nothing. Contacts
  are checked once per control step, of 50 ms. Walls higher than a jump keep the ball on
  the platform.

  Actions: float32 [3], each in [-1, 1]. The first two push the ball, on the floor and
  in the air, along x (to the right, in the direction of columns) and y (away from the
  viewer, against the direction of rows). The third, if positive, makes a ball on the
  floor jump with that share of its full speed; otherwise it does nothing.

  Observations are float32. Units are chosen so that values are of order 1, since the
  paper's torso does not normalise them; axes are the world's.

    position: [3], of the ball's centre, in metres from the platform's.
    velocity: [3], m/s.
    acceleration: [3], the mean over the last control step, as a multiple of gravity's;
      zeros on the first step.
    angular_velocity: [3], turns per second.
    pads: [size^2], 1 for a lit pad; row by row, the first row farthest.
    previous_action: [3]; zeros on the first step.
    previous_reward: [1]; zero on the first step.

  `pads`, `previous_reward` and the zeros of a first step are shared between time steps
  and read-only.

  The paper gives neither sizes nor speeds. With those here, 500 steps of random play
  press about 20 pads and the informed policy about 100.
  """

  def __init__(self,
               size: Annotated[int, config.Range(2)] = 3,
               episode_length: config.PositiveInt = 500,
               seed: Optional[config.NonNegativeInt] = None):
    """Creates the task; the arguments are those of `Numpad`."""
    super().__init__(num_actions=None, seed=seed)
    self._size = size
    self._num_pads = size**2
    self._episode_length = episode_length
    self._rewards = episodic.constant_rows([[0.], [1.]])
    rendering.choose_backend()
    dm_mujoco = optional.load('dm_control.mujoco', needed_by='NumpadMujoco')
    self._mujoco = optional.load('mujoco', needed_by='NumpadMujoco')
    middle = (size - 1) / 2
    self._centres = [
        ((pad % size - middle) * _SPACING, (middle - pad // size) * _SPACING)
        for pad in range(self._num_pads)]
    self._limit = size * _SPACING / 2 + _MARGIN
    self._physics = dm_mujoco.Physics.from_xml_string(_xml(self._centres, self._limit))
    self._model = self._physics.model.ptr
    self._data = self._physics.data.ptr
    self._zeros = episodic.constant_rows(np.zeros([1, 3]))[0]
    self._reset()  # Every attribute of an episode exists from here on.

  def action_spec(self) -> specs.BoundedArray:
    return specs.BoundedArray([3], np.float32, -1, 1, 'action')

  def observation_spec(self) -> dict[str, specs.Array]:
    return {
        **{name: specs.Array([3], np.float32, name) for name in _PROPRIOCEPTION},
        'pads': specs.BoundedArray([self._num_pads], np.float32, 0, 1, 'pads'),
        'previous_action': specs.BoundedArray(
            [3], np.float32, -1, 1, 'previous_action'),
        'previous_reward': specs.BoundedArray(
            [1], np.float32, 0, 1, 'previous_reward'),
    }

  @property
  def sequence(self) -> tuple[int, ...]:
    """The hidden sequence of the current episode, as pad numbers."""
    return tuple(self._hidden.sequence)

  def episode_success(self) -> bool:
    """Returns whether the sequence was completed at least once."""
    return self._hidden.success

  def informed_action(self) -> np.ndarray:
    """Returns an action that steers to the next pad, and jumps near a wrong one.

    The policy is good but not optimal: it brakes on each pad instead of cutting
    corners. Wrong pads matter only while they would clear lit ones.
    """
    target = self._hidden.next
    goal = target
    if target == self._pad:  # It can be pressed only after the ball has left it.
      ways = numpad.destinations(self._size)[target]
      goal = next(pad for pad in ways if pad != target)
    position, velocity = self._data.qpos[:2], self._data.qvel[:2]
    steer = 20 * (self._centres[goal] - position - 0.1 * velocity)
    ahead = self._pad_at(*(position + 0.08 * velocity), _CENTRE)
    jump = self._hidden.num_lit > 0 and ahead not in (None, self._pad, target)
    return np.clip([*steer, jump], -1, 1).astype(np.float32)

  def render(self, height: int = 240, width: int = 320) -> np.ndarray:
    """Returns an image of the platform, uint8 [height, width, 3], up to 960 x 1280."""
    rendering.require_backend(needed_by='NumpadMujoco')
    # mj_forward would change what the next step's solver starts from.
    self._mujoco.mj_kinematics(self._model, self._data)
    self._mujoco.mj_camlight(self._model, self._data)
    model = self._physics.model
    for pad, lit in enumerate(self._hidden.lights):
      for part in ('pad', 'centre'):
        material = model.name2id(f'lit_{part}' if lit else part, 'material')
        self._model.geom_matid[model.name2id(f'{part}_{pad}', 'geom')] = material
    return self._physics.render(height, width, camera_id='viewer')

  def close(self) -> None:
    self._physics.free()

  def _checked(self, action) -> np.ndarray:
    checked = np.array(action, np.float32)
    # Written so that NaN fails.
    if checked.shape != (3,) or not all(-1 <= a <= 1 for a in checked.tolist()):
      raise ValueError(f'action = {action}: expected 3 numbers in [-1, 1]')
    return checked

  def _reset(self) -> dm_env.TimeStep:
    self._hidden = numpad.HiddenSequence(self._size, self._rng)
    self._num_steps = 0
    self._mujoco.mj_resetData(self._model, self._data)
    x, y = self._rng.uniform(-self._limit, self._limit, 2).tolist()
    self._data.qpos[:3] = x, y, _RADIUS
    self._pad = self._pad_at(x, y, _PAD)
    return dm_env.restart(self._observation(self._zeros, self._zeros, reward=0))

  def _step(self, action: np.ndarray) -> dm_env.TimeStep:
    data = self._data
    velocity = data.qvel[:3].copy()
    data.ctrl[:] = action[:2]
    if action[2] > 0 and self._on_floor():
      data.qvel[2] = _JUMP * action[2]
    # dm_control's own step also updates derived quantities, and takes twice as long.
    self._mujoco.mj_step(self._model, data, _SUBSTEPS)

    x, y = data.qpos[:2].tolist()
    if self._pad_at(x, y, _PAD) != self._pad:
      self._pad = None
    reward = 0
    if self._on_floor():
      pad = self._pad_at(x, y, _CENTRE)
      if pad is not None and pad != self._pad:
        self._pad = pad
        reward = self._hidden.press(pad)
    acceleration = (data.qvel[:3] - velocity) / (_CONTROL_TIMESTEP * _GRAVITY)
    self._num_steps += 1
    return episodic.later_step(
        float(reward), self._observation(acceleration, action, reward),
        self._num_steps == self._episode_length)

  def _on_floor(self) -> bool:
    return self._data.qpos[2] < _RADIUS + _CLEARANCE

  def _pad_at(self, x: float, y: float, half_side: float) -> Optional[int]:
    """Returns the pad whose square of this `half_side` contains the point, if any."""
    middle = (self._size - 1) / 2
    column, row = round(x / _SPACING + middle), round(middle - y / _SPACING)
    if not (0 <= column < self._size and 0 <= row < self._size):
      return None
    pad = row * self._size + column
    centre_x, centre_y = self._centres[pad]
    inside = abs(x - centre_x) <= half_side and abs(y - centre_y) <= half_side
    return pad if inside else None

  def _observation(self, acceleration: np.ndarray, previous_action: np.ndarray,
                   reward: int) -> dict[str, np.ndarray]:
    qpos, qvel = self._data.qpos, self._data.qvel
    spin = np.empty(3)  # MuJoCo's is in the ball's own axes.
    self._mujoco.mju_rotVecQuat(spin, qvel[3:], qpos[3:])
    return {
        'position': qpos[:3].astype(np.float32),
        'velocity': qvel[:3].astype(np.float32),
        'acceleration': acceleration.astype(np.float32),
        'angular_velocity': (spin / (2 * np.pi)).astype(np.float32),
        'pads': self._hidden.lights,
        'previous_action': previous_action,
        'previous_reward': self._rewards[reward],
    }


def _xml(centres: list[tuple[float, float]], limit: float) -> str:
  """Returns the model in MuJoCo's XML; pads and rims are only drawn, walls limit joints."""
  pads = '\n'.join(f"""
      <geom name="pad_{pad}" class="seen" material="pad" pos="{x} {y} 0"
            size="{_PAD} {_PAD} .004"/>
      <geom name="centre_{pad}" class="seen" material="centre" pos="{x} {y} 0"
            size="{_CENTRE} {_CENTRE} .006"/>"""
                   for pad, (x, y) in enumerate(centres))
  edge = limit + _RADIUS
  rims = '\n'.join(
      f'<geom class="seen" material="rim" pos="{x * edge} {y * edge} .02" '
      f'size="{edge if y else .015} {edge if x else .015} .03"/>'
      for x, y in ((1, 0), (-1, 0), (0, 1), (0, -1)))
  slides = '\n'.join(
      f'<joint name="{name}" type="slide" axis="{axis}" damping="{_DRAG}" '
      f'limited="true" range="{-limit} {limit}"/>'
      for name, axis in (('x', '1 0 0'), ('y', '0 1 0')))
  # The camera looks down by 55 degrees, from where the platform fills the picture.
  tilt, distance = np.deg2rad(55), 2.7 * edge
  return f"""
  <mujoco model="numpad">
    <option timestep="{_TIMESTEP}" gravity="0 0 {-_GRAVITY}"/>
    <statistic center="0 0 0" extent="{2 * edge}"/>
    <visual>
      <global offwidth="1280" offheight="960" fovy="45"/>
      <headlight ambient=".35 .35 .35" diffuse=".25 .25 .25" specular="0 0 0"/>
      <quality shadowsize="2048"/>
    </visual>
    <default>
      <default class="seen">
        <geom type="box" contype="0" conaffinity="0"/>
      </default>
    </default>
    <asset>
      <texture type="skybox" builtin="gradient" rgb1=".75 .82 .9" rgb2=".3 .36 .45"
               width="64" height="384"/>
      <texture name="ball" type="cube" builtin="checker" rgb1=".9 .35 .2"
               rgb2=".97 .93 .88" width="64" height="64"/>
      <material name="ball" texture="ball" specular=".4" shininess=".6"/>
      <material name="floor" rgba=".2 .22 .26 1" specular="0"/>
      <material name="rim" rgba=".12 .13 .16 1"/>
      <material name="pad" rgba=".42 .46 .52 1" specular="0"/>
      <material name="centre" rgba=".52 .57 .64 1" specular="0"/>
      <material name="lit_pad" rgba=".85 .5 .08 1" emission=".3" specular="0"/>
      <material name="lit_centre" rgba="1 .7 .25 1" emission=".3" specular="0"/>
    </asset>
    <worldbody>
      <light pos="{-edge} {-edge} {4 * edge}" dir="1 1 -4" cutoff="40" exponent="2"
             diffuse=".7 .7 .7" specular=".3 .3 .3"/>
      <camera name="viewer" xyaxes="1 0 0 0 {np.sin(tilt)} {np.cos(tilt)}"
              pos="0 {-distance * np.cos(tilt) - .1 * edge} {distance * np.sin(tilt)}"/>
      <geom type="plane" material="floor" size="{edge} {edge} .1"/>
      {pads}
      {rims}
      <body name="ball">
        {slides}
        <joint name="z" type="slide" axis="0 0 1"/>
        <joint name="spin" type="ball"/>
        <geom type="sphere" material="ball" size="{_RADIUS}" mass="{_MASS}"
              friction="{_FRICTION}"/>
      </body>
    </worldbody>
    <actuator>
      <motor joint="x" gear="{_FORCE}"/>
      <motor joint="y" gear="{_FORCE}"/>
    </actuator>
  </mujoco>
  """
