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
import functools
import inspect
import math
import numbers
import typing
from typing import Annotated, Any, Callable, Optional, Sequence, TypeVar

import gin

from gtrxl_tf.settings import errors
from gtrxl_tf.settings import gin_files
from gtrxl_tf.settings import suggestions

MODULE = 'gtrxl_tf'
# The greatest number in float32. Networks and losses compute in it.
_GREATEST = (2 - 2**-23) * 2.0**127

# Other modules use these as parts of this one.
ConfigError = errors.ConfigError
one_line = errors.one_line
place = errors.place
described = errors.described
check_plain = errors.check_plain

_Target = TypeVar('_Target', bound=Callable)

_names = {}  # The name of each configurable in gin files.
_modules = set()  # Names of the modules that define configurables.


@dataclasses.dataclass(frozen=True)
class Range:
  """Numbers from `low` to `high`; `low` itself is excluded if `open`."""
  low: float
  high: float = math.inf
  open: bool = False

  def admits(self, value) -> bool:
    return self.low <= value <= self.high and not (self.open and value == self.low)

  def __repr__(self):  # `help` and errors show it.
    text = f'{">" if self.open else ">="} {self.low}'
    return text if math.isinf(self.high) else f'{text} and <= {self.high}'


PositiveInt = Annotated[int, Range(1)]
# Layers of a stack. More would take minutes to make, and far longer to compile.
NumLayers = Annotated[int, Range(1, 1000)]
# Steps of a memory or an unroll. More would fill the machine before their size is
# compared.
NumSteps = Annotated[int, Range(1, 100_000)]
NonNegativeInt = Annotated[int, Range(0)]
PositiveFloat = Annotated[float, Range(0, open=True)]
NonNegativeFloat = Annotated[float, Range(0)]
# Seeds of TensorFlow and NumPy.
Seed = Annotated[int, Range(0, 2**32 - 1)]
UnitInterval = Annotated[float, Range(0, 1)]
PositiveFraction = Annotated[float, Range(0, 1, open=True)]


def _is_number(value: Any, kind: type) -> bool:
  return isinstance(value, kind) and not isinstance(value, bool)


# For each plain type: whether a value fits it, and what an error calls it.
_PLAIN = {
    type(None): (lambda x: x is None, 'None'),
    bool: (lambda x: isinstance(x, bool), 'True or False'),
    str: (lambda x: isinstance(x, str), 'a string'),
    int: (lambda x: _is_number(x, numbers.Integral), 'an integer'),
    # NaN is not below anything.
    float: (lambda x: _is_number(x, numbers.Real) and abs(x) <= _GREATEST,
            'a finite float32 number'),
}


def mismatch(value: Any, hint: Any) -> Optional[str]:
  """Returns what the annotation `hint` expects if `value` does not fit it, else None."""
  origin, args = typing.get_origin(hint), typing.get_args(hint)
  if origin is Annotated:
    kind, (bounds, *_) = mismatch(value, args[0]), args[1:]
    if kind is None and bounds.admits(value):
      return None
    if kind is None or not _is_number(value, numbers.Real):  # It may be too large for float32.
      kind = 'an integer' if args[0] is int else 'a number'
    return f'{kind} {bounds}'
  if origin is typing.Literal:
    fits = any(mismatch(value, type(x)) is None and value == x for x in args)
    return None if fits else 'one of ' + ', '.join(map(repr, args))
  if origin is typing.Union:
    expected = [mismatch(value, x) for x in args]
    return None if None in expected else ' or '.join(expected)
  if origin in (list, tuple, collections.abc.Sequence):
    if not isinstance(value, (list, tuple)):
      value = [object()]  # No type accepts it.
    wrong = next(filter(None, (mismatch(x, args[0]) for x in value)), None)
    return wrong and f'a list in which each item is {wrong}'
  if origin is collections.abc.Mapping:
    if not isinstance(value, collections.abc.Mapping):
      return 'a dictionary'
    for part, items, hint in zip(('key', 'value'), (value, value.values()), args):
      # A number may be NaN: a task may have no known return.
      hint = numbers.Real if hint is float else hint
      if wrong := next(filter(None, (mismatch(x, hint) for x in items)), None):
        return f'a dictionary in which each {part} is ' + (
            'a number' if hint is numbers.Real else wrong)
    return None
  if origin is collections.abc.Callable:
    return None if callable(value) else 'a callable (@Name without parentheses)'
  if hint in _PLAIN:
    fits, expected = _PLAIN[hint]
    return None if fits(value) else expected
  if inspect.isclass(hint) and hint is not Any and not isinstance(value, hint):
    return f'a {hint.__name__} (@Name() with parentheses)'
  return None  # The body checks everything else.


def _checked(function: Callable, name: str) -> Callable:
  """Returns `function` with arguments checked against its annotations."""
  signature = inspect.signature(function)
  hints = typing.get_type_hints(function, include_extras=True)
  hints.pop('return', None)
  required = [x.name for x in signature.parameters.values()
              if x.default is x.empty and x.kind is x.POSITIONAL_OR_KEYWORD]

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
        raise ConfigError(
            f'{name}.{parameter} = {errors.short(repr(value))}: expected {expected}')
    return function(*args, **kwargs)

  wrapper.__signature__ = signature  # Gin reads defaults here.
  return wrapper


@typing.overload
def configurable(target: _Target) -> _Target: ...


@typing.overload
def configurable(*, name: str) -> Callable[[_Target], _Target]: ...


def configurable(target: Any = None, *, name: Optional[str] = None) -> Any:
  """Makes `target` a `gin.configurable` whose arguments are checked by type.

  In gin files it is in the module `gtrxl_tf`.

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
  name, allowlist = name or target.__name__, None
  if inspect.isclass(target):
    # First: Python before 3.11.4 reads Keras' `__new__` where `__init__` is inherited.
    target.__init__ = _checked(target.__init__, name)
    own = suggestions.parameters(target)
    allowlist = own if len(own) < len(inspect.signature(target).parameters) else None
  else:
    target = _checked(target, name)
  made = gin.configurable(name, module=MODULE, allowlist=allowlist)(target)
  _names[made] = name
  _modules.add(made.__module__)
  return made


def name_of(target: Callable) -> str:
  """Returns the name of a class or a function in gin files, or else its own name."""
  return _names.get(target) or getattr(target, '__name__', repr(target))


def is_own(target: Callable) -> bool:
  """Returns whether a class or a function is a configurable of this library."""
  return target in _names


def modules() -> list[str]:
  """Returns the modules of all configurables, for a process that reads settings made here."""
  return sorted(_modules)


def parse(files: Sequence[str], bindings: Sequence[str]) -> None:
  """Reads gin files and bindings.

  Args:
    files: names of files as `gin_files.find` takes them; later ones override.
    bindings: single settings, which override the files. Files and modules that they
      name are searched for in the working folder.
  """
  for name, given in ('files', files), ('bindings', bindings):
    if isinstance(given, str):
      raise ConfigError(f'gin_{name} = {given!r}: expected a list of {name}')
  gin_files.Reader(_names).read(files, bindings)


def given_text() -> str:
  """Returns the settings of this process as text, for other processes of the run."""
  return gin_files.header() + gin.config_str()


def operative_text() -> str:
  """Returns the settings that this process used as text that `parse` reads anywhere."""
  return gin_files.header() + gin.operative_config_str()
