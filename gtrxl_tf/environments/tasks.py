"""Several tasks of one environment, which differ in one setting."""

from typing import Any, Dict, List, Mapping, Optional, Sequence

from gtrxl_tf.settings import config


def task_settings(owner: str, tasks: Optional[Mapping[str, Sequence[Any]]]
                  ) -> List[Dict[str, Any]]:
  """Returns the settings of each task: `[{setting: value}, ...]`.

  Args:
    owner: name of the configurable that has the argument `tasks`, for the error.
    tasks: maps the setting in which the tasks differ to its values; None for a single
      task, which has no separate settings.
  """
  if tasks is None:
    return [{}]
  if not (isinstance(tasks, Mapping) and len(tasks) == 1
          and all(isinstance(x, (list, tuple)) and x for x in tasks.values())):
    raise config.ConfigError(f'{owner}.tasks = {tasks!r}: expected one setting of '
                             'the environment and its values')
  [(setting, values)] = tasks.items()
  return [{setting: value} for value in values]
