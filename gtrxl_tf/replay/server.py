"""The Reverb server: a queue of unrolls and a table of weights."""

from __future__ import annotations

from typing import Dict, Optional, Sequence

import tensorflow as tf

from gtrxl_tf import machine
from gtrxl_tf.replay import lazy_reverb as reverb
from gtrxl_tf.replay import reverb_writer
from gtrxl_tf.replay import server_lost
from gtrxl_tf.replay import settings_table
from gtrxl_tf.replay import unroll
from gtrxl_tf.replay import weights
from gtrxl_tf.settings import config


def serve(port: int, row: unroll.Unroll, unroll_length: int, memory_length: int,
          queue_size: int, variables: Sequence[tf.Variable],
          settings: Optional[str] = None, half_weights: bool = False) -> reverb.Server:
  """Starts a server, whose tables are empty.

  Its queue holds a batch, which is soon too old to be trained on, and the learner
  publishes its weights again. So nothing is kept for another start.

  Args:
    port: the port to listen on, on all interfaces (Reverb cannot restrict them).
    row: shapes and dtypes of what an actor writes at every step.
    unroll_length: T.
    memory_length: M.
    queue_size: the number of items that the queue holds; actors wait while it is full.
    variables: the variables of the acting network.
    settings: a text that everyone who connects can read, see `settings_table`.
    half_weights: whether weights have 16 bits, see `weights.specs`.
  """
  check_port(port)
  signature = unroll.signature(row, unroll_length, memory_length)
  tables = [reverb.Table.queue(reverb_writer.TABLE, queue_size, signature=signature),
            weights.table(variables, half_weights)]
  if settings is not None:
    tables.append(settings_table.table())
  server = reverb.Server(tables, port=port)
  if settings is not None:
    settings_table.publish(f'localhost:{port}', settings)
  return server


def check_port(port: int, host: str = '0.0.0.0') -> None:
  """Refuses a port that is in use, which Reverb would share without an error.

  Args:
    port: the port to listen on.
    host: this machine, by a name or an address; by default all interfaces.
  """
  try:
    machine.addresses(host, port)
  except OSError as error:
    raise config.ConfigError(f'{machine.host_and_port(host, port)} cannot be listened '
                             f'on: {error.strerror}') from error


def sizes(port: int) -> Dict[str, float]:
  """Counts the items present, inserted and sampled of every table but the settings'.

  Raises:
    ServerLost: the server does not answer, as on an overloaded machine.
  """
  with server_lost.converted():
    tables = reverb.Client(f'localhost:{port}').server_info(10)
  found = {}
  for name, table in tables.items():
    if name == settings_table.TABLE:
      continue
    limiter = table.rate_limiter_info
    found[f'{name}_items'] = table.current_size
    found[f'{name}_inserted'] = limiter.insert_stats.completed
    found[f'{name}_sampled'] = limiter.sample_stats.completed
  return found
