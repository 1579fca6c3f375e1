"""The way of a process to the replay of its run: unrolls and weights."""

from __future__ import annotations

from typing import Optional, Union

from gtrxl_tf.replay import memory_replay
from gtrxl_tf.replay import reverb_replay
from gtrxl_tf.replay import unroll

Connection = Union[memory_replay.Connection, reverb_replay.Connection]
Weights = Union[memory_replay.Weights, reverb_replay.Weights]


def connect(address: Optional[str], layout: unroll.Layout) -> Connection:
  """Connects a process to the replay of its run.

  The connection has a `writer` for an actor, the learner's end of the `queue`, and both
  ends of the transfer of `weights`.

  Args:
    address: a path is the memory of a run on one machine, see `shared_memory.create`, and
      HOST:PORT a Reverb server. None is a new replay within this process.
    layout: what the processes of the run exchange.
  """
  if address is None:
    return memory_replay.Connection(layout)
  if not address.startswith('/'):
    return reverb_replay.Connection(address, layout)
  from gtrxl_tf.replay import shared_memory  # It needs fcntl, which other systems lack.
  return shared_memory.Connection(address, layout)
