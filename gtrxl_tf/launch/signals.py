"""Turns SIGTERM and SIGINT into a function that a loop can call."""

import contextlib
import multiprocessing
import os
import pathlib
import signal
import threading
import time
from typing import Any, Callable, Iterator, List

# Signals within this time mean the same: `timeout` sends SIGTERM to its child and then to
# the process group, systemd to all processes of a service, and a terminal to its own.
SECONDS_OF_ONE_SIGNAL = 1
_ORPHAN_SECONDS = 20  # For a part to end once its supervisor is gone.
_SIGHUP = getattr(signal, 'SIGHUP', None)  # Windows has none.
_JOIN_SECONDS = 5  # For a thread to end, which takes it no time.


@contextlib.contextmanager
def stop_requested(*signals: signal.Signals, ends_at_second: bool = True
                   ) -> Iterator[Callable[[], bool]]:
  """Yields a function that returns whether the user or the system requested a stop.

  A second signal ends the process and those that it has started at once, unless it comes
  within a second, or it is SIGHUP: a shell and the system may both send it. As Python
  handles signals between its own instructions, both count when a call of TensorFlow ends.

  Python gives signals to the main thread alone. In another one, nothing requests a stop.

  Args:
    *signals: the signals that request a stop; by default SIGTERM, SIGINT and, unless
      it is ignored, as after `nohup`, SIGHUP.
    ends_at_second: whether a second signal ends the process at once.
  """
  if threading.current_thread() is not threading.main_thread():
    yield lambda: False
    return
  if not signals:
    signals = signal.SIGTERM, signal.SIGINT
    if _SIGHUP and signal.getsignal(_SIGHUP) != signal.SIG_IGN:
      signals += (_SIGHUP,)
  came: List[float] = []  # When the first signal came; an event's lock could block.

  def handle(number: int, frame: Any) -> None:
    del frame
    if not came:
      came.append(time.monotonic())
    elif (ends_at_second and number != _SIGHUP
          and time.monotonic() - came[0] > SECONDS_OF_ONE_SIGNAL):
      _end_at_once(number)

  handlers = {number: signal.signal(number, handle) for number in signals}
  try:
    yield lambda: bool(came)
  finally:
    for number, handler in handlers.items():
      signal.signal(number, handler)


def _end_at_once(signum: int) -> None:
  """Kills all processes that this one has started, and ends it."""
  pids = [os.getpid()]
  for pid in pids:  # It grows.
    for children in pathlib.Path(f'/proc/{pid}/task').glob('*/children'):
      with contextlib.suppress(OSError):  # It may have ended.
        pids += map(int, children.read_text().split())
  for pid in pids[1:]:
    with contextlib.suppress(OSError):
      os.kill(pid, signal.SIGKILL)
  # A handler must not print: the signal may have come within a print.
  os.write(2, b'Ended at once: what is newer than the last checkpoint is lost. Run the same '
           b'command to continue.\n')
  os._exit(128 + signum)


@contextlib.contextmanager
def stop_requested_by_parent() -> Iterator[Callable[[], bool]]:
  """Does the same as `stop_requested`, for a process of `multiprocessing`.

  SIGTERM requests a stop, and so does the end of the process that started this one, or
  of the fork server; 20 seconds after that the process exits in any case. SIGINT is
  left to the parent, because a terminal sends it to all processes.
  """
  orphaned, ended = threading.Event(), threading.Event()
  parent, forked_from = multiprocessing.parent_process(), os.getppid()

  def watch():
    while parent.is_alive() and os.getppid() == forked_from:
      if ended.wait(1):
        return
    orphaned.set()
    time.sleep(_ORPHAN_SECONDS)
    os._exit(1)  # It hangs, waiting for a part that has ended.

  thread = threading.Thread(target=watch, daemon=True)
  thread.start()
  try:
    with stop_requested(signal.SIGTERM, ends_at_second=False) as should_stop:
      signal.signal(signal.SIGINT, signal.SIG_IGN)
      yield lambda: should_stop() or orphaned.is_set()
  finally:
    ended.set()
    if not orphaned.is_set():  # Otherwise it must end a process that hangs.
      thread.join(_JOIN_SECONDS)
