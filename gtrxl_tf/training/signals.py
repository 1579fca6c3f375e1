"""SIGTERM and SIGINT as a question that a loop may ask."""

import contextlib
import os
import signal
import socket
import threading
from typing import Callable, Iterator


@contextlib.contextmanager
def stop_requested(*signals: signal.Signals) -> Iterator[Callable[[], bool]]:
  """Gives what says whether the user or the system has asked for an end.

  It is heard also while the main thread is inside TensorFlow, where Python runs no
  handler: a thread reads what the interpreter writes as a signal arrives. The second
  signal ends the process at once.

  Args:
    *signals: that ask for it; by default SIGTERM and SIGINT.
  """
  signals = signals or (signal.SIGTERM, signal.SIGINT)
  stop = threading.Event()
  ours, pythons = socket.socketpair()
  pythons.setblocking(False)

  def watch():
    with ours:
      for number in iter(lambda: ours.recv(1), b''):
        if number[0] in signals:
          if stop.is_set():
            os._exit(128 + number[0])
          stop.set()

  threading.Thread(target=watch, daemon=True).start()
  # Without a handler Python would write nothing.
  handlers = {s: signal.signal(s, lambda *_: None) for s in signals}
  descriptor = signal.set_wakeup_fd(pythons.fileno(), warn_on_full_buffer=False)
  try:
    yield stop.is_set
  finally:
    signal.set_wakeup_fd(descriptor)
    for number, handler in handlers.items():
      signal.signal(number, handler)
    pythons.close()  # Ends the thread, which closes the other socket.
