"""The settings with which a server was started, in a table of one item."""

from __future__ import annotations

from typing import Optional

import numpy as np
import tensorflow as tf

from gtrxl_tf.replay import lazy_reverb as reverb
from gtrxl_tf.replay import newest_item
from gtrxl_tf.replay import server_lost

TABLE = 'settings'


def table() -> reverb.Table:
  """Makes a table that holds the newest text, as bytes."""
  return newest_item.make(TABLE, tf.TensorSpec([None], tf.uint8))


def publish(address: str, text: str) -> None:
  """Puts a text into the table of the server at `address`."""
  reverb.Client(address).insert(
      np.frombuffer(text.encode(), np.uint8), {TABLE: 1.0})


def read(address: str, timeout: int = 10) -> Optional[str]:
  """Returns the text of the server at `address`; None if it was started without one.

  Args:
    address: the Reverb server's address.
    timeout: seconds for the server to answer whether there is a text.

  Raises:
    ServerLost: the server does not answer, or has only just been started.
  """
  client = reverb.Client(address)
  info = newest_item.table_info(client, TABLE, timeout)
  if info is None:
    return None
  if not info.current_size:
    raise server_lost.ServerLost('the server has no settings yet')
  text, = newest_item.sample(client, TABLE)
  return bytes(text).decode()
