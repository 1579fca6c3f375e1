"""Reports parts of a run that make no progress, and ends those that hang."""

import contextlib
import math
import os
import threading
import time
from typing import Callable, Iterator, Optional

from absl import logging

from gtrxl_tf.settings import config

_JOIN_SECONDS = 10.0  # Seconds to wait for a description to finish.
# Calls with their own deadlines take up to 10 s, and more on a busy machine.
_LEAST_HANG_SECONDS = 120.0
# If the watchdog's own thread did not run for so long, no other did.
_STOPPED_SECONDS = 10.0


class Watchdog:
  """Logs one line when a part has made no progress for a given time.

  It runs in its own thread. Use it as a context.

  A part without progress may be waiting for another one, for any length of time. It
  then calls `alive` regularly. If it does not, a single call has not returned and the
  part hangs, as in an environment that never returns. After `hang` seconds the watchdog
  ends the process with exit code 1, so that a supervisor starts it again.
  """

  def __init__(self, limit: float, describe: Callable[[float], str],
               hang: Optional[float] = None):
    """Creates a watchdog; the clock starts with the context.

    Args:
      limit: seconds without progress after which to log.
      describe: called with the seconds since the last progress; returns the line, or
        raises an error, which is logged in its place.
      hang: seconds without a call of `progress` or `alive` after which the process
        ends; by default three times the limit, and at least 120.
    """
    self._limit = limit
    self.waits_for = ''  # What `describe` may name as the cause.
    self._describe = describe
    self._hang = max(3 * limit, _LEAST_HANG_SECONDS) if hang is None else hang
    self._ended = threading.Event()
    self.progress()

  def progress(self) -> None:
    """Restarts the clock."""
    self._last = self._alive = time.monotonic()

  def alive(self) -> None:
    """Records that the part does not hang, although it may make no progress."""
    if self._alive != math.inf:
      self._alive = time.monotonic()

  def pause(self) -> None:
    """Stops the clock until the next progress."""
    self._last = self._alive = math.inf

  @contextlib.contextmanager
  def waiting_for(self, what: str) -> Iterator[None]:
    """Sets `waits_for` within the context."""
    before, self.waits_for = self.waits_for, what
    try:
      yield
    finally:
      self.waits_for = before

  @property
  def seconds(self) -> float:
    """Seconds since the last progress; 0 while the clock is stopped."""
    return max(0.0, time.monotonic() - self._last)

  def stalled(self) -> bool:
    """Returns whether there has been no progress for longer than the limit."""
    return not self._ended.is_set() and self.seconds > self._limit

  def __enter__(self) -> 'Watchdog':
    self.progress()
    self._thread = threading.Thread(target=self._watch, daemon=True)
    self._thread.start()
    return self

  def __exit__(self, *_) -> None:
    self._ended.set()
    self._thread.join(_JOIN_SECONDS)

  def _watch(self) -> None:
    reported = None  # The time of the last progress when a stall was reported.
    period = min(1.0, self._limit / 5)
    before = time.monotonic()
    while not self._ended.wait(period):
      now = time.monotonic()
      if now - before > _STOPPED_SECONDS:  # For example, after Ctrl-Z.
        self._last += now - before if self._last <= before else 0
        self._alive += now - before if self._alive <= before else 0
      before = now
      if self.stalled() and self._last != reported:
        reported = self._last
        logging.warning('%s', self._line())
      if time.monotonic() - self._alive > self._hang and not self._ended.is_set():
        logging.error(
            '%s; it hangs: no call has returned for %.0f s. The process ends, to be '
            'started again', self._line(), time.monotonic() - self._alive)
        os._exit(1)

  def _line(self) -> str:
    try:
      return self._describe(self.seconds)
    except Exception as error:  # pylint: disable=broad-exception-caught
      return f'no progress for {self.seconds:.0f} s; {config.one_line(error)}'
