"""A deadline for calls of Reverb that have none."""

import queue
import threading
from typing import Any, Callable

# Weights of a GiB take ten seconds at 1 Gbit/s.
SECONDS = 30.0


def call(function: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
  """Returns what `function` returns, or raises its error.

  Reverb's `insert` and `sample` try again for as long as a server is gone, inside a call
  in which the process cannot be told to stop. Here they are called in a thread, which
  is left alone when the deadline has passed.

  Args:
    function: takes no arguments.
    what: is waited for, for the error.
    seconds: the deadline.

  Raises:
    RuntimeError: the deadline has passed.
  """
  found = queue.SimpleQueue()

  def run() -> None:
    try:
      found.put((function(), None))
    except BaseException as error:  # pylint: disable=broad-exception-caught
      found.put((None, error))

  threading.Thread(target=run, daemon=True).start()
  try:
    result, error = found.get(timeout=seconds)
  except queue.Empty:
    raise RuntimeError(f'no answer for {seconds:.0f} s: {what}') from None
  if error is not None:
    raise error
  return result
