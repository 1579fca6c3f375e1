"""Finds gin files, and the files and modules that they include and import.

A file is named by its path, relative to the working folder, or by its path or its name
in the folder `gin` of this library. `include` looks beside the file that has it first.
`import my_world` finds `my_world.py` beside the gin file, too, and its classes and
functions need no decorator.
"""

import contextlib
import difflib
import importlib
import inspect
import io
import json
import os
import pathlib
import re
import stat
import sys
import sysconfig
import tokenize
import traceback
import types
from typing import Any, Dict, Iterator, List, Optional, Sequence

import gin

_HERE = pathlib.Path(__file__).parents[1]
# In a wheel the files are the library's data; in a clone they are beside the library.
FOLDER = _HERE / 'gin' if (_HERE / 'gin').is_dir() else _HERE.parent / 'gin'

# Limits that settings written by people do not reach.
MOST_BYTES = 2**20  # In a file.
MOST_FILES = 100    # In a run, with those that they include.
MOST_NESTED = 50    # Nested brackets.

_IMPORT = re.compile(r'^[ \t]*(?:import[ \t]+([\w.]+)'
                     r'|from[ \t]+([\w.]+)[ \t]+import[ \t]+(\w+))', re.MULTILINE)
# The names that a text configures or refers to.
_NAME = re.compile(r'@(?:[\w.]+/)*([\w.]+)'
                   r'|^[ \t]*(?:[\w.]+/)*([\w.]+)(?:\.\w+\s*=|:)', re.MULTILINE)
_FOLDERS = '# Folders of imported modules: '

_modules: Dict[str, types.ModuleType] = {}  # The user's modules, imported so far.
_folders: List[str] = []  # Their folders.


def find(name: str, beside: Optional[pathlib.Path] = None) -> pathlib.Path:
  """Returns the path of a gin file.

  Args:
    name: a path, relative to `beside` or the working folder; or the path of a file in
      the folder `gin`, with or without `gin/`; or the end of such a path, as in
      `numpad_2x2_cpu.gin`, if only one file has it.
    beside: a folder in which to look first.

  Raises:
    ValueError: there is no such file, or there are several.
  """
  for folder in [beside, pathlib.Path()] if beside else [pathlib.Path()]:
    if os.path.exists(folder / name):
      return folder / name
  path = pathlib.Path(name)
  parts = path.parts[1:] if path.parts[:1] == ('gin',) else path.parts
  known = {x.relative_to(FOLDER).parts: x for x in sorted(FOLDER.rglob('*.gin'))}
  if parts in known:
    return known[parts]
  found = [x for x in known if parts and x[-len(parts):] == parts]
  if len(found) == 1:
    return known[found[0]]
  if found:
    raise ValueError(f'{name}: several gin files of this library have this name: '
                     f'expected one of {", ".join(map("/".join, found))}')
  # As a user would type them: files beside the missing one, then those of the library.
  stems = {str(x): x.stem for x in sorted(path.parent.glob('*.gin'))}
  stems.update({'/'.join(x): known[x].stem for x in known})
  close = difflib.get_close_matches(path.stem, sorted(set(stems.values())), n=2)
  close = [name for stem in close for name in stems if stems[name] == stem]
  raise ValueError(
      f'{name}: no such gin file, neither at this path nor in this library'
      + (f'. Did you mean {" or ".join(close)}?' if close else ''))


def header() -> str:
  """Returns a comment with the folders of imported modules, for a file of settings."""
  return f'{_FOLDERS}{json.dumps(_folders)}\n' if _folders else ''


def own_names() -> Dict[str, Any]:
  """Returns the classes and functions that the user's modules define, by name."""
  return {name: found for module in _modules.values()
          for name, found in vars(module).items()
          if (inspect.isclass(found) or inspect.isfunction(found))
          and found.__module__ == module.__name__}


