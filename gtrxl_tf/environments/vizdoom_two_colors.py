"""ViZDoom-Two-Colors: the colour of a pillar at the start shows which items heal.

The task is that of *RATE* (section 4.1 and appendix B), after Sorokin et al. (2022) and
Beeching et al. (2019). The scenario is this library's own. The WAD has its map as text
(UDMF) and its scripts as source (ACS) and as byte code, with numbers in three places.
"""

import contextlib
import os
import pathlib
import shutil
import struct
import tempfile
from typing import Any, Iterator, Literal, Optional, Sequence
import weakref

import dm_env
from dm_env import specs
import numpy as np

from gtrxl_tf import files
from gtrxl_tf.environments import episodic
from gtrxl_tf.environments import optional
from gtrxl_tf.settings import config

# In map units (an agent is 32 wide): the walls of the square room, and its centre.
LOW, HIGH, CENTRE = -768, 512, -128

# In the order of the scripts' numbers. Freedoom's blue armour is red.
COLOURS = ('green', 'red')
ITEMS = ('GreenArmor', 'BlueArmor')

FILE = pathlib.Path(__file__).with_name('data') / 'two_colors.wad'
# What stands in the file for the least and the greatest number of the pillar's colour, and
# for the tics after which the pillar is removed.
PLACES = 1_000_001, 1_000_002, 1_000_003
_FOREVER = 2**31 - 1

# The actions, and for each which buttons it presses: turn left, turn right, forward.
LEFT, RIGHT, FORWARD, FORWARD_LEFT, FORWARD_RIGHT = range(5)
BUTTONS = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1]]

_LIVING_REWARD = 0.01  # A tic.
_HALF_VIEW = np.radians(45)

# The agent's motion, measured: the speed that a tic of going forward adds, the share of
# its speed that is left after a tic, and the angle by which it turns in one.
_THRUST, _FRICTION, _TURN = 0.78, 0.906, np.radians(3.5)
_SPEED = _THRUST / (1 - _FRICTION)  # The limit, going forward.
_RADIUS = 16  # The agent's; walls stop it at this distance.

# The agent touches an item when both coordinates are nearer than this. The margin
# allows for errors of the motion model.
_TOUCH, _MARGIN = 36, 6
_TOUCH_COST = 100  # Map units, for each tic of touching something to be avoided.

# The plans: an action for 8 or 20 tics, and another for the rest. [plans, tics].
_TICS = 48
_PLANS = np.array([[first] * tics + [second] * (_TICS - tics)
                   for tics in (8, 20) for first in range(5) for second in range(5)])
_FARTHEST = _SPEED * _TICS + _TOUCH + _MARGIN


