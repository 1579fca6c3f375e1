"""DarkRoom and DarkKeyToDoor as single environments; `dark_room_batch` has the rules.

The large forms of the paper differ in size and episode length only: `of_setting` makes
what each of its eight settings has.
"""

from typing import Optional, Sequence

import numpy as np

from gtrxl_tf import config
from gtrxl_tf.environments import dark_room_batch
from gtrxl_tf.environments import task_batch

Cell = Sequence[config.NonNegativeInt]


@config.configurable
class DarkRoom(task_batch.SingleTask):
  """A room without light: an invisible goal, to be found and to be remembered.

  Observations are uint8 [2]: x and y of the agent. It begins every episode in the
  centre and moves up, down, left, right or not at all. The goal stays where it is from
  episode to episode, and to reach it ends the episode.
  """

  def __init__(self,
               size: dark_room_batch.Size = 9,
               episode_length: config.PositiveInt = 20,
               task: dark_room_batch.Task = 'normal',
               goal: Optional[Cell] = None,
               dense_goal_reward: float = 0.0,
               seed: Optional[config.NonNegativeInt] = None):
    """Creates the task; the defaults are the paper's setting dr.

    Args:
      size: the room has `size` times `size` cells; 13 or 15 in the large form.
      episode_length: steps after which an episode is cut off; 50 in the large form.
      task: which rewards there are.
      goal: [x, y]; drawn uniformly if None, but never the centre.
      dense_goal_reward: of the step that reaches the goal, where the task is dense.
      seed: of the goal.
    """
    super().__init__(dark_room_batch.DarkRooms(
        _targets(size, [goal], seed), size, episode_length, task, dense_goal_reward))


@config.configurable
class DarkKeyToDoor(task_batch.SingleTask):
  """A dark room with an invisible key, and a door that it opens.

  As `DarkRoom`, but the agent has to step on the key first and then on the door, which
  ends the episode. It is not shown whether it has the key.
  """

  def __init__(self,
               size: dark_room_batch.Size = 9,
               episode_length: config.PositiveInt = 50,
               task: dark_room_batch.Task = 'normal',
               key: Optional[Cell] = None,
               door: Optional[Cell] = None,
               dense_goal_reward: float = 0.0,
               seed: Optional[config.NonNegativeInt] = None):
    """Creates the task; the defaults are the paper's setting dktd.

    Args:
      size: the room has `size` times `size` cells; 11 in the large form.
      episode_length: steps after which an episode is cut off; 70 in the large form.
      task: which rewards there are.
      key: [x, y]; drawn uniformly if None, but never the centre or the door.
      door: [x, y]; likewise.
      dense_goal_reward: of the step that opens the door, where the task is dense.
      seed: of key and door.
    """
    super().__init__(dark_room_batch.DarkRooms(
        _targets(size, [key, door], seed), size, episode_length, task,
        dense_goal_reward))


def of_setting(name: str, **settings) -> task_batch.SingleTask:
  """The environment of one of `dark_room_batch.SETTINGS`."""
  setting = dark_room_batch.SETTINGS[name]
  constructor = DarkRoom if setting.num_targets == 1 else DarkKeyToDoor
  return constructor(size=setting.size, episode_length=setting.episode_length,
                     task=setting.task, **settings)


def _targets(size: int, given: Sequence[Optional[Cell]], seed: Optional[int]
             ) -> np.ndarray:
  """[1, K, 2] of which those are drawn that are None."""
  if any(cell is not None and len(cell) != 2 for cell in given):
    raise config.ConfigError(f'the targets {list(given)}: expected each to be [x, y]')
  taken = {(size // 2, size // 2), *(tuple(cell) for cell in given if cell is not None)}
  free = [(x, y) for x in range(size) for y in range(size) if (x, y) not in taken]
  drawn = iter(np.random.default_rng(seed).permutation(free))
  return np.array([[next(drawn) if cell is None else cell for cell in given]])
