"""Finds and reads gin files, and the modules that they import.

A file is named by its path, relative to the working folder, or by its path or its name
in the folder `gin` of this library. `include` first looks beside the file that has it.
`import my_world` finds `my_world.py` beside the gin file, too, and its classes and
functions need no decorator.
"""

import contextlib
import copy
import importlib
import importlib.util  # noqa: F401 (gin uses it without importing it)
import inspect
import json
import os
import pathlib
import re
import sys
import sysconfig
import tokenize
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple
import zlib

import gin
from gin import config_parser

from gtrxl_tf.settings import errors
from gtrxl_tf.settings import suggestions

_LIBRARY = pathlib.Path(__file__).parents[1]
# A wheel has the files within the library, and a clone beside it.
FOLDER = _LIBRARY / 'gin' if (_LIBRARY / 'gin').is_dir() else _LIBRARY.parent / 'gin'

_FOLDERS = '# Folders of imported modules: '
_DEFINED = '# Code of what no module defines: '

# The classes and functions of the user's modules, by name, each with its module's name.
_own: Dict[str, Tuple[Callable[..., Any], str]] = {}
_folders: List[str] = []  # The folders that these modules are in.
_defined: Dict[str, int] = {}  # Checksums of the code of what `define` was given.


def find(name: str, beside: Optional[pathlib.Path] = None) -> pathlib.Path:
  """Returns the path of a gin file.

  Args:
    name: a path, relative to `beside` or the working folder; or the path of a file in
      the folder `gin`, with or without `gin/`; or the end of such a path, as in
      `numpad_2x2_cpu.gin`, if only one file has it.
    beside: a folder in which to look first.
  """
  for folder in [beside or pathlib.Path(), pathlib.Path()]:
    if os.path.exists(folder / name):
      return folder / name
  known = {str(x.relative_to(FOLDER)): x for x in sorted(FOLDER.rglob('*.gin'))}
  inner = name.removeprefix('gin/')
  found = [inner] if inner in known else [x for x in known if x.endswith(f'/{inner}')]
  if len(found) == 1:
    return known[found[0]]
  if found:
    raise ValueError(f'{name}: several gin files of this library have this name: '
                     f'expected one of {", ".join(found)}')
  # As a user would type them: files beside the missing one, then those of the library.
  names = [*map(str, sorted(pathlib.Path(name).parent.glob('*.gin'))), *known]
  raise ValueError(f'{name}: no such gin file, neither at this path nor in this library'
                   f'{suggestions.for_file(name, names)}')


def header() -> str:
  """Returns comments for a text of settings, which `parse` and `edited` read again."""
  return ''.join(f'{mark}{json.dumps(value)}\n' for mark, value in (
      (_FOLDERS, _folders), (_DEFINED, _defined)) if value)


def _recorded(text: str, mark: str) -> Any:
  """Returns what the `header` of a text has after a mark; () if it has none."""
  found = re.search(f'^{mark}(.*)$', text, re.MULTILINE)
  return json.loads(found[1]) if found else ()


def edited(text: str) -> List[str]:
  """Returns the names whose code has changed since a text's `header` was made."""
  before = dict(_recorded(text, _DEFINED))
  return [name for name, code in _defined.items() if before.get(name, code) != code]


def define(name: str, target: Callable[..., Any]) -> Tuple[str, Optional[str]]:
  """Lets gin name a class or a function of the caller, such as one of a notebook's cell.

  Returns:
    Its name in gin, and the module that other processes import to know it; None if no
    module has it.
  """
  module = sys.modules.get(target.__module__)
  local = target.__module__ == '__main__' or getattr(module, name, None) is not target
  imported = None if local else target.__module__
  name = name if name.isidentifier() else 'environment'  # A lambda has no name.
  with gin.config.interactive_mode():  # It may replace an earlier one.
    gin.external_configurable(target, name=name, module=imported or '__main__')
  if not imported:
    _defined[name] = zlib.crc32(_code(target))
  return f'{imported or "__main__"}.{name}', imported


def defined() -> List[str]:
  """Returns the names of what other processes cannot import."""
  return list(_defined)


