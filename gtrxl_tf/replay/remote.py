"""The replay of a run on several machines: a Reverb server."""

from __future__ import annotations

from typing import Callable, Optional, Sequence

import tensorflow as tf

from gtrxl_tf.replay import lazy_reverb as reverb
from gtrxl_tf.replay import reverb_writer
from gtrxl_tf.replay import settings_table
from gtrxl_tf.replay import staleness
from gtrxl_tf.replay import unroll
from gtrxl_tf.replay import unroll_queue
from gtrxl_tf.replay import weights as weights_lib


class Connection:
  """A process's connection to a server; see `connection.connect`."""

  def __init__(self, address: str, layout: unroll.Layout):
    """Creates the connection, which connects when it is first used."""
    self.address, self.name = address, f'the server at {address}'
    self._layout = layout
    self._client = reverb.Client(address)

  def settings(self) -> Optional[str]:
    """Returns the text that the server was started with."""
    return settings_table.read(self.address)

  def writer(self, actor: int = 0, identity: Optional[int] = None
             ) -> reverb_writer.ReverbWriter:
    """Returns a writer of an actor's rows."""
    del actor  # The server needs no index.
    layout = self._layout
    return reverb_writer.ReverbWriter(
        self._client, layout.row, layout.unroll_length, layout.memory_length, identity,
        layout.overlap)

  def weights(self, variables: Sequence[tf.Variable]) -> weights_lib.WeightsChannel:
    """Returns an end of the transfer of weights."""
    return weights_lib.WeightsChannel(
        self.address, variables, self._layout.half_weights)

  def queue(self, num_items: int, ledger: staleness.Ledger,
            should_stop: Callable[[], bool], stall_seconds: float
            ) -> unroll_queue.UnrollQueue:
    """Returns the learner's end of the queue; see `UnrollQueue`."""
    layout = self._layout
    return unroll_queue.UnrollQueue(
        self.address, num_items, ledger, should_stop, stall_seconds,
        unroll.signature(layout.row, layout.unroll_length, layout.memory_length))
