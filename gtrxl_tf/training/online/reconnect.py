"""Waits before another attempt to reach a server that does not answer."""

import gc
import random
import re
import time
from typing import Callable

from absl import logging

from gtrxl_tf.replay import server_lost
from gtrxl_tf.settings import config


def check_address(address: str, flag: str = 'server') -> str:
  """Returns `address`, the value of a flag: HOST:PORT, or the path of a memory."""
  if address.startswith('/') and flag == 'server':
    return address
  host, _, port = address.rpartition(':')
  if (not re.fullmatch(r'[^:/\[\]]+|\[[^/\[\]]+\]', host)
      or not port.isdigit() or not 0 < int(port) < 65536):
    raise config.ConfigError(f'--{flag}={address}: expected HOST:PORT, as in '
                             'localhost:8000 or [::1]:8000')
  return address


class Backoff:
  """Exponential backoff: waits one second, then twice as long each time, up to a limit.

  Each wait is drawn between half of that and all of it, so that actors that lost the
  server together do not reconnect together.
  """

  def __init__(self, who: str, address: str, should_stop: Callable[[], bool],
               server: str = 'Reverb server', longest: float = 30.0):
    """Creates the backoff.

    Args:
      who: the name of the part that waits, for the log.
      address: the server's address.
      should_stop: ends a wait.
      server: what the server is called, for the log.
      longest: the longest wait, in seconds.
    """
    self._who = who
    self._address = address
    self._should_stop = should_stop
    self._server = server
    self._longest = longest
    self.reset()

  def reset(self) -> None:
    """Resets the delay."""
    self._seconds = 1.0

  def wait(self, error: server_lost.ServerLost) -> None:
    """Logs the error and waits; does neither if it should stop."""
    if self._should_stop():  # The server may have been stopped at the same time.
      return
    seconds = self._seconds * random.uniform(0.5, 1)
    logging.warning('%s: the %s at %s does not answer (%s); trying again in %.1f s',
                    self._who, self._server, self._address, error, seconds)
    end = time.monotonic() + seconds
    # TensorFlow's functions of a connection, 1 to 2 MiB, are in reference cycles, which
    # Python alone would collect after dozens of connections.
    gc.collect()
    while time.monotonic() < end and not self._should_stop():
      time.sleep(0.1)
    self._seconds = min(2 * self._seconds, self._longest)
