"""Makes the environments of experiments and collections."""

import contextlib
import inspect
import sys
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

import dm_env

from gtrxl_tf.environments import batched_environment
from gtrxl_tf.environments import gymnasium
from gtrxl_tf.settings import config


def make(owner: str, constructor: Callable[..., Any], /, seed: int,
         wrappers: Optional[Sequence[Callable[[Any], dm_env.Environment]]] = None,
         **settings) -> dm_env.Environment:
  """Makes an environment, and converts it to dm_env's interface if it is gymnasium's.

  >>> from gtrxl_tf import environments
  >>> environment = make('Experiment', environments.TMaze, seed=0,
  ...                    wrappers=[environments.ClipReward], corridor_length=3)
  >>> environment.reset().observation.shape
  (4,)

  Args:
    owner: name of the configurable with the argument `environment`, for the error.
    constructor: called with `seed` and `settings`. If it makes a `gymnasium.Env`, it
      need not take `seed`, since its first `reset` gets it.
    wrappers: applied in order, see `wrappers`.
  """
  with _named(f'{owner}.environment', constructor):
    made = _construct(owner, constructor, seed, settings)
  if _is_env('gymnasium', made):
    made = gymnasium.FromGymnasium(made, seed)
  elif not hasattr(made, 'observation_spec'):
    what = ('an environment of the old package gym: ' + gymnasium.OLD_GYM_MEND
            if _is_env('gym', made) else
            'neither a gymnasium.Env nor a dm_env.Environment: expected a class that derives '
            'from one, as in `class MyTask(gymnasium.Env)`')
    raise config.ConfigError(f'{owner}.environment makes an object of class '
                             f'{type(made).__name__}, which is {what}')
  for i, wrapper in enumerate(wrappers or ()):
    setting = f'{owner}.wrappers[{i}]'
    with _named(setting, wrapper):
      made = wrapper(made)
    if not hasattr(made, 'observation_spec'):
      raise config.ConfigError(
          f'{setting} = {config.name_of(wrapper)} returned a {type(made).__name__}: expected a '
          'dm_env.Environment; wrappers of gymnasium belong in a function that makes '
          'the environment')
  return made


@contextlib.contextmanager
def _named(setting: str, function: Callable[..., Any]) -> Iterator[None]:
  """Names the setting where the user's function raises an error."""
  try:
    yield
  except batched_environment.ERRORS as error:
    # Without a place it is not from the user's code: an argument does not fit.
    if isinstance(error, config.ConfigError) or (
        isinstance(error, (TypeError, ValueError)) and not config.place(error)):
      raise
    failed = batched_environment.EnvironmentFailed(
        f'making {setting} = {config.name_of(function)}: {config.described(error)}')
    # With the traceback of its cause, since gin drops causes.
    raise failed.with_traceback(error.__traceback__) from error


def _construct(owner: str, constructor: Callable[..., Any], seed: int,
               settings: Mapping[str, Any]) -> Any:
  """Calls the constructor; one of a `gymnasium.Env` need not take `seed`."""
  try:
    return constructor(seed=seed, **settings)
  except TypeError as error:
    with contextlib.suppress(ValueError):  # Some built-in callables have no signature.
      if 'seed' in inspect.signature(constructor).parameters:
        raise
    made = constructor(**settings)
    if isinstance(made, dm_env.Environment):
      raise config.ConfigError(
          f'{owner}.environment does not take the argument seed: expected a callable '
          'whose environments draw their random numbers from it') from error
    return made


def _is_env(package: str, environment: Any) -> bool:
  """Returns whether an object is an `Env` of a package, gymnasium or the old gym."""
  module = sys.modules.get(package)
  return module is not None and isinstance(environment, module.Env)


def task_settings(owner: str, tasks: Optional[Mapping[str, Sequence[Any]]]
                  ) -> list[dict[str, Any]]:
  """Returns the settings of each task: `[{setting: value}, ...]`.

  `tasks`, an argument of the configurable `owner`, maps the setting in which the tasks
  differ to its values; None is a single task, which has no separate settings.
  """
  if tasks is None:
    return [{}]
  if not (isinstance(tasks, Mapping) and len(tasks) == 1
          and all(isinstance(x, (list, tuple)) and x for x in tasks.values())):
    raise config.ConfigError(f'{owner}.tasks = {tasks!r}: expected one setting of '
                             'the environment and its values')
  [(setting, values)] = tasks.items()
  return [{setting: value} for value in values]