def _code(value: Any) -> bytes:
  """Returns the code of a class or a function as bytes, without line numbers."""
  if inspect.isclass(value):
    return b''.join(name.encode() + _code(x) for name, x in sorted(vars(value).items())
                    if name not in ('__firstlineno__', '__doc__', '__module__'))
  value = getattr(value, '__code__', value)
  if inspect.iscode(value):
    return (value.co_code + repr(value.co_names).encode()
            + b''.join(map(_code, value.co_consts)))
  plain = (bool, int, float, str, tuple, type(None))
  return repr(value).encode() if isinstance(value, plain) else b''


@contextlib.contextmanager
def own_gin() -> Iterator[None]:
  """Gives the context settings of its own; those of the caller's program come back."""
  state = gin.config
  kept = [state._CONFIG, state._IMPORTS, state._OPERATIVE_CONFIG, state._SINGLETONS, _defined]
  before, locked = [copy.copy(x) for x in kept], gin.config_is_locked()
  before[0] = {key: dict(x) for key, x in before[0].items()}
  gin.clear_config()
  _defined.clear()
  try:
    yield
  finally:
    gin.clear_config()
    _defined.clear()
    for now, then in zip(kept, before):
      now.update(then)
    state._set_config_is_locked(locked)


def _import(module: str, folders: Sequence[str]) -> None:
  """Imports a module of the user, from one of `folders` or Python's path."""
  top = module.partition('.')[0]
  files = [f'{top}.py', f'{top}/__init__.py', f'{module.replace(".", "/")}.py']
  own = next((os.path.realpath(folder) for folder in [*folders, *sys.path]
              if any(os.path.isfile(os.path.join(folder, x)) for x in files)), None)
  if own and own not in map(os.path.realpath, sys.path):
    sys.path.append(own)  # At the end, so that it does not hide installed modules.
  importlib.invalidate_caches()
  try:
    found = importlib.import_module(module)
  except (Exception, SystemExit) as error:  # pylint: disable=broad-except
    hint = ''
    if isinstance(error, ModuleNotFoundError) and f'{module}.'.startswith(
        f'{error.name}.'):
      hint = (f': expected a module, as {top}.py beside the gin file or in a folder of '
              'PYTHONPATH')
    raise ValueError(f'import {module}: {type(error).__name__}: '
                     f'{errors.one_line(error)}{hint}{errors.place(error)}') from error
  if top == 'gtrxl_tf':
    return
  file = getattr(found, '__file__', None)
  folder = os.path.realpath(os.path.dirname(file)) if file else ''
  if own and not f'{folder}{os.sep}'.startswith(f'{own}{os.sep}'):
    raise ValueError(f'import {module}: Python finds {file or "its own"} before the '
                     f'{module} in {own}: expected a module of another name')
  installed = map(os.path.realpath, sysconfig.get_paths().values())
  if own and own not in [*installed, *_folders]:
    _folders.append(own)
  for name, x in vars(found).items():
    if inspect.isclass(x) or inspect.isfunction(x):
      if x.__module__ == module or name not in _own:
        _own[name] = x, module


def _configurable(target: Any) -> Any:
  """Returns what gin has for a name, a class or a function; None if it has nothing."""
  try:
    return gin.get_configurable(target)
  except KeyError as error:  # Several have the name.
    raise ValueError(error.args[0]) from error
  except ValueError:
    return None


