"""Type-checked gin: one decorator, a few argument types, one parser.

A configurable declares what it accepts in its signature, with the types below or
with `Literal`, `Optional` and plain `int`, `float`, `bool`, `str`. Arguments, from gin
or from a caller, are checked before the body runs, so that a wrong setting stops a run
before any process, file or server exists:

  @config.configurable
  class DeepLSTM(core.Core):
    def __init__(self, num_layers: config.NumLayers = 3, ...):

  DeepLSTM.num_layers = 0: expected an integer >= 1 and <= 1000
"""

import collections.abc
import dataclasses
import difflib
import functools
import importlib.util  # noqa: F401 (gin uses it without importing it)
import inspect
import linecache
import math
import numbers
import os
import re
import sysconfig
import tokenize
import traceback
import typing
from typing import Annotated, Any, Callable, Optional, Sequence

import gin

from gtrxl_tf.settings import gin_files

MODULE = 'gtrxl_tf'
_LONGEST, _LONGEST_VALUE = 2000, 200  # Characters of a message, and of a value in it.
_GREATEST = (2 - 2**-23) * 2.0**127  # Of float32, in which networks and losses compute.

_parameters = {}  # The parameters that gin may set, by the configurable's name.
_classes = {}  # The configurables that are classes, by name.
_names = {}  # The names of configurables.
_modules = set()  # Names of the modules that define configurables.


class ConfigError(ValueError):
  """A setting that cannot be used. The message is one line."""


@dataclasses.dataclass(frozen=True)
class Range:
  """Numbers from `low` to `high`; `low` itself is excluded if `open`."""
  low: float
  high: float = math.inf
  open: bool = False

  def admits(self, value) -> bool:
    return self.low <= value <= self.high and not (self.open and value == self.low)

  def of(self, kind: str) -> str:
    """The numbers of a kind, as Python would compare them: `1 <= int <= 1000`."""
    above = '<' if self.open else '<='
    if math.isinf(self.high):
      return f'{kind} {above.replace("<", ">")} {self.low}'
    return f'{self.low} {above} {kind} <= {self.high}'

  def __str__(self):
    text = f'{">" if self.open else ">="} {self.low}'
    return text if math.isinf(self.high) else f'{text} and <= {self.high}'


PositiveInt = Annotated[int, Range(1)]
# Layers of a stack. More would take minutes to make, and far longer to compile.
NumLayers = Annotated[int, Range(1, 1000)]
# Steps of a memory. A longer one would fill the machine before its size is compared.
MemoryLength = Annotated[int, Range(1, 100_000)]
NonNegativeInt = Annotated[int, Range(0)]
PositiveFloat = Annotated[float, Range(0, open=True)]
NonNegativeFloat = Annotated[float, Range(0)]
# Seeds of TensorFlow and NumPy.
Seed = Annotated[int, Range(0, 2**32 - 1)]
UnitInterval = Annotated[float, Range(0, 1)]
PositiveFraction = Annotated[float, Range(0, 1, open=True)]


