"""A deadline for Reverb's calls that have none."""

import queue
import threading
from typing import Any, Callable

from gtrxl_tf.replay import server_lost

# A GiB of weights takes ten seconds at 1 Gbit/s.
SECONDS = 30.0


def call(function: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
  """Calls Reverb in a thread, with a deadline, and returns the result.

  Reverb's `insert` and `sample` retry as long as a server is gone, and the process
  cannot be stopped meanwhile. The thread is abandoned, not ended, after the deadline:
  an `insert` may still take place when the server is back.

  Args:
    function: makes the call; takes no arguments.
    what: text for the error, such as 'the server takes no weights'.
    seconds: the deadline.

  Raises:
    ServerLost: the call failed for want of a server, or the deadline has passed.
  """
  found = queue.SimpleQueue()
  threading.Thread(target=run, args=(function, found), daemon=True).start()
  try:
    result, error = found.get(timeout=seconds)
  except queue.Empty:
    raise server_lost.ServerLost(
        f'no answer for {seconds:.0f} s: {what}') from None
  try:
    if error is not None:
      with server_lost.converted():
        raise error
    return result
  finally:
    del error  # Its traceback has this frame: a reference cycle.


def run(function: Callable[[], Any], found: queue.SimpleQueue) -> None:
  """Puts the result of `function` and None, or None and its error, into `found`."""
  try:
    found.put((function(), None))
  except BaseException as error:  # pylint: disable=broad-exception-caught
    found.put((None, error))
  finally:
    # The error's traceback has this frame. If no call takes the error out of the queue,
    # the cycle would keep the client or iterator that `function` uses.
    del function, found