class Reading:
  """Reads settings: files, the files that they include, and single settings.

  Attributes:
    error: the error in a file, without the places that gin adds to its message.
  """

  def __init__(self):
    self._open: List[pathlib.Path] = []  # Each is included by the one before.
    self._count = 0
    self.error: Optional[Exception] = None

  @contextlib.contextmanager
  def in_gin(self) -> Iterator[None]:
    """Makes gin read files through this object."""
    # Gin would look in all folders that were ever registered, and read anything.
    # pylint: disable=protected-access
    lists = gin.config._FILE_READERS, gin.config._LOCATION_PREFIXES
    before = [x[:] for x in lists]
    lists[0][:], lists[1][:] = [(self._opened, lambda name: True)], ['']
    try:
      yield
    finally:
      lists[0][:], lists[1][:] = before

  def prepare(self, bindings: Sequence[str]) -> None:
    """Imports the modules that single settings name, found in the working folder."""
    with self._kept_error():
      _prepare('\n'.join(bindings), pathlib.Path.cwd(), None)

  @contextlib.contextmanager
  def _kept_error(self) -> Iterator[None]:
    try:
      yield
    except (OSError, ValueError) as error:
      self.error = error
      raise

  @contextlib.contextmanager
  def _opened(self, name: str) -> Iterator[io.StringIO]:
    with self._kept_error():
      path, text = self._read(name)
    file = io.StringIO(text)
    file.name = str(path)  # For gin's messages.
    self._open.append(path)
    try:
      yield file
    finally:
      self._open.pop()

  def _read(self, name: str) -> tuple[pathlib.Path, str]:
    parent = self._open[-1] if self._open else None
    try:
      path = find(name, parent and parent.parent)
      _check_is_file(path)
    except (OSError, ValueError) as error:
      raise ValueError(
          f'{error}, included in {parent}' if parent else str(error)) from error
    open_ones = list(map(os.path.realpath, self._open))
    if (real := os.path.realpath(path)) in open_ones:
      circle = [*self._open[open_ones.index(real):], path]
      raise ValueError(f'{path} includes itself: {" -> ".join(map(str, circle))}')
    self._count += 1
    if self._count > MOST_FILES:
      raise ValueError(f'{self._open[0]} includes more than {MOST_FILES} files')
    try:
      text = path.read_text(encoding='utf-8')
    except UnicodeDecodeError as error:
      raise ValueError(f'{path}: not gin: {error}') from error
    _prepare(text, path.parent.absolute(), path)
    return path, text


def _check_is_file(path: pathlib.Path) -> None:
  status = path.stat()
  if not stat.S_ISREG(status.st_mode):  # Reading a FIFO would wait for a writer.
    kind = 'a directory' if stat.S_ISDIR(status.st_mode) else 'not a regular file'
    raise ValueError(f'{path} is {kind}: expected a gin file')
  if status.st_size > MOST_BYTES:
    raise ValueError(f'{path} has {status.st_size:,} bytes: expected a gin file of at '
                     f'most {MOST_BYTES:,}')


def _prepare(text: str, folder: pathlib.Path, path: Optional[pathlib.Path]) -> None:
  """Checks a text that gin will read, and imports and registers the names in it.

  Args:
    text: gin.
    folder: searched for its imports, besides Python's path.
    path: of the file, for messages; None for single settings.
  """
  _check_nesting(text, path)
  folders = [str(folder), *_recorded_folders(text)]
  for match in _IMPORT.finditer(text):
    plain, package, member = match.groups()
    module = plain or f'{package}.{member}'
    if module.partition('.')[0] not in ('__gin__', 'gtrxl_tf'):
      _modules[module] = _import(module, folders, path)
  if 'dynamic_registration' not in text:  # With it, gin registers what it needs.
    _register(text)