@config.configurable
class VizdoomTwoColors(episodic.MemoryTask):
  """A room with a floor of acid, a pillar that soon vanishes, and items of two colours.

  The pillar is green or red. It stands in the centre of the room, in the agent's view,
  and vanishes after 45 steps. There are 10 green and 10 red items; from tic 120 on,
  another one appears every 30 tics, green and red in turn. An item of the pillar's
  colour gives 25 health, up to 100 in all, and a reward of 1; one of the other colour
  takes 25 health. The acid takes 8 health every 32 tics. Each tic alive gives a reward
  of 0.01. At health 0 the episode ends, with discount 0; after `max_steps` it is cut
  off, with discount 1. Health is not shown: it would reveal the colour.

  The observation is what the agent sees, 90 degrees wide:

    image: uint8 [height, width, 3], red, green and blue.

  Actions: turn left, turn right, go forward, forward and left, forward and right.

  In RATE's text the acid takes 10/32 health a step. The floor here is of the same kind
  as in RATE's scenario, for which ViZDoom takes 8/32 a tic.
  """
  action_names = 'left', 'right', 'forward', 'forward_left', 'forward_right'

  def __init__(self,
               pillar: Optional[Literal[COLOURS]] = None,
               pillar_steps: Optional[config.NonNegativeInt] = 45,
               penalty: config.NonNegativeFloat = 0.0,
               max_steps: config.PositiveInt = 4200,
               frame_skip: config.PositiveInt = 2,
               height: config.PositiveInt = 64,
               width: config.PositiveInt = 112,
               green_bias: config.UnitInterval = 0.1,
               seed: Optional[config.NonNegativeInt] = None):
    """Creates the task, and starts a process of ViZDoom's engine for it.

    Args:
      pillar: its colour in all episodes; None draws one for each episode.
      pillar_steps: number of observations with the pillar. 0 is RATE's test without a
        pillar, in which items still differ. With None the pillar stays, as in the
        training of RATE's collector.
      penalty: minus the reward of an item of the other colour. RATE names none; it is 1
        in the scenario of Sorokin et al.
      max_steps: steps after which an episode is cut off. RATE's training episodes have
        90 steps; the paper gives no number for evaluation, and its code has 4200.
      frame_skip: tics for which an action is held; a second of the game has 35 tics.
        The paper does not give it, but its reward of 0.02 for each step alive is that
        of 2 tics. Sorokin et al. have 4.
      height: the height of the image, which is drawn as 180 x 320 and shrunk.
      width: the width of the image.
      green_bias: see `biased_action`.
      seed: seeds everything that is drawn.
    """
    super().__init__(num_actions=len(BUTTONS), seed=seed)
    self._vizdoom = optional.load('vizdoom', needed_by='VizdoomTwoColors')
    self._cv2 = optional.load('cv2', needed_by='VizdoomTwoColors')
    self._penalty = penalty
    self._max_steps = max_steps
    self._frame_skip = frame_skip
    self._shape = (height, width, 3)
    self._green_bias = green_bias
    self._game = self._start(wad(
        pillar, None if pillar_steps is None else pillar_steps * frame_skip))
    self._reset()  # Every attribute of an episode exists from here on.

  def close(self) -> None:
    self._shut_down()

  def episode_success(self) -> bool:
    """Returns whether the agent was alive when the episode was cut off."""
    return not self._game.is_player_dead()

  @property
  def items_taken(self) -> tuple[int, int]:
    """How many right and wrong items the agent has taken in this episode."""
    matching, other = self._taken
    return int(matching), int(other)

  def informed_action(self) -> int:
    """Returns an action towards the nearest item of the right colour in view.

    The policy goes around other items, and turns left without such an item in view. The
    optimal policy is not known; this one needs only the picture and the colour. Its
    return in 90 steps is 4.4; that of random play is 2.4, and that of RATE's data 4.46.
    """
    return self._towards_item(green_bias=0.0)

  def biased_action(self) -> int:
    """Returns an action as `informed_action`, but sometimes towards a wrong item.

    If the pillar is red the policy goes for a green item with probability `green_bias`,
    drawn for each item that it goes for. RATE's data come from an agent with "a slight
    bias" of this kind, which was an accident and whose size is not known.
    """
    return self._towards_item(self._green_bias)

  def observation_spec(self) -> dict[str, specs.BoundedArray]:
    return {'image': specs.BoundedArray(self._shape, np.uint8, 0, 255, name='image')}

  def _start(self, wad: bytes) -> Any:
    vizdoom = self._vizdoom
    folder = tempfile.mkdtemp(prefix='vizdoom_two_colors_')
    scenario = os.path.join(folder, 'two_colors.wad')
    with open(scenario, 'wb') as file:
      file.write(wad)
    game = vizdoom.DoomGame()
    self._shut_down = weakref.finalize(self, _shut_down, game, folder)
    game.set_doom_scenario_path(scenario)
    game.set_doom_map('map01')
    game.set_doom_config_path(os.path.join(folder, 'vizdoom.ini'))
    game.set_window_visible(False)
    game.set_sound_enabled(False)
    game.set_screen_format(vizdoom.ScreenFormat.RGB24)
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_320X180)
    game.set_render_hud(False)
    game.set_render_crosshair(False)
    game.set_render_weapon(False)
    game.set_render_screen_flashes(False)  # They would reveal the effect of an item.
    game.set_objects_info_enabled(True)
    game.set_available_buttons([vizdoom.Button.TURN_LEFT, vizdoom.Button.TURN_RIGHT,
                                vizdoom.Button.MOVE_FORWARD])
    game.set_mode(vizdoom.Mode.PLAYER)
    game.set_episode_timeout(0)
    with _starting_alone():
      game.init()
      # The engine leaves an empty folder where it was started.
      with contextlib.suppress(OSError):
        os.rmdir('_vizdoom')
    return game

  def _reset(self) -> dm_env.TimeStep:
    seed = int(self._rng.integers(2**31))
    self._game.set_seed(seed)
    self._game.new_episode()
    self._steps = 0
    self._taken = np.zeros(2)
    self._red = self._variable('USER3') == 1
    # A separate generator: no policy should change how episodes are drawn.
    self._mistakes = np.random.default_rng(seed)
    # State of the policy: an item's id, a colour, and the last action.
    self._target = self._wanted = self._steered = None
    self._image = self._draw()
    return dm_env.restart({'image': self._image})

  def _step(self, action: int) -> dm_env.TimeStep:
    self._game.make_action(BUTTONS[action], self._frame_skip)
    self._steps += 1
    taken = np.array([self._variable('USER1'), self._variable('USER2')])
    matching, other = taken - self._taken
    self._taken = taken
    reward = matching - self._penalty * other
    if self._game.is_episode_finished():  # The engine draws nothing after death.
      return dm_env.termination(float(reward), {'image': self._image.copy()})
    self._image = self._draw()
    reward = float(reward + _LIVING_REWARD * self._frame_skip)
    return episodic.later_step(
        reward, {'image': self._image}, False, self._steps == self._max_steps)

  def _draw(self) -> np.ndarray:
    height, width, _ = self._shape
    return self._cv2.resize(self._game.get_state().screen_buffer, (width, height),
                            interpolation=self._cv2.INTER_AREA)

  def _variable(self, name: str) -> float:
    return self._game.get_game_variable(getattr(self._vizdoom.GameVariable, name))

  def _towards_item(self, green_bias: float) -> int:
    agent, velocity = [
        np.array([self._variable(f'{quantity}_{axis}') for axis in 'XY'])
        for quantity in ('POSITION', 'VELOCITY')]
    heading = np.radians(self._variable('ANGLE'))
    items = {item.id: (ITEMS.index(item.name),
                       np.array([item.position_x, item.position_y]))
             for item in self._game.get_state().objects if item.name in ITEMS}

    if self._target not in items:
      if self._wanted is None:  # Drawn once for each item.
        mistaken = self._red and self._mistakes.random() < green_bias
        self._wanted = int(self._red and not mistaken)
      distances = {
          i: np.linalg.norm(place - agent) for i, (colour, place) in items.items()
          if colour == self._wanted and abs(bearing(agent, heading, place)) < _HALF_VIEW}
      if not distances:
        return LEFT
      self._target = min(distances, key=distances.get)
      self._wanted = self._steered = None
    target_colour, target = items[self._target]
    others = [place for colour, place in items.values() if colour != target_colour]
    self._steered = steer(agent, velocity, heading, target, others, self._steered)
    return self._steered


