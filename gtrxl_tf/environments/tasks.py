"""Several tasks of one environment, which differ in one setting, and their making."""

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import dm_env

from gtrxl_tf import config


def task_settings(owner: str, tasks: Optional[Mapping[str, Sequence[Any]]]
                  ) -> List[Dict[str, Any]]:
  """Returns the settings of each task: `[{setting: value}, ...]`.

  Args:
    owner: name of the configurable that has the argument `tasks`, for the error.
    tasks: maps the setting in which the tasks differ to its values; None for a single
      task, which has no settings of its own.

  Raises:
    config.ConfigError: `tasks` is not a setting with its values.
  """
  if tasks is None:
    return [{}]
  if not (isinstance(tasks, Mapping) and len(tasks) == 1
          and all(isinstance(x, (list, tuple)) and x for x in tasks.values())):
    raise config.ConfigError(f'{owner}.tasks = {tasks!r}: expected one setting of '
                             'the environment and its values')
  [(setting, values)] = tasks.items()
  return [{setting: value} for value in values]


def make_environment(owner: str, environment: Callable[..., dm_env.Environment],
                     seed: int, settings: Mapping[str, Any]) -> dm_env.Environment:
  """Makes an environment of a task.

  Args:
    owner: name of the configurable that has the argument `environment`, for the error.
    environment: makes it.
    seed: its argument `seed`.
    settings: its other arguments.

  Raises:
    config.ConfigError: `environment` does not take the argument `seed`.
  """
  try:
    return environment(seed=seed, **settings)
  except TypeError as error:
    text = str(error)
    if ("unexpected keyword argument 'seed'" not in text
        and 'takes no arguments' not in text):
      raise
    raise config.ConfigError(
        f'{owner}.environment does not take the argument seed: expected a callable '
        'whose environments draw their random numbers from it; add seed=None to the '
        "constructor's arguments, and seed its generator with it") from error
