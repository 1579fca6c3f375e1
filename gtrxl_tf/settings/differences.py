"""The settings of a run, as two processes compare them.

Gin text becomes a dictionary from a setting's name to its value as text. Macros are
replaced by their values, numbers and lists are written in one way, and settings that
have their default value are left out. Gin files that mean the same therefore give the
same dictionary, whichever defaults they mention.
"""

import fnmatch
import inspect
import json
import tokenize
from typing import Any, Dict, Iterable, Mapping, NamedTuple, Optional, Sequence

import gin
from gin import config_parser

from gtrxl_tf.settings import config

Settings = Mapping[str, str]

# Settings that may differ between the parts of a run: each concerns one part only, and
# changes nothing in what the others send or expect. The workers of one learner are one
# part: they must have the same settings, see `Trainer`.
OF_ONE_PART = (
    'Checkpoints.*',
    'Experiment.checkpoints',
    'Experiment.compute_dtype',
    'Experiment.evaluation_episodes',
    'Experiment.log_period',
    'Experiment.reference_lines',
    'Inference.max_batch',
    'Inference.max_wait_ms',
    'Inference.num_servers',
    'OnlineExperiment.environment_steps',
    'OnlineExperiment.evaluator',
    'OnlineExperiment.inference',
    'OnlineExperiment.num_evaluations',
    'OnlineExperiment.stall_seconds',
    'OnlineExperiment.transport',
)
# Settings that decide how long a run trains. More steps extend a run that has ended, and
# stretch a schedule that ends with it.
OF_LENGTH = ('OnlineExperiment.environment_steps', 'OfflineExperiment.learner_steps')
# Settings that may be changed on purpose in a run that was started. All others decide
# what its weights, its optimizer and its data are.
CHANGEABLE = (
    *OF_ONE_PART,
    *OF_LENGTH,
    'Experiment.score',
    'd4rl_score.*',
    'Inference.*',
    'OfflineExperiment.dataset',  # It may have moved.
    'OfflineExperiment.evaluation_period',
    'OfflineExperiment.steps_per_call',
    'OnlineExperiment.num_actors',
)

_MOST_NAMED = 10  # Differences that a message lists.


class Difference(NamedTuple):
  """A setting with different values, as text."""
  name: str
  here: str
  there: str


class _Reference(NamedTuple):
  """A reference to a configurable or a macro, as in `@GTrXL()` and `%size`."""
  text: str


class _Delegate(config_parser.ParserDelegate):
  """Keeps references as text, so that nothing needs to be registered with gin."""

  def configurable_reference(self, scoped_name: str, evaluate: bool) -> _Reference:
    return _Reference(f'@{_key(scoped_name)}' + '()' * evaluate)

  def macro(self, name: str) -> _Reference:
    return _Reference(f'%{name}')


def given() -> Dict[str, str]:
  """Returns the settings that gin has been given in this process."""
  return parse(gin.config_str())


def operative() -> Dict[str, str]:
  """Returns the settings that this process has used so far."""
  return parse(gin.operative_config_str())


def parse(text: str, with_defaults: bool = False) -> Dict[str, str]:
  """Reads settings from gin text without includes: by default those that are no defaults."""
  macros, values = _bindings(text)
  texts = {name: _text(value, macros) for name, value in values.items()}
  return {name: text for name, text in texts.items()
          if with_defaults or text != _inherited(name, texts)}


def names(texts: Iterable[str]) -> set[str]:
  """Returns the names of what texts of gin set, without scopes and modules."""
  macros, values = _bindings('\n'.join(texts))
  return {'.'.join(name.rpartition('/')[2].split('.')[-2:]) for name in (*macros, *values)}


def _bindings(text: str) -> tuple[Dict[str, Any], Dict[str, Any]]:
  """Returns the values of macros and of settings, by their names with scopes."""
  macros, values = {}, {}
  try:
    for line in config_parser.ConfigParser(text, _Delegate()):
      if isinstance(line, config_parser.BindingStatement):
        key = _key('/'.join(filter(None, [line.scope, line.selector])))
        if line.arg_name:
          values[f'{key}.{line.arg_name}'] = line.value
        else:
          macros[key] = line.value
  except (SyntaxError, tokenize.TokenError, ValueError, TypeError) as error:
    raise config.ConfigError(f'not gin: {config.one_line(error)}') from error
  return macros, values


def _key(scoped_name: str) -> str:
  """Removes this library's module, which gin writes where a name is not unique."""
  scope, slash, name = scoped_name.rpartition('/')
  return f'{scope}{slash}{name.removeprefix(f"{config.MODULE}.")}'


def _inherited(name: str, settings: Settings) -> Optional[str]:
  """Returns the value that a setting has without its own line; None if it has none."""
  *scope, own = name.split('/')
  for length in reversed(range(len(scope))):
    if (shorter := '/'.join([*scope[:length], own])) in settings:
      return settings[shorter]
  return _default(own)


def _default(name: str) -> Optional[str]:
  """Returns the default of a setting; None if it has none, or is none of this library's."""
  owner, _, parameter = name.rpartition('.')
  try:
    found = inspect.signature(gin.get_configurable(owner)).parameters[parameter]
  except (KeyError, TypeError, ValueError):
    return None
  return None if found.default is found.empty else _text(found.default, {})


def _text(value: Any, macros: Mapping[str, Any]) -> str:
  """Writes a value so that equal values have equal texts."""
  if isinstance(value, _Reference):
    macro = value.text.removeprefix('%')
    if macro == value.text or macro not in macros:
      return value.text
    return _text(macros[macro], {name: x for name, x in macros.items() if name != macro})
  if isinstance(value, dict):
    items = sorted(f'{_text(k, macros)}: {_text(v, macros)}' for k, v in value.items())
    return '{' + ', '.join(items) + '}'
  if isinstance(value, (list, tuple)):
    return '[' + ', '.join(_text(x, macros) for x in value) + ']'
  if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
    return repr(int(value))
  if callable(value):
    return f'@{config.name_of(value)}'
  return repr(value)


def differences(here: Settings, there: Settings, ignored: Sequence[str] = ()
                ) -> list[Difference]:
  """Returns the settings whose values differ, sorted by name.

  Args:
    here: settings.
    there: other settings.
    ignored: patterns of names that may differ, as `fnmatch` has them; they do not
      include the scope before a name.
  """
  def value(name, settings):
    return settings.get(name) or _inherited(name, settings) or 'not set'
  return [Difference(name, value(name, here), value(name, there))
          for name in sorted({*here, *there})
          if here.get(name) != there.get(name) and not matches(name, ignored)]


def matches(name: str, patterns: Sequence[str]) -> bool:
  """Returns whether a setting's name, without its scope, matches one of `patterns`."""
  return any(fnmatch.fnmatchcase(name.rpartition('/')[2], x) for x in patterns)


def describe(found: Sequence[Difference], here: str = 'here') -> str:
  """Lists differences in one line, as `Adam.learning_rate = 0.1 (here 0.2)`."""
  named = [f'{x.name} = {x.there} ({here} {x.here})' for x in found[:_MOST_NAMED]]
  if len(found) > _MOST_NAMED:
    named.append(f'and {len(found) - _MOST_NAMED} more')
  return ', '.join(named)


def to_json(settings: Settings) -> str:
  """Writes settings for another process."""
  return json.dumps(dict(settings), sort_keys=True)


def from_json(text: str) -> Dict[str, str]:
  """Reads what `to_json` wrote."""
  return json.loads(text)
