"""Waits until another process changes a word of memory that both have mapped."""

import ctypes
import platform
import time

import numpy as np

_WAIT, _WAKE = range(2)
_ALL = 2**31 - 1
# The number of the system call on 64-bit Linux.
_FUTEX = {'x86_64': 202, 'aarch64': 98}.get(
    platform.machine() if platform.system() == 'Linux' else '')
_LOOK_SECONDS = 0.002  # Between two looks on other systems.
_libc = ctypes.CDLL(None)


class _Timespec(ctypes.Structure):
  _fields_ = [('seconds', ctypes.c_long), ('nanoseconds', ctypes.c_long)]


def wait(word: np.ndarray, value: int, seconds: float) -> None:
  """Waits until `wake` is called, or the time is over; it may also return earlier.

  Args:
    word: an array of one int32.
    value: if the word has another value, it changed before, and this returns at once.
    seconds: how long to wait at most.
  """
  if _FUTEX:
    time_out = _Timespec(int(seconds), int(seconds % 1 * 1e9))
    _call(word, _WAIT, value, ctypes.byref(time_out))
  elif word[0] == value:
    time.sleep(min(seconds, _LOOK_SECONDS))


def wake(word: np.ndarray) -> None:
  """Wakes all that wait for a word, which has a new value."""
  if _FUTEX:
    _call(word, _WAKE, _ALL, None)


def _call(word, operation, value, time_out) -> None:
  # The call is interruptible, and lets other threads run. Its result says nothing that
  # the word does not.
  _libc.syscall(ctypes.c_long(_FUTEX), ctypes.c_void_p(word.ctypes.data),
                ctypes.c_int(operation), ctypes.c_int(value), time_out, None,
                ctypes.c_int(0))
