"""DarkRoom and DarkKeyToDoor as single environments; `dark_room_batch` has the rules.

The large forms of *Memory-Efficient Algorithm Distillation* differ only in size and
episode length.
"""

from typing import Optional, Sequence

import numpy as np

from gtrxl_tf.environments import dark_room_batch
from gtrxl_tf.environments import rendering
from gtrxl_tf.environments import task_batch
from gtrxl_tf.settings import config

Cell = Sequence[config.NonNegativeInt]


class _DrawnRoom(task_batch.SingleTask):
  """A room that can be drawn."""

  def render(self) -> np.ndarray:
    """Returns a picture, uint8 [H, W, 3], with the targets, which agents do not see."""
    size = int(self.observation_spec().maximum) + 1
    x, y = map(int, self._observation())
    cells = {(size - 1 - y, x): colour for (x, y), colour in zip(
        reversed(self._tasks.targets[0].tolist()), (rendering.GOAL, rendering.LIT))}
    return rendering.draw_grid(size, size, cells, (size - 1 - y, x))


@config.configurable
class DarkRoom(_DrawnRoom):
  """A room without light, with an invisible goal to find and to remember.

  Observations are uint8 [2]: x and y of the agent. It begins every episode in the
  centre and moves up, down, left, right or not at all. Reaching the goal ends the
  episode. The goal stays in the same place in all episodes.
  """

  def __init__(self,
               size: dark_room_batch.Size = 9,
               episode_length: config.PositiveInt = 20,
               task: dark_room_batch.Task = 'normal',
               goal: Optional[Cell] = None,
               seed: Optional[config.NonNegativeInt] = None):
    """Creates the task; the defaults are the paper's setting dr.

    Args:
      size: the room has `size` times `size` cells; 13 or 15 in the large form.
      episode_length: steps after which an episode is cut off; 50 in the large form.
      task: which rewards there are, see `DarkRooms`.
      goal: [x, y]; if None, it is drawn uniformly from all cells but the centre.
      seed: seeds the goal.
    """
    super().__init__(dark_room_batch.DarkRooms(
        _targets(size, [goal], seed), size, episode_length, task))


@config.configurable
class DarkKeyToDoor(_DrawnRoom):
  """A dark room with an invisible key, and a door that it opens.

  The rules are those of `DarkRoom`, but the agent has to step on the key first and then
  on the door, which ends the episode. The agent does not see whether it has the key.
  """

  def __init__(self,
               size: dark_room_batch.Size = 9,
               episode_length: config.PositiveInt = 50,
               task: dark_room_batch.Task = 'normal',
               key: Optional[Cell] = None,
               door: Optional[Cell] = None,
               seed: Optional[config.NonNegativeInt] = None):
    """Creates the task; the defaults are the paper's setting dktd.

    Args:
      size: the room has `size` times `size` cells; 11 in the large form.
      episode_length: steps after which an episode is cut off; 70 in the large form.
      task: which rewards there are, see `DarkRooms`.
      key: [x, y]; if None, it is drawn uniformly from all cells but the centre and the
        door.
      door: [x, y]; if None, it is drawn in the same way.
      seed: seeds key and door.
    """
    super().__init__(dark_room_batch.DarkRooms(
        _targets(size, [key, door], seed), size, episode_length, task))


def _targets(size: int, given: Sequence[Optional[Cell]], seed: Optional[int]
             ) -> np.ndarray:
  """Returns the targets, [1, K, 2]; those that are None are drawn."""
  if any(cell is not None and len(cell) != 2 for cell in given):
    raise config.ConfigError(f'the targets {list(given)}: expected each to be [x, y]')
  taken = {(size // 2, size // 2), *(tuple(cell) for cell in given if cell is not None)}
  free = [(x, y) for x in range(size) for y in range(size) if (x, y) not in taken]
  drawn = iter(np.random.default_rng(seed).permutation(free))
  return np.array([[next(drawn) if cell is None else cell for cell in given]])
