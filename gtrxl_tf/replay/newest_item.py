"""Tables of one item: the newest weights, and the settings."""

from __future__ import annotations

from typing import Any, List, Optional

from gtrxl_tf.environments import optional
from gtrxl_tf.replay import deadline
from gtrxl_tf.replay import lazy_reverb as reverb
from gtrxl_tf.replay import server_lost


def table_info(client: reverb.Client, table: str, timeout: int) -> Optional[Any]:
  """Returns the `TableInfo` of a table; None if the server has no such table.

  `Client.server_info` also decodes the signatures of all tables, which takes ten times
  as long, and actors ask before every unroll.

  Args:
    client: a client of the server.
    table: the table's name.
    timeout: seconds for the server to answer.

  Raises:
    ServerLost: the server does not answer.
  """
  schema_pb2 = optional.load('reverb.cc.schema_pb2', 'online training', 'online')
  with server_lost.converted():
    found = client._client.ServerInfo(timeout)  # pylint: disable=protected-access
  for serialized in found:
    info = schema_pb2.TableInfo.FromString(serialized)
    if info.name == table:
      return info
  return None


def make(name: str, signature: Any) -> reverb.Table:
  """Returns a table that keeps the newest item, which everyone may sample."""
  return reverb.Table(
      name, sampler=reverb.selectors.Uniform(), remover=reverb.selectors.Fifo(),
      max_size=1, rate_limiter=reverb.rate_limiters.MinSize(1), signature=signature)


def sample(client: reverb.Client, table: str) -> List[Any]:
  """Returns the columns of a table's item.

  Raises:
    ServerLost: the server does not answer.
  """
  found, = deadline.call(lambda: list(client.sample(table, emit_timesteps=False)),
                         f'the server sends no {table}')
  # An inserted item is returned as a sequence of one.
  return [column[0] for column in found.data]
