"""The way of a process to the replay of its run: unrolls and weights."""

from __future__ import annotations

from typing import Optional, Union

from gtrxl_tf.replay import reverb_client
from gtrxl_tf.replay import rings
from gtrxl_tf.replay import unroll

Connection = Union[rings.Connection, reverb_client.Connection]
Weights = Union[rings.Weights, reverb_client.Weights]


def connect(address: Optional[str], layout: unroll.Layout) -> Connection:
  """Connects a process to the replay of its run.

  The connection has a `writer` for an actor, the learner's end of the `queue`, and both
  ends of the transfer of `weights`.

  Args:
    address: a path is the memory of a run on one machine, see `shared.create`, and
      HOST:PORT a Reverb server. None is a new replay within this process.
    layout: what the processes of the run exchange.
  """
  if address is None:
    return rings.Connection(layout)
  if not address.startswith('/'):
    return reverb_client.Connection(address, layout)
  from gtrxl_tf.replay import shared  # It needs fcntl, which other systems lack.
  return shared.Connection(address, layout)
