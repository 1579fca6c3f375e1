"""Keepalive for TCP connections, which closes those to hosts that have vanished.

If a host loses its power or its network, TCP notices this only after more than 15
minutes while it sends data, and never while it does not. gRPC has a
keepalive, but Reverb does not enable it on its channels, and no environment variable
does. This module therefore sets the kernel's options SO_KEEPALIVE and TCP_USER_TIMEOUT
on all sockets of the process. A call on a connection that the kernel closes fails, and
the caller reconnects.
"""

import contextlib
import math
import os
import socket
import threading
from typing import Iterator

# Silence of a host, in seconds, after which its connections are closed. With a shorter
# time, every short fault of a network would close them, which costs more than waiting.
SECONDS = 30

_LOOK_SECONDS = 2.0  # Between searches for new sockets.
_JOIN_SECONDS = 5.0


@contextlib.contextmanager
def keep_alive(seconds: int = SECONDS) -> Iterator[None]:
  """Closes this process's TCP connections to hosts that are silent for too long.

  It applies to all connections that exist or are opened within the context, from two
  seconds after they are opened.

  Args:
    seconds: how long a host may leave data or keepalive probes unanswered.
  """
  ended = threading.Event()

  def watch() -> None:
    while not ended.wait(_LOOK_SECONDS):
      _set_options(seconds)

  _set_options(seconds)
  thread = threading.Thread(target=watch, daemon=True)
  thread.start()
  try:
    yield
  finally:
    ended.set()
    thread.join(_JOIN_SECONDS)


def _set_options(seconds: int) -> None:
  """Sets the options of all TCP sockets of this process."""
  for name in os.listdir('/proc/self/fd'):
    with contextlib.suppress(OSError):  # It is no socket, or was closed.
      _set_options_of(int(name), seconds)


def _set_options_of(descriptor: int, seconds: int) -> None:
  shared = socket.socket(fileno=descriptor)
  try:
    if (shared.family not in (socket.AF_INET, socket.AF_INET6)
        or shared.type != socket.SOCK_STREAM):
      return
    # Setting them again would send a probe each time.
    if shared.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1000 * seconds:
      return
    idle, interval = max(1, seconds // 3), max(1, seconds // 6)
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, idle), (socket.TCP_KEEPINTVL, interval),
        (socket.TCP_KEEPCNT, max(1, math.ceil((seconds - idle) / interval))),
        (socket.TCP_USER_TIMEOUT, 1000 * seconds)):
      shared.setsockopt(socket.IPPROTO_TCP, option, value)
  finally:
    shared.detach()  # Its owner closes it.