def _check_nesting(text: str, path: Optional[pathlib.Path]) -> None:
  """Raises a `ValueError` where gin, which is recursive, would exceed the stack."""
  if sum(map(text.count, '([{')) <= MOST_NESTED:
    return
  depth = 0
  with contextlib.suppress(tokenize.TokenError, SyntaxError):  # Gin explains them.
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
      if token.type == tokenize.OP:
        depth += (token.string in '([{') - (token.string in ')]}')
      if depth > MOST_NESTED:
        raise ValueError(f'not gin: more than {MOST_NESTED} nested brackets '
                         f'({path or "--gin_bindings"}, line {token.start[0]})')


def _recorded_folders(text: str) -> List[str]:
  """Returns the folders that the `header` of a text names."""
  for line in text.splitlines():
    if line.startswith(_FOLDERS):
      with contextlib.suppress(ValueError, TypeError):
        return [str(folder) for folder in json.loads(line.removeprefix(_FOLDERS))]
  return []


def _import(module: str, folders: Sequence[str], path: Optional[pathlib.Path]
            ) -> types.ModuleType:
  """Imports a module of the user, from one of `folders` or Python's path.

  Raises:
    ValueError: it cannot be imported, or Python finds another module of its name.
  """
  top = module.partition('.')[0]
  files = [f'{top}.py', f'{top}/__init__.py', f'{module.replace(".", "/")}.py']
  own = next((x for x in folders
              if any(os.path.isfile(os.path.join(x, file)) for file in files)), None)
  if own and own not in sys.path:
    sys.path.append(own)  # At the end, so that it does not hide installed modules.
  importlib.invalidate_caches()
  try:
    found = importlib.import_module(module)
  except (Exception, SystemExit) as error:  # pylint: disable=broad-except
    raise ValueError(f'import {module}: {_import_error(error, module, path)}') from error
  root = _root(found, module)
  if own and root != os.path.realpath(own):
    place = getattr(found, '__file__', None) or 'a module of its own'
    raise ValueError(f'import {module}: Python finds {place} before the {module} in '
                     f'{own}: expected a module of another name')
  if root not in [None, *map(os.path.realpath, sysconfig.get_paths().values())]:
    folder = own or root
    if folder not in _folders:
      _folders.append(folder)
  return found


def _root(found: types.ModuleType, module: str) -> Optional[str]:
  """Returns the folder of Python's path that a module is in."""
  file = getattr(found, '__file__', None)
  if file is None:
    return None
  path = pathlib.Path(os.path.realpath(file))
  levels = module.count('.') + (path.name == '__init__.py')
  return str(path.parents[levels])


def _import_error(error: BaseException, module: str, path: Optional[pathlib.Path]
                  ) -> str:
  """Describes why a module could not be imported, in one line."""
  text = ' '.join(str(error).split())
  if isinstance(error, ModuleNotFoundError):
    if error.name == module and '.' in module:
      return f'{text}: expected the name of a module, as in `import my_world`'
    if error.name and f'{module}.'.startswith(f'{error.name}.'):
      place = f'beside {path}' if path else 'in the working folder'
      return (f'{text}: expected {error.name.replace(".", "/")}.py {place}, or in a '
              'folder of PYTHONPATH')
  if isinstance(error, SyntaxError):
    place = f'{error.filename}, line {error.lineno}'
    text = error.msg
  else:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f'{frame.filename}, line {frame.lineno}'
  return f'{type(error).__name__}: {text} ({place})'


def _register(text: str) -> None:
  """Registers with gin the names in a text that the user's modules define."""
  names = {(reference or owner).rpartition('.')[2]
           for reference, owner in _NAME.findall(text)}
  for module in _modules.values():
    for name in sorted(names & set(vars(module))):
      found = getattr(module, name)
      if not (inspect.isclass(found) or inspect.isfunction(found)):
        continue
      # pylint: disable=protected-access
      if gin.config._inverse_lookup(found) is not None:
        continue
      if gin.config._REGISTRY.matching_selectors(name):
        if found.__module__ != module.__name__:
          continue  # The module imports it, and the text means the other.
        raise ValueError(f'{module.__name__}.{name}: there is another configurable of '
                         'this name: expected a name of its own')
      gin.external_configurable(found, name=name, module=module.__name__)
