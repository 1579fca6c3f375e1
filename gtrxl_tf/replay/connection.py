"""The way of a process to the replay of its run: unrolls and weights."""

from typing import Optional, Union

from gtrxl_tf.replay import remote
from gtrxl_tf.replay import rings
from gtrxl_tf.replay import unroll
from gtrxl_tf.replay import weights

Connection = Union[rings.Connection, remote.Connection]
Weights = Union[rings.Weights, weights.WeightsChannel]


def connect(address: Optional[str], layout: unroll.Layout) -> Connection:
  """Connects a process to the replay of its run.

  The connection has a `writer` for an actor, the learner's end of the `queue`, both ends
  of the transfer of `weights`, and the `settings` of the run.

  Args:
    address: a path is the memory of a run on one machine, see `shared.create`, and
      HOST:PORT a Reverb server. None is a new replay within this process.
    layout: what the processes of the run exchange.

  Raises:
    config.ConfigError: it is no memory that this process can use.
  """
  if address is None:
    return rings.Connection(layout)
  if not address.startswith('/'):
    return remote.Connection(address, layout)
  from gtrxl_tf.replay import shared  # It needs fcntl, which other systems lack.
  return shared.Connection(address, layout)
