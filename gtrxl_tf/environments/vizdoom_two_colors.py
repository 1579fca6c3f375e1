"""ViZDoom-Two-Colors: the colour of a pillar at the start shows which items heal.

The task is that of *RATE* (section 4.1 and appendix B), after Sorokin et al. (2022) and
Beeching et al. (2019). The scenario is this library's own: see vizdoom_scenario.
"""

import contextlib
import os
import shutil
import tempfile
from typing import Any, Iterator, Literal, Optional
import weakref

import dm_env
from dm_env import specs
import numpy as np

from gtrxl_tf import files
from gtrxl_tf.environments import memory_task
from gtrxl_tf.environments import optional
from gtrxl_tf.environments import vizdoom_scenario
from gtrxl_tf.environments import vizdoom_steering
from gtrxl_tf.settings import config

_LIVING_REWARD = 0.01  # A tic.
_HALF_VIEW = np.radians(45)


@config.configurable
class VizdoomTwoColors(memory_task.MemoryTask):
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
  action_names = vizdoom_steering.ACTION_NAMES

  def __init__(self,
               pillar: Optional[Literal[vizdoom_scenario.COLOURS]] = None,
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
    super().__init__(num_actions=len(vizdoom_steering.BUTTONS), seed=seed)
    self._vizdoom = optional.load('vizdoom', needed_by='VizdoomTwoColors')
    self._cv2 = optional.load('cv2', needed_by='VizdoomTwoColors')
    self._penalty = penalty
    self._max_steps = max_steps
    self._frame_skip = frame_skip
    self._shape = (height, width, 3)
    self._green_bias = green_bias
    self._game = self._start(vizdoom_scenario.wad(
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
    self._game.make_action(vizdoom_steering.BUTTONS[action], self._frame_skip)
    self._steps += 1
    taken = np.array([self._variable('USER1'), self._variable('USER2')])
    matching, other = taken - self._taken
    self._taken = taken
    reward = matching - self._penalty * other
    if self._game.is_episode_finished():  # The engine draws nothing after death.
      return dm_env.termination(float(reward), {'image': self._image.copy()})
    self._image = self._draw()
    reward = float(reward + _LIVING_REWARD * self._frame_skip)
    if self._steps == self._max_steps:
      return dm_env.truncation(reward, {'image': self._image})
    return dm_env.transition(reward, {'image': self._image})

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
    items = {item.id: (vizdoom_scenario.ITEMS.index(item.name),
                       np.array([item.position_x, item.position_y]))
             for item in self._game.get_state().objects
             if item.name in vizdoom_scenario.ITEMS}

    if self._target not in items:
      if self._wanted is None:  # Drawn once for each item.
        mistaken = self._red and self._mistakes.random() < green_bias
        self._wanted = int(self._red and not mistaken)
      distances = {
          i: np.linalg.norm(place - agent) for i, (colour, place) in items.items()
          if colour == self._wanted
          and abs(vizdoom_steering.bearing(agent, heading, place)) < _HALF_VIEW}
      if not distances:
        return vizdoom_steering.LEFT
      self._target = min(distances, key=distances.get)
      self._wanted = self._steered = None
    target_colour, target = items[self._target]
    others = [place for colour, place in items.values() if colour != target_colour]
    self._steered = vizdoom_steering.steer(
        agent, velocity, heading, target, others, self._steered)
    return self._steered


@contextlib.contextmanager
def _starting_alone() -> Iterator[None]:
  """Waits until no other process is starting an engine in the working folder.

  An engine makes the folder `_vizdoom` where it is started. It ends if another one makes
  the folder at the same moment.
  """
  folder = os.open('.', os.O_RDONLY)
  try:
    with contextlib.suppress(OSError):  # A file system without locks.
      files.lock(folder, wait=True)
    yield
  finally:
    os.close(folder)


def _shut_down(game, folder: str) -> None:
  game.close()  # It writes its settings into the folder, so it comes first.
  shutil.rmtree(folder, ignore_errors=True)