@contextlib.contextmanager
def _starting_alone() -> Iterator[None]:
  """Waits until no other process starts an engine, which would make the same folder."""
  folder = os.open('.', os.O_RDONLY)
  try:
    with contextlib.suppress(OSError):  # A file system without locks.
      files.lock(folder, wait=True)
    yield
  finally:
    os.close(folder)


def wad(pillar: Optional[str] = None, pillar_tics: Optional[int] = 90) -> bytes:
  """Returns the scenario, with one map, MAP01.

  The script draws the colour of the pillar if it is None, and removes the pillar after
  some tics: 0 for no pillar, None for one that stays.
  """
  first, last = (0, 1) if pillar is None else [COLOURS.index(pillar)] * 2
  made = FILE.read_bytes()
  for place, value in zip(PLACES, (
      first, last, _FOREVER if pillar_tics is None else pillar_tics)):
    made = made.replace(struct.pack('<I', place), struct.pack('<I', value))
  return made


def bearing(agent: np.ndarray, heading: np.ndarray, place: np.ndarray) -> np.ndarray:
  """Returns the angle, to the left, from agents' headings to a place.

  It is in [-pi, pi) and has the shape of `heading`, in radians; `agent` is [..., 2].
  """
  x, y = np.moveaxis(place - agent, -1, 0)
  return (np.arctan2(y, x) - heading + np.pi) % (2 * np.pi) - np.pi


def steer(agent: np.ndarray, velocity: np.ndarray, heading: float,
          target: np.ndarray, avoided: Sequence[np.ndarray],
          last_action: Optional[int] = None) -> int:
  """Returns the first action of the best plan to reach `target` and avoid others.

  Places are [2], the velocity is map units in a tic, and the heading in radians. A turn on the
  spot, `last_action`, is not undone at once, since an agent might turn back and forth forever.
  """
  left, right, go = np.moveaxis(np.array(BUTTONS)[_PLANS], -1, 0)  # [plans, tics].
  headings = heading + _TURN * np.cumsum(left - right, axis=1)
  thrusts = _THRUST * go[..., None] * np.stack([np.cos(headings), np.sin(headings)], axis=-1)
  paths = np.empty_like(thrusts)  # [plans, tics, 2].
  place = agent
  for tic in range(_TICS):
    velocity = velocity + thrusts[:, tic]
    place = np.clip(place + velocity, LOW + _RADIUS, HIGH - _RADIUS)
    paths[:, tic] = place
    velocity = _FRICTION * velocity

  on_the_way = np.cumsum(_touches(paths, target, _TOUCH), axis=1) == 0
  # A turn costs as much as the distance that could be covered in the time. The end of a
  # plan counts as much as the way there: with the end alone, the agent could delay
  # forever; with the way alone, it would never make a detour.
  left_over = (np.linalg.norm(target - paths, axis=-1)
               + _SPEED / _TURN * np.abs(bearing(paths, headings, target)))
  left_over *= on_the_way
  cost = np.mean(left_over, axis=1) + left_over[:, -1]
  for other in avoided:
    if np.max(np.abs(other - agent)) < _FARTHEST:
      touches = on_the_way & _touches(paths, other, _TOUCH + _MARGIN)
      cost += _TOUCH_COST * np.sum(touches, axis=1)
  if last_action in (LEFT, RIGHT):
    cost[_PLANS[:, 0] == (RIGHT if last_action == LEFT else LEFT)] = np.inf
  return int(_PLANS[np.argmin(cost), 0])


def _touches(paths: np.ndarray, place: np.ndarray, reach: float) -> np.ndarray:
  """Returns whether points of `paths` are within `reach` in both coordinates."""
  return np.all(np.abs(paths - place) < reach, axis=-1)


def _shut_down(game, folder: str) -> None:
  game.close()  # It writes its settings into the folder, so it comes first.
  shutil.rmtree(folder, ignore_errors=True)
