"""Settings given as a few names, or as Python's own objects, which become gin.

`gtrxl train --env=CartPole-v1 --core=lstm` and `gtrxl_tf.train('CartPole-v1', core='lstm')`
both come here. What they mean is a gin file or a line of gin, so that a run's folder has
the same `config.gin` whichever way it was started.
"""

import functools
import inspect
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import numpy as np

from gtrxl_tf.settings import config
from gtrxl_tf.settings import gin_files

# The experiments that an environment without settings of its own becomes.
_ONLINE, _OFFLINE = 'gtrxl/gymnasium_cpu.gin', 'rate/own_data_cpu.gin'
# What each agent adds to `_ONLINE`, by the names that people type.
_AGENTS = {'ppo': [], 'vmpo': ['gtrxl/agents/vmpo.gin'],
           'r2d2': ['gtrxl/agents/r2d2.gin']}


def gin(environment: Any, core: Any = None, agent: Any = None,
        steps: Optional[int] = None, dataset: Optional[str] = None
        ) -> Tuple[List[str], List[str]]:
  """Returns the gin files of an experiment, and single settings that override them.

  The arguments are those of `gtrxl_tf.train`.
  """
  files, made = [_OFFLINE if dataset else _ONLINE], []
  setting, value = 'Experiment.environment', environment
  if isinstance(environment, str):
    setting, value = setting_of(environment)
  made.append(f'{setting} = {_text(value, made)}')
  core = core or ('rate' if dataset else 'gtrxl')
  if isinstance(core, str):
    # The former are cores with what offline training needs beside them.
    folder = 'rate/models' if dataset else 'cores'
    known = sorted(path.stem for path in (gin_files.FOLDER / folder).glob('*.gin'))
    if core not in known:
      raise config.ConfigError(f'core = {core!r}: expected one of {", ".join(known)}')
    files.append(f'{folder}/{core}.gin')
  else:
    owner = 'DecisionNetwork' if dataset else 'ActorCritic'
    made.append(f'{owner}.core = {_text(core, made)}'
                 + '()' * (not hasattr(core, '_arguments')))
  if isinstance(agent, str) and not dataset:
    if agent not in _AGENTS:
      raise config.ConfigError(
          f'agent = {agent!r}: expected one of {", ".join(_AGENTS)}')
    files += _AGENTS[agent]
  elif agent is not None:
    made.append(f'Experiment.agent = {_text(agent, made)}')
  kind = 'OfflineExperiment.learner' if dataset else 'OnlineExperiment.environment'
  if dataset:
    made.append(f'OfflineExperiment.dataset = {dataset!r}')
  if steps is not None:
    made.append(f'{kind}_steps = {steps!r}')
  return files, made


def setting_of(environment: str) -> Tuple[str, str]:
  """Returns the setting for the name of an environment, and its value as a text.

  A Python identifier names a class of this library, and anything else an id.
  """
  if environment.isidentifier():
    return 'Experiment.environment', f'@{environment}'
  return 'GymnasiumEnvironment.name', environment


def lines(settings: Mapping[str, Any]) -> List[str]:
  """Returns settings as lines of gin.

  Args:
    settings: values by their names in gin, as in `{'Adam.learning_rate': 1e-3}`. A text
      that begins with @ or % is a reference.
  """
  made = []
  for name, value in settings.items():
    made.append(f'{name} = {_text(value, made)}')
  return made


def _text(value: Any, lines: List[str]) -> str:
  """Writes a value as gin; adds the lines that it needs before its own to `lines`."""
  if isinstance(value, str) and value[:1] in ('@', '%'):
    return value
  if isinstance(value, functools.partial):
    if value.args:
      raise config.ConfigError(f'{value}: expected arguments by their names')
    return _with_arguments(value.func, value.keywords, lines)
  if hasattr(value, '_arguments'):  # A `SavableLayer`.
    return f'{_with_arguments(type(value), value._arguments, lines)}()'  # pylint: disable=protected-access
  if inspect.isclass(value) or inspect.isroutine(value):
    return _with_arguments(value, {}, lines)
  if isinstance(value, Mapping):
    return '{' + ', '.join(
        f'{_text(k, lines)}: {_text(x, lines)}' for k, x in value.items()) + '}'
  if isinstance(value, (list, tuple)):
    return '[' + ', '.join(_text(x, lines) for x in value) + ']'
  if isinstance(value, np.generic):
    value = value.item()
  if value is None or isinstance(value, (bool, int, float, str)):
    return repr(value)
  raise config.ConfigError(
      f'{value!r:.80}: expected a number, a string, a list or a dictionary of them, a '
      'core, or a class, a function or a functools.partial')


def _with_arguments(target: Callable, arguments: Dict[str, Any], lines: List[str]) -> str:
  """Returns the reference to a class or a function with arguments of its own."""
  name, imported = config.name_of(target), None
  if not config.is_own(target):
    name, imported = gin_files.define(name, target)
  if imported:
    lines.insert(0, f'import {imported}')
  scope = 'given/' if arguments else ''  # What is set elsewhere is not for this one.
  own = [f'{scope}{name}.{key} = {_text(value, lines)}'
         for key, value in arguments.items()]
  lines += own
  return f'@{scope}{name}'
