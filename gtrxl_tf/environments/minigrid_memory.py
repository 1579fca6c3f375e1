"""Minigrid-Memory: an object in a room shows where to turn at a hallway's end.

The task is `MemoryEnv` of the package minigrid (Chevalier-Boisvert et al., 2023), with
the observations of the package or of *RATE* (appendix B, "Minigrid-Memory").
"""

from typing import Optional

import dm_env
from dm_env import specs
import numpy as np

from gtrxl_tf.environments import episodic
from gtrxl_tf.environments import optional
from gtrxl_tf.settings import config

# The package's actions; in this task PICKUP, DROP, TOGGLE and DONE do nothing.
LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE, DONE = range(7)

# Cells along a side of the agent's view: the package's default, and RATE's.
_SYMBOLS_VIEW, _PIXELS_VIEW = 7, 3
_CELL_PIXELS = 28
_MAX_INDEX = 10  # The package's largest kind of object, colour or state.
_UNSEEN = 0  # The kind of a cell that is hidden from the agent.
_DIRECTIONS = episodic.constant_rows(np.eye(4))


@config.configurable
class MinigridMemory(episodic.MemoryTask):
  """A room with a key or a ball, a hallway, and a key and a ball at its two ends.

  The agent starts anywhere between the room in the west and the junction in the east,
  facing east. To succeed it must go back to the room and look at the object there, walk
  to the junction, and turn to the end with the same kind of object. Each episode draws
  which kind lies at which end, so the agent has to look at the ends too. The episode
  ends one step before either object, with discount 0. The reward after t steps is
  1 - 0.9 t / T if the end is the right one, else 0; T is `max_steps`. After T steps the
  episode is cut off, with discount 1.

  The actions are the package's seven: turn left, turn right, go forward, and four that
  change nothing here. Observations are, as in the package:

    direction: float32 [4], one-hot: east, south, west, north. (The package gives the
      index.)
    image: uint8 [7, 7, 3], the kind, colour and state of each cell in view, as indices
      up to 10. The agent is at [3, 6] and faces [3, 5]; walls hide what is behind them.

  or, with `pixels`, as in RATE:

    image: uint8 [84, 84, 3], a picture of the 3 x 3 cells in view, 28 pixels a cell.

  The size of images changes with `view`.
  """
  action_names = 'left', 'right', 'forward', 'pickup', 'drop', 'toggle', 'done'

  def __init__(self,
               size: config.PositiveInt = 13,
               pixels: bool = False,
               view: Optional[config.PositiveInt] = None,
               max_steps: Optional[config.PositiveInt] = None,
               seed: Optional[config.NonNegativeInt] = None):
    """Creates the task.

    Args:
      size: cells along a side of the grid, with its walls; odd, at least 7. The package
        registers 7 to 17; RATE trains on 31 and tests on 11 to 91. In smaller grids
        the walls of the room and of the ends would coincide.
      pixels: whether to observe a picture, without the direction.
      view: cells along a side of the agent's view; odd, at least 3. The default is the
        package's 7, and RATE's 3 in pictures.
      max_steps: T, 5 size^2 by default, as in the package. RATE has 95.
      seed: seeds everything that is drawn.
    """
    view = view or (_PIXELS_VIEW if pixels else _SYMBOLS_VIEW)
    for name, value, least in (('size', size, 7), ('view', view, 3)):
      if value < least or value % 2 == 0:
        raise config.ConfigError(
            f'MinigridMemory.{name} = {value}: expected an odd integer >= {least}')
    super().__init__(num_actions=7, seed=seed)
    envs = optional.load('minigrid.envs', needed_by='MinigridMemory')
    self._pixels = pixels
    self._view = view
    self._minigrid = envs.MemoryEnv(size=size, max_steps=max_steps, agent_view_size=view)
    self._middle = size // 2  # y of the hallway and of the room's middle row.
    self._junction = (size - 2, self._middle)
    self._clue = (1, self._middle - 1)
    self._end_objects = [(size - 2, self._middle - 2), (size - 2, self._middle + 2)]
    self._reset()  # Every attribute of an episode exists from here on.

  def informed_action(self) -> int:
    """Returns the action that leads straight to the right end."""
    return self._towards(self._minigrid.success_pos)

  def looking_action(self) -> int:
    """Returns an action, given the map and the objects that have been in view.

    The policy goes west until the object of the room comes into view, then to the
    junction, turns left until one of the objects at the ends comes into view, and goes
    to the right end. Objects count as seen from the start of the episode, whatever
    policy chose the actions. Episodes collected in this way show all that an imitator
    needs to know.
    """
    if not self._clue_seen:
      return self._towards((1, self._middle))
    if self._end_seen:
      return self.informed_action()
    if self._position() == self._junction:
      return LEFT
    return self._towards(self._junction)

  def render(self) -> np.ndarray:
    """Returns a picture of the whole grid with the agent's view, uint8 [H, W, 3]."""
    return self._minigrid.get_frame(highlight=True, tile_size=16)

  def observation_spec(self) -> dict[str, specs.Array]:
    if self._pixels:
      side = self._view * _CELL_PIXELS
      return {'image': specs.BoundedArray([side, side, 3], np.uint8, 0, 255, name='image')}
    return {
        'direction': specs.BoundedArray([4], np.float32, 0, 1, name='direction'),
        'image': specs.BoundedArray([self._view, self._view, 3], np.uint8,
                                    0, _MAX_INDEX, name='image'),
    }

  def _reset(self) -> dm_env.TimeStep:
    symbols, _ = self._minigrid.reset(seed=int(self._rng.integers(2**31)))
    self._success = False
    self._clue_seen = self._end_seen = False
    self._look(symbols['image'])
    return dm_env.restart(self._observation(symbols))

  def _step(self, action: int) -> dm_env.TimeStep:
    symbols, reward, terminated, truncated, _ = self._minigrid.step(action)
    self._look(symbols['image'])
    self._success = terminated and self._position() == self._minigrid.success_pos
    return episodic.later_step(
        float(reward), self._observation(symbols), terminated, truncated)

  def _observation(self, symbols) -> dict[str, np.ndarray]:
    if self._pixels:
      return {'image': self._minigrid.get_pov_render(_CELL_PIXELS)}
    return {'direction': _DIRECTIONS[symbols['direction']], 'image': symbols['image']}

  def _look(self, image: np.ndarray) -> None:
    """Notes which of the objects have been in view."""
    def sees(position: tuple[int, int]) -> bool:
      cell = self._minigrid.relative_coords(*position)
      return cell is not None and image[cell][0] != _UNSEEN

    self._clue_seen = self._clue_seen or sees(self._clue)
    self._end_seen = self._end_seen or any(map(sees, self._end_objects))

  def _position(self) -> tuple[int, int]:
    x, y = self._minigrid.agent_pos
    return int(x), int(y)

  def _towards(self, target: tuple[int, int]) -> int:
    """Returns the action on the shortest way, which follows the hallway's row."""
    x, y = self._position()
    goal_x, goal_y = target
    if x != goal_x and y == self._middle:
      heading = 0 if x < goal_x else 2
    else:  # In the room, beside the middle row, or at the end.
      heading = 1 if y < (goal_y if x == goal_x else self._middle) else 3
    turns = (heading - self._minigrid.agent_dir) % 4
    return (FORWARD, RIGHT, RIGHT, LEFT)[turns]
