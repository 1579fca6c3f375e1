"""Tasks that need memory, by name, and batches of them.

| name              | what is remembered                                              |
|-------------------|-----------------------------------------------------------------|
| `numpad`          | a sequence of pads, found by trial, for the rest of the episode |
| `t_maze`          | one bit, along a corridor of any length                         |
| `action_associative_retrieval` | one's own first action (RATE, appendix C) |
| `action_recall`   | one of a few actions, over a fixed delay                        |
| `dark_room`       | a goal in the dark, from one episode to the next                |
| `dark_key_to_door` | a key and a door, likewise                                     |
| `numpad_mujoco`   | the paper's Numpad: a rolling sphere, continuous actions        |
| `apple_maze`      | where the apple is; GTrXL's Memory Maze, hybrid actions         |
| `memory_maze`     | a maze and its coloured balls (Pasukonis et al., 2022)          |
| `minigrid_memory` | an object, seen at the start of a corridor                      |
| `atari`           | little: 57 games, for comparison                                |
| `dmlab`           | much or little: the 30 levels of DMLab-30                       |
| `vizdoom_two_colors` | a colour, seen for 45 steps: which items heal (RATE)         |

The last seven need packages of the extra `envs` or, `dmlab`, one built from source.
Their modules import without.
"""

import inspect
from typing import Any, Dict, List, Mapping, Optional, Sequence

import dm_env

from gtrxl_tf import config
from gtrxl_tf.environments import action_recall
from gtrxl_tf.environments import apple_maze
from gtrxl_tf.environments import atari
from gtrxl_tf.environments import dark_room
from gtrxl_tf.environments import dmlab
from gtrxl_tf.environments import memory_maze
from gtrxl_tf.environments import memory_task
from gtrxl_tf.environments import minigrid_memory
from gtrxl_tf.environments import numpad
from gtrxl_tf.environments import numpad_mujoco
from gtrxl_tf.environments import t_maze
from gtrxl_tf.environments import vizdoom_two_colors
from gtrxl_tf.environments.bandit import BanditFamily
from gtrxl_tf.environments.batched import BatchedEnvironment
from gtrxl_tf.environments.batched import BatchedTimeStep
from gtrxl_tf.environments.batched import random_value
from gtrxl_tf.environments.dark_room_batch import DarkRoomFamily
from gtrxl_tf.environments.memory_task import MemoryTask
from gtrxl_tf.environments.memory_task import informed_return
from gtrxl_tf.environments.task_batch import TaskBatch
from gtrxl_tf.environments.task_batch import TaskFamily

_ENVIRONMENTS = {
    'action_associative_retrieval': action_recall.ActionAssociativeRetrieval,
    'action_recall': action_recall.ActionRecall,
    'apple_maze': apple_maze.AppleMaze,
    'atari': atari.Atari,
    'dark_key_to_door': dark_room.DarkKeyToDoor,
    'dark_room': dark_room.DarkRoom,
    'dmlab': dmlab.DMLab,
    'memory_maze': memory_maze.MemoryMaze,
    'minigrid_memory': minigrid_memory.MinigridMemory,
    'numpad': numpad.Numpad,
    'numpad_mujoco': numpad_mujoco.NumpadMujoco,
    't_maze': t_maze.TMaze,
    'vizdoom_two_colors': vizdoom_two_colors.VizdoomTwoColors,
}


def task_settings(owner: str, tasks: Optional[Mapping[str, Sequence[Any]]]
                  ) -> List[Dict[str, Any]]:
  """The settings of each of several tasks; there are none of a single one.

  Args:
    owner: what has `tasks` as an argument, for the error.
    tasks: the setting of an environment in which they differ, and its values.

  Raises:
    config.ConfigError: that is not what `tasks` is.
  """
  if tasks is None:
    return [{}]
  if not (isinstance(tasks, Mapping) and len(tasks) == 1
          and all(isinstance(x, (list, tuple)) and x for x in tasks.values())):
    raise config.ConfigError(f'{owner}.tasks = {tasks!r}: expected one setting of '
                             'the environment and its values')
  [(setting, values)] = tasks.items()
  return [{setting: value} for value in values]


@config.configurable(name='make_environment')
def make(name: str, **settings) -> dm_env.Environment:
  """Creates the environment called `name`.

  Args:
    name: a name from the table above.
    **settings: arguments of the environment's constructor; those not given here may be
      set by gin (`Numpad.size = 2`).

  Raises:
    config.ConfigError: a name or a setting that does not exist, or a value that does
      not fit.
  """
  if name not in _ENVIRONMENTS:
    raise config.ConfigError(f'make_environment.name = {name!r}: expected one of '
                             + ', '.join(map(repr, sorted(_ENVIRONMENTS))))
  constructor = _ENVIRONMENTS[name]
  known = inspect.signature(constructor).parameters
  for setting in settings:
    if setting not in known:
      raise config.ConfigError(f'{constructor.__name__} has no setting {setting!r}: '
                               f'expected one of {", ".join(map(repr, known))}')
  return constructor(**settings)