def mismatch(value: Any, hint: Any) -> Optional[str]:
  """Returns what the annotation `hint` expects if `value` does not fit it, else None."""
  origin, args = typing.get_origin(hint), typing.get_args(hint)
  if origin is Annotated:
    bounds = [a for a in args[1:] if isinstance(a, Range)]
    expected = mismatch(value, args[0])
    if expected is None and all(b.admits(value) for b in bounds):
      return None
    kind = 'an integer' if args[0] is int else 'a number'
    return ' '.join([kind, *map(str, bounds)])
  if origin is typing.Literal:
    return None if value in args else 'one of ' + ', '.join(map(repr, args))
  if origin is typing.Union:
    expected = [mismatch(value, a) for a in args]
    return None if None in expected else ' or '.join(expected)
  if hint is type(None):
    return None if value is None else 'None'
  if origin in (list, tuple, Sequence, typing.get_origin(Sequence[int])):
    if not isinstance(value, (list, tuple)):
      value = [object()]  # A sentinel that no type accepts.
    expected = [mismatch(v, *args) for v in value]
    wrong = [e for e in expected if e is not None]
    return f'a list of which each is {wrong[0]}' if wrong else None
  if origin is collections.abc.Mapping:
    if not isinstance(value, collections.abc.Mapping):
      return 'a dictionary'
    for part, items, inner in zip(('key', 'value'), (value, value.values()), args):
      if inner is float:  # Returns of tasks, say, of which some may be NaN.
        wrong = ['a number'] * any(not isinstance(x, numbers.Real) for x in items)
      else:
        wrong = [e for e in (mismatch(x, inner) for x in items) if e is not None]
      if wrong:
        return f'a dictionary of which each {part} is {wrong[0]}'
    return None
  if hint is bool:
    return None if isinstance(value, bool) else 'True or False'
  if hint is int:
    fits = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return None if fits else 'an integer'
  if hint is float:
    fits = (isinstance(value, numbers.Real) and not isinstance(value, bool)
            and abs(value) <= _GREATEST)  # False for NaN.
    return None if fits else 'a finite number'
  if hint is str:
    return None if isinstance(value, str) else 'a string'
  if origin is collections.abc.Callable:
    return None if callable(value) else 'a callable (@Name without parentheses)'
  if inspect.isclass(hint) and hint is not Any:
    fits = isinstance(value, hint)
    return None if fits else f'a {hint.__name__} (@Name() with parentheses)'
  return None  # The body checks everything else.


class _Readable:
  """A type as `help` shows it: `int >= 1` for `PositiveInt`."""

  def __init__(self, hint: Any):
    self.hint = hint
    self._text = _text(hint)

  def __repr__(self):
    return self._text


def _text(hint: Any) -> str:
  """A type as text, with the bounds of numbers and without modules."""
  origin, args = typing.get_origin(hint), typing.get_args(hint)
  if origin is Annotated:
    return args[1].of(_text(args[0]))
  if origin is typing.Union:
    return ' or '.join(map(_text, args))
  if origin is not typing.Literal and args and getattr(hint, '__name__', None):
    return f'{hint.__name__}[{", ".join(map(_text, args))}]'
  if hint is type(None):
    return 'None'
  if inspect.isclass(hint):
    return hint.__name__
  return re.sub(r'[\w.]+\.(?=\w)', '', repr(hint))


def _checked(function: Callable, name: str) -> Callable:
  """Returns `function` with arguments checked against its annotations."""
  signature = inspect.signature(function)
  hints = typing.get_type_hints(function, include_extras=True)
  hints.pop('return', None)

  required = [p.name for p in signature.parameters.values()
              if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]

  @functools.wraps(function)
  def wrapper(*args, **kwargs):
    try:
      bound = signature.bind_partial(*args, **kwargs)
    except TypeError as error:  # It names no function.
      raise TypeError(f'{name} {error}') from None
    for parameter in required:
      if parameter not in bound.arguments:
        raise ConfigError(f'{name}.{parameter} is not set, and has no default')
    for parameter, value in bound.arguments.items():
      expected = mismatch(value, hints.get(parameter))
      if expected is not None:
        shown = _short(repr(value), _LONGEST_VALUE)
        raise ConfigError(f'{name}.{parameter} = {shown}: expected {expected}')
    return function(*args, **kwargs)

  wrapper.__signature__ = signature.replace(parameters=[
      p.replace(annotation=_Readable(hints[p.name])) if p.name in hints else p
      for p in signature.parameters.values()])
  return wrapper


