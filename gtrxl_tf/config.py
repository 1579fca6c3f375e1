"""Gin at the front door: one decorator, a few argument types, one parser.

A configurable declares what it accepts in its signature, with the types below or
with `Literal`, `Optional` and plain `int`, `float`, `bool`, `str`. Whatever comes,
from gin or from a caller, is checked before the body runs, so that a wrong setting
stops a run before any process, file or server exists:

  @config.configurable
  class DeepLSTM(core.Core):
    def __init__(self, num_layers: config.PositiveInt = 3, ...):

  DeepLSTM.num_layers = 0: expected an integer >= 1
"""

import dataclasses
import difflib
import functools
import importlib.util  # gin uses it without importing it.
import inspect
import math
import numbers
import re
import typing
from typing import Annotated, Any, Callable, Optional, Sequence

import gin

MODULE = 'gtrxl_tf'

_parameters = {}  # Of every configurable, by name: what gin may set.


class ConfigError(ValueError):
  """A setting that cannot be used. The message is one line."""


@dataclasses.dataclass(frozen=True)
class Range:
  """Numbers from `low` to `high`; the bounds themselves belong unless `open`."""
  low: float
  high: float = math.inf
  open: bool = False

  def admits(self, value) -> bool:
    if self.open:
      return self.low < value < self.high
    return self.low <= value <= self.high

  def __str__(self):
    sign = '>' if self.open else '>='
    if math.isinf(self.high):
      return f'{sign} {self.low}'
    return f'{sign} {self.low} and {sign.replace(">", "<")} {self.high}'


PositiveInt = Annotated[int, Range(1)]
NonNegativeInt = Annotated[int, Range(0)]
PositiveFloat = Annotated[float, Range(0, open=True)]
NonNegativeFloat = Annotated[float, Range(0)]
UnitInterval = Annotated[float, Range(0, 1)]


def _mismatch(value: Any, hint: Any) -> Optional[str]:
  """What `hint` expects if `value` does not fit it, else None."""
  origin, args = typing.get_origin(hint), typing.get_args(hint)
  if origin is Annotated:
    bounds = [a for a in args[1:] if isinstance(a, Range)]
    expected = _mismatch(value, args[0])
    if expected is None and all(b.admits(value) for b in bounds):
      return None
    kind = 'an integer' if args[0] is int else 'a number'
    return ' '.join([kind, *map(str, bounds)])
  if origin is typing.Literal:
    return None if value in args else 'one of ' + ', '.join(map(repr, args))
  if origin is typing.Union:
    expected = [_mismatch(value, a) for a in args]
    return None if None in expected else ' or '.join(expected)
  if hint is type(None):
    return None if value is None else 'None'
  if origin in (list, tuple, Sequence, typing.get_origin(Sequence[int])):
    if not isinstance(value, (list, tuple)):
      return 'a list'
    expected = [_mismatch(v, args[0]) for v in value] if args else []
    wrong = [e for e in expected if e is not None]
    return f'a list of which each is {wrong[0]}' if wrong else None
  if hint is bool:
    return None if isinstance(value, bool) else 'True or False'
  if hint is int:
    fits = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return None if fits else 'an integer'
  if hint is float:
    fits = (isinstance(value, numbers.Real) and not isinstance(value, bool)
            and math.isfinite(value))
    return None if fits else 'a finite number'
  if hint is str:
    return None if isinstance(value, str) else 'a string'
  return None  # Anything else is the body's own business.


def _checked(function: Callable, name: str) -> Callable:
  """`function`, refusing arguments that its annotations do not admit."""
  signature = inspect.signature(function)
  hints = typing.get_type_hints(function, include_extras=True)
  hints.pop('return', None)

  @functools.wraps(function)
  def wrapper(*args, **kwargs):
    bound = signature.bind_partial(*args, **kwargs)
    for parameter, value in bound.arguments.items():
      expected = _mismatch(value, hints.get(parameter))
      if expected is not None:
        raise ConfigError(f'{name}.{parameter} = {value!r}: expected {expected}')
    return function(*args, **kwargs)

  wrapper.__signature__ = signature
  return wrapper


def configurable(target=None, *, name: Optional[str] = None):
  """`gin.configurable` in the module `gtrxl_tf`, with arguments checked by type.

  Args:
    target: a function or a class.
    name: the name in gin files, if not the target's own.
  """
  if target is None:
    return functools.partial(configurable, name=name)
  name = name or target.__name__
  _parameters[name] = [
      p for p in inspect.signature(target).parameters if p != 'self']
  if inspect.isclass(target):
    target.__init__ = _checked(target.__init__, name)
  else:
    target = _checked(target, name)
  return gin.configurable(name, module=MODULE)(target)


def parse(files: Sequence[str], bindings: Sequence[str]) -> None:
  """Reads gin files and bindings.

  Raises:
    ConfigError: a file that is not there, a name that is not known, or a line that
      is not gin. The message is one line and says what would have been allowed.
  """
  try:
    gin.parse_config_files_and_bindings(list(files), list(bindings))
  except (ValueError, IOError, SyntaxError, TypeError, AttributeError) as error:
    raise ConfigError(_one_line(error)) from error


def _one_line(error: Exception) -> str:
  if isinstance(error, SyntaxError):
    return f'not gin: {(error.text or "").strip()!r} ({error.msg.splitlines()[0]})'
  text = ' '.join(str(error).split())
  unknown = re.search(r"No configurable matching '([^']+)'", text)
  if unknown:
    return _suggest(text, unknown.group(1).split('/')[-1], sorted(_parameters))
  unknown = re.search(r"Configurable '([^']+)' doesn't have a parameter named "
                      r"'([^']+)'", text)
  if unknown:
    return _suggest(text, unknown.group(2),
                    _parameters.get(unknown.group(1).split('.')[-1], []))
  return text


def _suggest(text: str, name: str, allowed: Sequence[str]) -> str:
  close = difflib.get_close_matches(name, allowed, n=3)
  return f'{text.rstrip(".")}. ' + (
      f'Did you mean {" or ".join(close)}?' if close
      else f'Known: {", ".join(allowed)}.')
