"""The Reverb server: a queue of unrolls and a table of weights."""

from typing import Sequence

import reverb
import tensorflow as tf

from gtrxl_tf.replay import unroll as unroll_lib
from gtrxl_tf.replay import weights
from gtrxl_tf.replay import writer


def serve(port: int, row: unroll_lib.Unroll, unroll_length: int, memory_length: int,
          queue_size: int, variables: Sequence[tf.Variable]) -> reverb.Server:
  """Starts a server.

  Args:
    port: to listen on, on all interfaces: Reverb has no setting for it.
    row: shapes and dtypes of what an actor writes at every step.
    unroll_length: T.
    memory_length: M.
    queue_size: items that may wait; when it is full actors do.
    variables: of the network that acts.
  """
  queue = reverb.Table.queue(
      writer.TABLE, queue_size,
      signature=unroll_lib.signature(row, unroll_length, memory_length))
  return reverb.Server([queue, weights.table(variables)], port=port)