def configurable(target: Any = None, *, name: Optional[str] = None) -> Any:
  """`gin.configurable` in the module `gtrxl_tf`, with arguments checked by type.

  A class that passes keyword arguments on to a configurable base class, as in

    def __init__(self, own: int = 0, **shared):
      super().__init__(**shared)

  has only its own parameters in gin; the others are set for the base class.

  Args:
    target: a function or a class.
    name: the name in gin files; by default the target's own.
  """
  if target is None:
    return functools.partial(configurable, name=name)
  name = name or target.__name__
  _modules.add(target.__module__)
  parameters = inspect.signature(target).parameters.values()
  _parameters[name] = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
  allowlist = None
  if inspect.isclass(target):
    if len(_parameters[name]) < len(parameters):
      allowlist = _parameters[name]
    _classes[name] = target
    target.__init__ = _checked(target.__init__, name)
  else:
    target = _checked(target, name)
  made = gin.configurable(name, module=MODULE, allowlist=allowlist)(target)
  _names[made] = name
  return made


def name_of(target: Callable) -> str:
  """The name of a class or a function in gin files; its own if it is not there."""
  return _names.get(target) or getattr(target, '__name__', repr(target))


def modules() -> list[str]:
  """Names of the modules that define the configurables known in this process.

  Another process imports them before it reads settings that were made here.
  """
  return sorted(_modules)


def parse(files: Sequence[str], bindings: Sequence[str]) -> None:
  """Reads gin files and bindings.

  Args:
    files: names of files as `gin_files.find` takes them; later ones override.
    bindings: single settings, which override the files. Files and modules that they
      name are searched for in the working folder.

  Raises:
    ConfigError: a file does not exist, a name is unknown, or a line is not gin. The
      message is one line and says what would have been allowed.
  """
  file = None
  reading = gin_files.Reading()
  try:
    with reading.in_gin():
      for file in files:
        gin.parse_config_file(file)
      file = None
      reading.prepare(bindings)
      gin.parse_config_files_and_bindings([], list(bindings))
  except (SyntaxError, tokenize.TokenError, RecursionError, ValueError, KeyError,
          OSError, ImportError, TypeError, AttributeError) as error:
    text = (str(reading.error) if reading.error is not None
            else _explained(error, file, files, bindings))
    raise ConfigError(_short(text, _LONGEST)) from error


def operative_text() -> str:
  """The settings that this process has used, as text that `parse` reads anywhere.

  It names the folders of the modules that the settings import.
  """
  return gin_files.header() + gin.operative_config_str()


def _explained(error: Exception, file: Optional[str], files: Sequence[str],
               bindings: Sequence[str]) -> str:
  """Describes an error of gin in one line.

  Args:
    error: what gin raised.
    file: the file that was read; None for the bindings.
    files: all files.
    bindings: all bindings.
  """
  if isinstance(error, SyntaxError):
    return _syntax_error(error, bindings)
  if isinstance(error, tokenize.TokenError):
    return ('not gin: a bracket or a string is not closed in '
            + ' or '.join([*files, *bindings]))
  text = str(error)
  if isinstance(error, KeyError) and error.args:  # Its text is quoted.
    text = str(error.args[0])
  if isinstance(error, RecursionError):
    text = 'too much is nested'
  text = _unknown_name(' '.join(text.split()))
  return text if file is None or file in text else f'{file}: {text}'


def _short(text: str, most: int) -> str:
  return text if len(text) <= most else f'{text[:most - 3]}...'


def _syntax_error(error: SyntaxError, bindings: Sequence[str]) -> str:
  if error.filename:
    lines = linecache.getlines(error.filename)
  else:
    lines = '\n'.join(bindings).split('\n')
  # Gin may point to the empty line after the one that it could not read.
  number, line = [(i, line.strip()) for i, line in enumerate(lines[:error.lineno], 1)
                  if line.strip()][-1]
  place = f' ({error.filename}, line {number})' if error.filename else ''
  line, reason = (_short(x, _LONGEST_VALUE)
                  for x in (line, error.msg.splitlines()[0]))
  if reason.startswith('malformed node'):
    reason = 'expected a literal (a string needs quotes), an @reference or a %macro'
  return f'not gin: {line!r}{place}: {reason}'