class Reader(gin.config.ParserDelegate):
  """Reads gin files and single settings, and gives gin what they set."""

  def __init__(self, names: Mapping[Callable, str]):
    super().__init__()
    self._names = names  # The library's configurables, and their names in gin files.
    self._macros = set()  # The macros that are used.
    self._set = {'files': set(), 'settings': set()}  # The macros that they set.
    self._opened = []  # The files that are being read: each includes the next.

  def read(self, files: Sequence[str], bindings: Sequence[str]) -> None:
    """Reads files and then single settings, which override them."""
    try:
      for name in files:
        self._read_file(name)
      self._read('\n'.join(bindings))
      if files:  # Otherwise the settings are those of a run, with all of its macros.
        for name in sorted(self._set['settings'] - self._set['files'] - self._macros):
          raise ValueError(f'nothing uses the macro {name}'
                           f'{suggestions.for_macro(name, self._set["files"])}')
      for name in sorted(self._macros.difference(*self._set.values())):
        raise ValueError(f'%{name} is used, and nothing is bound to it')
      gin.finalize()
    except errors.ConfigError:
      raise
    except (ValueError, OSError) as error:
      raise errors.ConfigError(errors.one_line(error)) from error

  def configurable_reference(self, scoped_name: str, evaluate: bool) -> Any:
    self._require(scoped_name.rpartition('/')[2])
    return super().configurable_reference(scoped_name, evaluate)

  def macro(self, name: str) -> Any:
    reference = super().macro(name)
    if reference.selector == 'gin.macro':  # Otherwise it is a constant of a module.
      self._macros.add(name)
    return reference

  def _read_file(self, name: str) -> None:
    path = find(name, self._opened[-1].parent if self._opened else None)
    if any(os.path.samefile(path, x) for x in self._opened):
      circle = ' -> '.join(map(str, [*self._opened, path]))
      raise ValueError(f'{path} includes itself: {circle}')
    try:
      text = path.read_text(encoding='utf-8')
    except (OSError, UnicodeDecodeError) as error:
      raise ValueError(f'{path}: not gin: {error}') from error
    self._opened.append(path)
    self._read(text)
    self._opened.pop()

  def _read(self, text: str) -> None:
    """Reads the text of the last opened file, or single settings."""
    path = self._opened[-1] if self._opened else None
    recorded = _recorded(text, _FOLDERS)
    folders = [path.parent.absolute(), *recorded] if path else [*recorded, os.getcwd()]
    def place(line):
      return f' ({path}, line {line})' if path else ''
    statement = parser = None
    try:
      parser = config_parser.ConfigParser(f'{text}\n', self)
      while statement := parser.parse_statement():
        self._give(statement, folders)
        statement = None
    except errors.ConfigError:
      raise  # It is from an included file, and names the line.
    except SyntaxError as error:
      lines = [x.strip() for x in text.splitlines()[:error.lineno]]
      line, reason = next(filter(None, lines[::-1]), ''), error.msg.splitlines()[0]
      if reason.startswith('malformed node'):
        reason = 'expected a literal (a string needs quotes), an @reference or a %macro'
      raise errors.ConfigError(f'not gin: {errors.short(line)!r}{place(error.lineno)}: '
                               f'{errors.short(reason)}') from error
    except tokenize.TokenError as error:
      raise errors.ConfigError('not gin: a bracket or a string is not closed in '
                               f'{path or errors.short(text)}') from error
    except (ValueError, TypeError, OSError) as error:
      line = statement.location.line_num if statement else parser.current_token.start[0]
      raise errors.ConfigError(f'{errors.one_line(error)}{place(line)}') from error

  def _give(self, statement: Any, folders: Sequence[str]) -> None:
    """Gives gin one statement."""
    if isinstance(statement, config_parser.IncludeStatement):
      self._read_file(statement.filename)
    elif isinstance(statement, config_parser.ImportStatement):
      _import(statement.module, folders)
      gin.parse_config(statement.format())  # For gin to repeat it in a run's settings.
    elif isinstance(statement, config_parser.BlockDeclaration):
      self._require(statement.selector)
    elif not statement.arg_name:
      macro = '/'.join(filter(None, [statement.scope, statement.selector]))
      self._set['files' if self._opened else 'settings'].add(macro)
      gin.bind_parameter((macro, 'gin.macro', 'value'), statement.value)
    else:
      scope, name, parameter, value, _ = statement
      target = self._require(name)
      try:
        gin.bind_parameter((scope, name, parameter), value)
      except ValueError as error:
        raise ValueError(
            f"{name.rpartition('.')[2]} doesn't have a parameter named '{parameter}'. "
            f'{suggestions.for_parameter(target, parameter, self._names)}') from error

  def _require(self, name: str) -> Callable[..., Any]:
    """Returns the class or function of a name, and registers it if it is the user's."""
    short, known = name.rpartition('.')[2], _configurable(name)
    own, module = _own.get(short, (known, ''))
    if own is None:
      raise ValueError(f"No configurable matching '{name}'" + suggestions.for_configurable(
          name, {*self._names.values(), *_own}))
    if known is None:
      gin.external_configurable(own, name=short, module=module)
    elif own.__module__ == module and _configurable(own) is None:
      raise ValueError(f'{module}.{short}: there is another configurable of this name: '
                       'expected a name of its own')
    return own
