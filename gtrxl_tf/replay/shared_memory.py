"""Memory that the processes of a run share, for the arrays of `memory_replay`."""

import contextlib
import ctypes
import fcntl
import os
import platform
import tempfile
import time
from typing import Any, Iterator

import numpy as np

from gtrxl_tf.replay import mapped
from gtrxl_tf.replay import memory_replay
from gtrxl_tf.replay import unroll
from gtrxl_tf.settings import config

_KIND = b'gtrxlmem'  # The first word of the header.

# The number of the system call that waits until a word changes, and its operations. On
# other processors a process looks at the word again and again.
_FUTEX = {'x86_64': 202, 'aarch64': 98}.get(platform.machine())
_WAIT, _WAKE = range(2)
_LOOK_SECONDS = 0.002
_libc = ctypes.CDLL(None)


def create(layout: unroll.Layout) -> int:
  """Makes the memory; returns its descriptor, for `address`.

  It has no name, takes no room in /dev/shm, and is freed when the last process that has
  it ends, in whatever way. Where the system has no such files, it is an unlinked file in
  the folder for temporary files.

  Args:
    layout: what the processes exchange.

  Raises:
    OSError: the disk is full, where there must be a file.
  """
  size = mapped.size(memory_replay.specs(layout))
  if hasattr(os, 'memfd_create'):
    descriptor = os.memfd_create('gtrxl_replay')
    os.fchmod(descriptor, 0o600)
  else:
    with tempfile.TemporaryFile() as file:
      descriptor = os.dup(file.fileno())
    os.posix_fallocate(descriptor, 0, size)
  os.ftruncate(descriptor, size)
  os.pwrite(descriptor, _KIND, 0)
  return descriptor


def address(descriptor: int) -> str:
  """Returns the path by which processes of the same user find a memory."""
  return f'/proc/{os.getpid()}/fd/{descriptor}'


class Connection(memory_replay.Connection):
  """A process's connection to the memory; see `connection.connect`.

  Processes may be killed anywhere. The kernel then frees the lock, and what was begun
  does not count, since each change is complete when a single word changes. Words change
  under the lock, so that a process that has seen a change there also sees, on every
  processor, what was written before it.
  """

  def __init__(self, path: str, layout: unroll.Layout):
    """Opens the memory.

    Args:
      path: the result of `address`.
      layout: what the processes exchange.

    Raises:
      config.ConfigError: it cannot be opened, or was made for other settings.
    """
    self.address, self.name = path, f'the memory {path}'
    specs = memory_replay.specs(layout)
    try:
      # Each connection opens the file itself: duplicated descriptors would share a lock.
      self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
      raise config.ConfigError(
          f'--server={path}: {error.strerror}: expected the memory of a run of the same '
          'user, on the same machine and in the same container') from error
    if os.pread(self._descriptor, len(_KIND), 0) != _KIND:
      raise config.ConfigError(f'--server={path}: expected the memory of a run')
    size = os.fstat(self._descriptor).st_size
    if size != mapped.size(specs):
      raise config.ConfigError(
          f'--server={path} has {size:,} bytes: expected {mapped.size(specs):,} by these '
          'settings. All parts of a run need the same')
    super().__init__(layout, mapped.map_file(self._descriptor, specs))

  def __del__(self):
    with contextlib.suppress(AttributeError):
      os.close(self._descriptor)

  @contextlib.contextmanager
  def locked(self) -> Iterator[np.ndarray]:
    with super().locked() as words:
      fcntl.flock(self._descriptor, fcntl.LOCK_EX)
      try:
        yield words
      finally:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

  def wait(self, word: int, value: int, seconds: float) -> None:
    if _FUTEX:
      time_out = (ctypes.c_long * 2)(int(seconds), int(seconds % 1 * 1e9))
      self._futex(word, _WAIT, value, time_out)
    elif self.read(word) == value:
      time.sleep(min(seconds, _LOOK_SECONDS))

  def wake(self, word: int) -> None:
    if _FUTEX:
      self._futex(word, _WAKE, 2**31 - 1, None)  # Wakes all that wait.

  def _futex(self, word: int, operation: int, value: int, time_out: Any) -> None:
    """Calls the kernel for the lower half of a word; other threads run meanwhile."""
    _libc.syscall(
        ctypes.c_long(_FUTEX), ctypes.c_void_p(self._words[word:].ctypes.data),
        ctypes.c_int(operation), ctypes.c_int(value), time_out, None, ctypes.c_int(0))
