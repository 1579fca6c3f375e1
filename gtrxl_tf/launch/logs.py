"""Redirects the output of libraries on standard error to a file."""

import contextlib
import logging
import os
import pathlib
import sys
from typing import Callable, Iterator, Optional, TextIO


def redirect(path: pathlib.Path) -> Callable[[], None]:
  """Redirects the output of libraries on standard error to a file.

  TensorFlow, XLA and Reverb write to file descriptor 2, which becomes the file. Python's
  `sys.stderr` still goes where it went: it shows why a run stops, and this library's
  warnings. The file also gets these warnings and the library's messages of level INFO.

  Args:
    path: the file, which is appended to. If it cannot be opened, as on a full disk,
      nothing changes.

  Returns:
    A function that ends the redirection.
  """
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
  except OSError:
    return lambda: None
  stderr, terminal = sys.stderr, os.dup(2)
  stderr.flush()
  os.dup2(file, 2)
  os.close(file)
  if _descriptor(stderr) == 2:  # A test may capture it.
    sys.stderr = os.fdopen(os.dup(terminal), 'w', buffering=1,
                           encoding=stderr.encoding, errors=stderr.errors)
  root = logging.getLogger()
  handlers, raises = root.handlers[:], logging.raiseExceptions
  _set_handlers(root, stderr)
  logging.raiseExceptions = False  # On a full disk, messages are lost.

  def undo():
    root.handlers[:], logging.raiseExceptions = handlers, raises
    stderr.flush()
    os.dup2(terminal, 2)
    os.close(terminal)
    if sys.stderr is not stderr:
      sys.stderr.close()
      sys.stderr = stderr

  return undo


@contextlib.contextmanager
def kept(path: pathlib.Path) -> Iterator[None]:
  """Redirects as `redirect` does, within a context."""
  undo = redirect(path)
  try:
    yield
  finally:
    undo()


def _descriptor(stream) -> Optional[int]:
  try:
    return stream.fileno()
  except (AttributeError, OSError, ValueError):
    return None


class _FileHandler(logging.Handler):
  """Writes messages to file descriptor 2; on a full disk they are lost."""

  def emit(self, record: logging.LogRecord) -> None:
    if record.name != 'tensorflow':  # TensorFlow itself writes there.
      with contextlib.suppress(OSError):
        os.write(2, f'{self.format(record)}\n'.encode(errors='replace'))


def _set_handlers(root: logging.Logger, stderr: TextIO) -> None:
  """Sends messages to the file, and this library's warnings also to `sys.stderr`.

  Args:
    root: its handlers change. Those that tests have added stay.
    stderr: the earlier `sys.stderr`.
  """
  root.handlers[:] = [
      x for x in root.handlers if getattr(x, 'stream', None) is not stderr]
  if not root.handlers:
    console = logging.StreamHandler(sys.stderr)
    console.setLevel(logging.WARNING)
    console.addFilter(logging.Filter('absl'))
    console.setFormatter(logging.Formatter('%(levelname)s: %(message)s'))
    root.addHandler(console)
  file = _FileHandler()
  file.setFormatter(logging.Formatter('%(asctime)s %(levelname)s %(message)s'))
  root.addHandler(file)
