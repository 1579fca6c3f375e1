"""The way of a process to the replay of its run: unrolls and weights."""

from __future__ import annotations

from typing import Callable, Optional, Sequence, Union

import tensorflow as tf

from gtrxl_tf.replay import lazy_reverb as reverb
from gtrxl_tf.replay import reverb_writer
from gtrxl_tf.replay import rings
from gtrxl_tf.replay import server_lost
from gtrxl_tf.replay import staleness
from gtrxl_tf.replay import unroll
from gtrxl_tf.replay import unroll_queue
from gtrxl_tf.replay import weights as weights_lib
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences

SETTINGS = 'settings'  # The table with the settings that a server was started with.
_TIMEOUT = 10  # Seconds for the server to answer.


class ReverbConnection:
  """A process's connection to a Reverb server, the replay of a run on many machines."""

  def __init__(self, address: str, layout: unroll.Layout):
    """Creates the connection, which connects when it is first used."""
    self.address, self.name = address, f'the server at {address}'
    self._layout = layout
    self._client = reverb.Client(address)

  def check(self, settings: Optional[differences.Settings]) -> None:
    """Compares the server's settings and tables with those of this process.

    The usual mistake is a part that is started by hand, on another host, with other
    flags. All parts connect to the server, so its settings are the reference.

    Args:
      settings: the settings of this process; None for an experiment that was not made
        from gin, which is not compared. Neither is a server of such an experiment.

    Raises:
      ServerLost: the server does not answer, or has only just been started.
    """
    with server_lost.converted():
      tables = self._client.server_info(_TIMEOUT)
    if settings is not None and SETTINGS in tables:
      if not tables[SETTINGS].current_size:
        raise server_lost.ServerLost('the server has no settings yet')
      text, = weights_lib.sample(self._client, SETTINGS)
      compare(self.name, settings, differences.from_json(bytes(text).decode()))
    misfit = unroll.misfit(
        self._layout.signature, unroll.Unroll(*tables[reverb_writer.TABLE].signature)
    ) or unroll.misfit(
        dict(weights=weights_lib.item_specs(self._layout.weights)),
        dict(weights=list(tables[weights_lib.TABLE].signature)))
    if misfit:
      raise config.ConfigError(
          f'what this process exchanges does not fit {self.name}: {misfit}. Both need the '
          'same settings')

  def writer(self, actor: int = 0, identity: Optional[int] = None
             ) -> reverb_writer.ReverbWriter:
    """Returns a writer of an actor's rows."""
    del actor  # The server needs no index.
    return reverb_writer.ReverbWriter(self._client, self._layout, identity)

  def weights(self, variables: Sequence[tf.Variable]) -> weights_lib.WeightsChannel:
    """Returns an end of the transfer of weights."""
    return weights_lib.WeightsChannel(
        self.address, variables, self._layout.half_weights)

  def queue(self, num_items: int, ledger: staleness.Ledger,
            should_stop: Callable[[], bool], stall_seconds: float
            ) -> unroll_queue.UnrollQueue:
    """Returns the learner's end of the queue; see `UnrollQueue`."""
    return unroll_queue.UnrollQueue(
        self.address, num_items, ledger, should_stop, stall_seconds)


Connection = Union[rings.Connection, ReverbConnection]
Weights = Union[rings.Weights, weights_lib.WeightsChannel]


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
    return ReverbConnection(address, layout)
  from gtrxl_tf.replay import shared  # It needs fcntl, which other systems lack.
  return shared.Connection(address, layout)


def compare(server: str, ours: differences.Settings, theirs: differences.Settings
            ) -> None:
  """Compares a part's settings with those of a server."""
  different = differences.differences(ours, theirs, differences.OF_ONE_PART)
  if different:
    raise config.ConfigError(
        f'{server} has other settings: {differences.describe(different)}; expected the '
        'same in all parts of a run')
