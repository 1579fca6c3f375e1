"""Calls of Reverb that end: the error of a lost server, and a deadline."""

import contextlib
import queue
import threading
from typing import Any, Callable, Iterator

import tensorflow as tf

from gtrxl_tf.replay import lazy_reverb as reverb
from gtrxl_tf.settings import config

_SECONDS = 30.0  # A GiB of weights takes ten seconds at 1 Gbit/s.


class ServerLost(Exception):
  """The Reverb server does not answer; another one may be started in its place."""


@contextlib.contextmanager
def converted() -> Iterator[None]:
  """Converts the errors of Reverb's calls in this context into `ServerLost`.

  Reverb's client raises `RuntimeError` if a connection breaks, and its dataset raises
  errors of TensorFlow. The context must hold nothing but such calls, since the user's
  code may raise `RuntimeError` too.
  """
  try:
    yield
  except (RuntimeError, reverb.ReverbError, tf.errors.AbortedError,
          tf.errors.CancelledError, tf.errors.DeadlineExceededError,
          tf.errors.UnavailableError) as error:
    raise ServerLost(config.one_line(error)) from error


class Call:
  """A call of Reverb in a thread of its own.

  Reverb's `insert` and `sample` retry as long as a server is gone, and the process
  cannot be stopped meanwhile. If the caller stops waiting for the result, the thread goes
  on: an `insert` may still take place when the server is back.
  """

  def __init__(self, function: Callable[[], Any]):
    """Starts the thread."""
    self._done = queue.SimpleQueue()
    self.thread = threading.Thread(
        target=_run, args=(function, self._done), daemon=True)
    self.thread.start()

  def result(self, seconds: float) -> Any:
    """Returns what the function returns; raises `queue.Empty` if it takes longer."""
    result, error = self._done.get(timeout=seconds)
    try:
      if error is not None:
        with converted():
          raise error
      return result
    finally:
      del error  # Its traceback has this frame: a reference cycle.


def _run(function: Callable[[], Any], done: queue.SimpleQueue) -> None:
  try:
    done.put((function(), None))
  except BaseException as error:  # pylint: disable=broad-exception-caught
    done.put((None, error))
  finally:
    # The error's traceback has this frame. If no call takes the error out of the queue,
    # the cycle would keep the client or iterator that `function` uses.
    del function, done


def call(function: Callable[[], Any], what: str, seconds: float = _SECONDS) -> Any:
  """Calls Reverb with a deadline; `what` says what is missing if that has passed."""
  try:
    return Call(function).result(seconds)
  except queue.Empty:
    raise ServerLost(f'no answer for {seconds:.0f} s: {what}') from None
