"""Redirects the output of libraries on standard error to a file."""

import contextlib
import io
import logging
import os
import pathlib
import sys
from typing import Iterator, TextIO


@contextlib.contextmanager
def kept(path: pathlib.Path, prints: bool = False) -> Iterator[None]:
  """Redirects the output of libraries on standard error to a file, within a context.

  TensorFlow, XLA and Reverb write to file descriptor 2, which becomes the file. Python's
  `sys.stderr` still goes where it went: it shows why a run stops, and this library's
  warnings. The file also gets these warnings and the library's messages of level INFO.

  Args:
    path: the file, which is appended to. If it cannot be opened, as on a full disk,
      nothing changes.
    prints: whether it also gets what is printed to either stream, until the process
      ends. Only the warnings are then on the console.
  """
  file = None
  with contextlib.suppress(OSError):
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
  if file is None:
    yield
    return
  stderr, terminal = sys.stderr, os.dup(2)
  stderr.flush()
  os.dup2(file, 2)
  os.close(file)
  if stderr is sys.__stderr__:  # A test may capture it.
    sys.stderr = os.fdopen(os.dup(terminal), 'w', buffering=1,
                           encoding=stderr.encoding, errors=stderr.errors)
  root = logging.getLogger()
  handlers, raises = root.handlers[:], logging.raiseExceptions
  _set_handlers(root, stderr)
  logging.raiseExceptions = False  # On a full disk, messages are lost.
  if prints:
    os.dup2(2, 1)
    sys.stdout = sys.stderr = _unbuffered(_LogOrConsole(terminal))
  try:
    yield
  finally:
    root.handlers[:], logging.raiseExceptions = handlers, raises
    stderr.flush()
    os.dup2(terminal, 2)
    os.close(terminal)
    if sys.stderr is not stderr:
      sys.stderr.close()
      sys.stderr = stderr


class _LogOrConsole(io.FileIO):
  """Writes to file descriptor 2 or, if its disk is full, to another one."""

  def __init__(self, console: int):
    super().__init__(2, 'w', closefd=False)
    self._console = console

  def write(self, data: bytes) -> int:
    try:
      return super().write(data)
    except OSError:
      return os.write(self._console, data)


def _unbuffered(file: io.FileIO) -> TextIO:
  return io.TextIOWrapper(file, 'utf-8', errors='replace', write_through=True)


def _set_handlers(root: logging.Logger, stderr: TextIO) -> None:
  """Sends messages to the file, and this library's warnings also to `sys.stderr`."""
  root.handlers[:] = [
      x for x in root.handlers if getattr(x, 'stream', None) is not stderr]
  if not root.handlers:
    console = logging.StreamHandler(sys.stderr)
    console.setLevel(logging.WARNING)
    console.addFilter(logging.Filter('absl'))
    console.setFormatter(logging.Formatter('%(levelname)s: %(message)s'))
    root.addHandler(console)
  file = logging.StreamHandler(_unbuffered(io.FileIO(2, 'w', closefd=False)))
  file.addFilter(lambda record: record.name != 'tensorflow')  # It writes there itself.
  file.setFormatter(logging.Formatter('%(asctime)s %(levelname)s %(message)s'))
  root.addHandler(file)
