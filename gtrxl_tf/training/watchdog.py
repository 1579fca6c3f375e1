"""Reports a part of a run that makes no progress."""

import math
import threading
import time
from typing import Callable

from absl import logging

from gtrxl_tf import config

_JOIN_SECONDS = 10.0  # Seconds to wait for a description to finish.


class Watchdog:
  """Logs one line when a part has made no progress for a given time.

  It runs in a thread of its own, since a part that makes no progress is often inside a
  call that does not return. Use it as a context.
  """

  def __init__(self, limit: float, describe: Callable[[float], str]):
    """Creates a watchdog; the clock starts with the context.

    Args:
      limit: seconds without progress after which to log.
      describe: called with the seconds since the last progress; returns the line, or
        raises an error, which is logged in its place.
    """
    self.limit = limit
    self._describe = describe
    self._ended = threading.Event()
    self.progress()

  def progress(self) -> None:
    """Restarts the clock."""
    self._last = time.time()

  def pause(self) -> None:
    """Stops the clock until the next progress."""
    self._last = math.inf

  @property
  def seconds(self) -> float:
    """Seconds since the last progress; 0 while the clock is stopped."""
    return max(0.0, time.time() - self._last)

  def stalled(self) -> bool:
    """Whether there has been no progress for longer than the limit."""
    return not self._ended.is_set() and self.seconds > self.limit

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
    while not self._ended.wait(min(1.0, self.limit / 5)):
      if self.stalled() and self._last != reported:
        reported = self._last
        try:
          line = self._describe(self.seconds)
        except Exception as error:  # pylint: disable=broad-exception-caught
          line = f'no progress for {self.seconds:.0f} s; {config.one_line(error)}'
        logging.warning('%s', line)