def _unknown_name(text: str) -> str:
  """Returns gin's message with suggestions for the unknown name."""
  unknown = re.search(r"No configurable matching (?:reference )?'@?([^']+)'", text)
  if unknown:
    name = unknown.group(1).split('/')[-1].removesuffix('()')
    close = difflib.get_close_matches(
        name, sorted({*_parameters, *gin_files.own_names()}), n=3)
    text = text.rstrip('. ^')
    hint = 'a name in a module of your own needs `import MODULE` in the gin file'
    return (f'{text}. Did you mean {" or ".join(close)}? Otherwise, {hint}.' if close
            else f'{text}: {hint}, and MODULE.py beside that file.')
  unknown = re.search(r"Configurable '([^']+)' doesn't (?:have a parameter named|"
                      r"include kwarg) '([^']+)'(?: in its allowlist)?", text)
  if unknown:
    owner, parameter = unknown.group(1).split('.')[-1], unknown.group(2)
    text = text.replace(
        unknown.group(), f"{owner} doesn't have a parameter named '{parameter}'")
    return _suggest_parameter(text, owner, parameter)
  unknown = re.search(r"No bindings specified for '(.+)/gin\.macro'", text)
  if unknown:
    return f'%{unknown.group(1)} is used, and nothing is bound to it'
  return text


def one_line(error: Exception) -> str:
  """Returns an exception's message without the places that gin and Keras add."""
  lines = [line.strip() for line in str(error).splitlines() if line.strip()]
  if len(lines) > 1 and lines[0].startswith('Exception encountered when calling layer'):
    del lines[0]
  return lines[0] if lines else type(error).__name__


def place(error: BaseException) -> str:
  """Returns ` (FILE, line N)` of the user's code that raised an error.

  That is the innermost of the lines that are neither this library's nor those of
  installed packages; '' if there is none.
  """
  others = (os.path.dirname(os.path.dirname(__file__)), *(
      sysconfig.get_path(name) for name in ('stdlib', 'platstdlib', 'purelib', 'platlib')))
  for frame in reversed(traceback.extract_tb(error.__traceback__)):
    if os.path.isfile(frame.filename) and not os.path.realpath(
        frame.filename).startswith(tuple(f'{os.path.realpath(x)}{os.sep}' for x in others)):
      return f' ({frame.filename}, line {frame.lineno})'
  return ''


def _suggest_parameter(text: str, owner: str, parameter: str) -> str:
  """`text` with a parameter of the same name elsewhere, or one of a similar name.

  Elsewhere is first of all a base class or a subclass of the owner.
  """
  elsewhere = [f'{name}.{parameter}' for name, known in _parameters.items()
               if parameter in known]
  related = [x for x in elsewhere if _are_related(owner, x.partition('.')[0])]
  if related or elsewhere:
    return _did_you_mean(text, (related or elsewhere)[:3], elsewhere)
  own = _parameters.get(owner, [])
  if owner in (of_user := gin_files.own_names()):
    own = list(inspect.signature(of_user[owner]).parameters)
  # Such as Checkpoints.period for checkpoint_period.
  by_words = {f'{name}_{x}'.lower(): f'{name}.{x}'
              for name, known in _parameters.items() for x in known}
  close = [by_words[words] for words in difflib.get_close_matches(
      parameter, by_words, n=1, cutoff=0.9)]
  close = close or difflib.get_close_matches(parameter, own, n=3)
  return _did_you_mean(text, close, own)


def _are_related(one: str, other: str) -> bool:
  """Whether one of two configurables is a subclass of the other."""
  if one not in _classes or other not in _classes:
    return False
  one_class, other_class = _classes[one], _classes[other]
  return issubclass(one_class, other_class) or issubclass(other_class, one_class)


def _did_you_mean(text: str, names: Sequence[str], known: Sequence[str]) -> str:
  return f'{text.rstrip(". ^")}. ' + (
      f'Did you mean {" or ".join(names)}?' if names
      else f'Known: {", ".join(known)}.')
