"""The Reverb server: a queue of unrolls and a table of weights."""

from __future__ import annotations

import pathlib
from typing import Dict, Optional, Sequence

from absl import logging
import tensorflow as tf

from gtrxl_tf import files
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
          checkpoints: Optional[pathlib.Path] = None,
          settings: Optional[str] = None,
          half_weights: bool = False) -> reverb.Server:
  """Starts a server.

  Args:
    port: the port to listen on, on all interfaces (Reverb cannot restrict them).
    row: shapes and dtypes of what an actor writes at every step.
    unroll_length: T.
    memory_length: M.
    queue_size: the number of items that the queue holds; actors wait while it is full.
    variables: the variables of the acting network.
    checkpoints: a folder for Reverb's checkpoints of the tables. The server resumes
      from the newest. Without a folder it starts empty, and `checkpoint` fails. A
      damaged checkpoint is renamed to `tables.damaged`, and the server starts empty: it
      loses the queued items, which are few and soon too old. Reverb does not notice a
      file that ends between two records, such as an empty one: it loads the items that
      are whole.
    settings: a text that everyone who connects can read, see `settings_table`.
    half_weights: whether weights have 16 bits, see `weights.specs`.
  """
  signature = unroll.signature(row, unroll_length, memory_length)

  def make_server(folder: Optional[pathlib.Path]) -> reverb.Server:
    checkpointer = None
    if folder is not None:
      folder.mkdir(parents=True, exist_ok=True)
      checkpointer = reverb.platform.checkpointers_lib.DefaultCheckpointer(
          path=str(folder))
    served = [reverb.Table.queue(reverb_writer.TABLE, queue_size, signature=signature),
              weights.table(variables, half_weights)]
    if settings is not None:
      served.append(settings_table.table())
    return reverb.Server(served, port=port, checkpointer=checkpointer)

  check_port(port)
  tables = None
  if checkpoints is not None:
    tables = checkpoints / 'tables'  # For Reverb alone, which removes other files.
  try:
    server = make_server(tables)
  except (RuntimeError, ValueError) as error:
    if tables is None or not any(tables.iterdir()):
      raise
    # The machine lost power, or the disk was full, while a checkpoint was written.
    aside = files.set_aside(tables)
    logging.warning('server: %s cannot be read (%s): starting with empty tables; the '
                    'earlier ones are now %s', tables, config.one_line(error), aside.name)
    server = make_server(tables)
  if settings is not None:  # They replace those in the checkpoint.
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


def checkpoint(port: int) -> None:
  """Makes the local server at `port` write its tables to its folder."""
  try:
    with server_lost.converted():
      reverb.Client(f'localhost:{port}').checkpoint()
  except (server_lost.ServerLost, IndexError) as error:  # IndexError: the disk is full.
    logging.error('server: no checkpoint of the tables; the queued items are lost if it '
                  'ends: %s', config.one_line(error))


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
