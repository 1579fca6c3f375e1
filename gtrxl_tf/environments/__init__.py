"""Tasks that need memory, by name, and batches of them.

| name            | what is remembered                                             |
|-----------------|----------------------------------------------------------------|
| `numpad`        | a sequence of pads, found by trial, for the rest of the episode |
| `t_maze`        | one bit, along a corridor of any length                        |
| `action_recall` | one of a few actions, over a fixed delay                       |
"""

import inspect

from gtrxl_tf import config
from gtrxl_tf.environments import action_recall
from gtrxl_tf.environments import memory_task
from gtrxl_tf.environments import numpad
from gtrxl_tf.environments import t_maze
from gtrxl_tf.environments.batched import BatchedEnvironment
from gtrxl_tf.environments.batched import BatchedTimeStep
from gtrxl_tf.environments.memory_task import MemoryTask
from gtrxl_tf.environments.memory_task import informed_return

_ENVIRONMENTS = {
    'action_recall': action_recall.ActionRecall,
    'numpad': numpad.Numpad,
    't_maze': t_maze.TMaze,
}


@config.configurable(name='make_environment')
def make(name: str, **settings) -> memory_task.MemoryTask:
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
