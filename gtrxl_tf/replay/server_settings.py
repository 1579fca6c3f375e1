"""The settings with which a server was started, in a table of one item."""

from typing import Optional

import numpy as np
import reverb
from reverb.cc import schema_pb2
import tensorflow as tf

TABLE = 'settings'


def table() -> reverb.Table:
  """A table for the newest text, as its bytes."""
  return reverb.Table(
      TABLE, sampler=reverb.selectors.Uniform(), remover=reverb.selectors.Fifo(),
      max_size=1, rate_limiter=reverb.rate_limiters.MinSize(1),
      signature=tf.TensorSpec([None], tf.uint8))


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
    RuntimeError: the server does not answer, or has only just been started.
  """
  client = reverb.Client(address)
  # Not `server_info`, which also decodes the signatures of all tables.
  for serialized in client._client.ServerInfo(timeout):  # pylint: disable=protected-access
    info = schema_pb2.TableInfo.FromString(serialized)
    if info.name == TABLE:
      if not info.current_size:
        raise RuntimeError('the server has no settings yet')
      sample, = client.sample(TABLE, emit_timesteps=False)
      return bytes(sample.data[0][0]).decode()
  return None
