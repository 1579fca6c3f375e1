"""Says on the console what a trainer does until its first row of metrics."""

import threading
import time

from absl import logging

# Seconds after which a line says why there is none. The next lines come after twice the
# time each.
_SECONDS_BEFORE_LINE = 30.0
_JOIN_SECONDS = 10.0


class LongSteps:
  """Logs what a trainer waits for until its first row of metrics.

  The first step of a large network may take minutes, and nothing else is printed before
  `Experiment.log_period` steps have ended. It runs in its own thread, since the trainer
  is then inside a call of TensorFlow. Use it as a context.
  """

  def __init__(self):
    self._ended = threading.Event()
    self.now('waits for its first batch')

  def __enter__(self) -> 'LongSteps':
    self._started = self._since = time.monotonic()
    self._thread = threading.Thread(target=self._watch, daemon=True)
    self._thread.start()
    return self

  def __exit__(self, *_) -> None:
    self.row_logged()
    self._thread.join(_JOIN_SECONDS)

  def now(self, doing: str) -> None:
    """Records what the trainer does from now on."""
    self._doing, self._since = doing, time.monotonic()

  def row_logged(self) -> None:
    """Ends the lines: from now on, the rows of metrics show the progress."""
    self._ended.set()

  def _watch(self) -> None:
    seconds = _SECONDS_BEFORE_LINE
    while not self._ended.wait(self._started + seconds - time.monotonic()):
      now = time.monotonic()
      logging.warning(
          'no line of progress yet after %.0f s: the learner %s, for %.0f s so far',
          now - self._started, self._doing, now - self._since)
      seconds *= 2
