"""Says on the console what a trainer does while its steps take long."""

import os
import threading
import time
from typing import Callable, Optional

from absl import logging

# Seconds without a row of metrics after which a line says why. The next lines come after
# twice the time each.
_SECONDS_BEFORE_LINE = 30.0
# Seconds after which a step that goes on when the run is told to stop counts as long.
_SECONDS_BEFORE_STOP = 3.0
_POLL_SECONDS = 0.5
_JOIN_SECONDS = 10.0


class LongSteps:
  """Logs what a trainer waits for until its first row of metrics, and at a long stop.

  The first step of a large network may take minutes, and nothing else is printed before
  `Experiment.log_period` steps have ended. A step cannot be interrupted. If the run is
  told to stop within a long step, a line says what that costs; if no step before it
  waits to be saved, the process may end at once.

  It runs in its own thread, since the trainer is then inside a call of TensorFlow. Use
  it as a context.
  """

  def __init__(self, should_stop: Callable[[], bool], may_exit: bool):
    """Creates it; the clock starts with the context.

    Args:
      should_stop: whether the run is told to stop.
      may_exit: whether the process may exit with code 0 within a step, when the run is
        told to stop and there is nothing to save.
    """
    self._should_stop = should_stop
    self._may_exit = may_exit
    self._ended = threading.Event()
    self._logs = True  # Until a row of metrics is logged.
    self._number: Optional[int] = None  # The step under way.
    self._unsaved = 0
    self._now('waits for its first batch')

  def __enter__(self) -> 'LongSteps':
    self._started = self._since = time.monotonic()
    self._thread = threading.Thread(target=self._watch, daemon=True)
    self._thread.start()
    return self

  def __exit__(self, *_) -> None:
    self._ended.set()
    self._thread.join(_JOIN_SECONDS)

  def _now(self, doing: str) -> None:
    self._doing, self._since = doing, time.monotonic()

  def step_begins(self, number: int, unsaved: int) -> None:
    """Records that a step is under way.

    Args:
      number: the number of the step, from 1.
      unsaved: how many steps before it were taken since the last checkpoint.
    """
    self._unsaved = unsaved
    self._now(f'takes learner step {number}')
    self._number = number

  def step_ends(self) -> None:
    """Records that the step has ended."""
    number, self._number = self._number, None
    self._now(f'waits for a batch after learner step {number}')

  def row_logged(self) -> None:
    """Ends the lines: from now on, the rows of metrics show the progress."""
    self._logs = False

  def _watch(self) -> None:
    next_line, stopping = _SECONDS_BEFORE_LINE, None
    while not self._ended.wait(_POLL_SECONDS):
      now = time.monotonic()
      if self._should_stop():
        stopping = stopping or now
        if (self._number is not None
            and now - max(stopping, self._since) > _SECONDS_BEFORE_STOP):
          self._say_what_a_stop_costs(now - self._since)
          return
      elif self._logs and now - self._started > next_line:
        next_line *= 2
        logging.warning(
            'no line of progress yet after %.0f s: the learner %s, for %.0f s so far',
            now - self._started, self._doing, now - self._since)

  def _say_what_a_stop_costs(self, seconds: float) -> None:
    step = f'learner step {self._number}, under way for {seconds:.0f} s,'
    if self._unsaved:
      logging.warning(
          '%s ends before the run stops; if it is killed before, the %d steps since the '
          'last checkpoint are lost', step, self._unsaved)
    elif not self._may_exit:
      logging.warning('%s ends before the run stops', step)
    else:
      logging.warning(
          '%s is given up: %s', step,
          'no step was taken before, so there is nothing to save' if self._number == 1
          else 'all steps before are saved')
      os._exit(0)
