"""The Reverb server: a queue of unrolls and a table of weights."""

import pathlib
import socket
from typing import Dict, Optional, Sequence

from absl import logging
import reverb
from reverb.platform import checkpointers_lib
import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf import files
from gtrxl_tf.replay import server_settings
from gtrxl_tf.replay import unroll as unroll_lib
from gtrxl_tf.replay import weights
from gtrxl_tf.replay import writer


def serve(port: int, row: unroll_lib.Unroll, unroll_length: int, memory_length: int,
          queue_size: int, variables: Sequence[tf.Variable],
          checkpoints: Optional[pathlib.Path] = None,
          settings: Optional[str] = None) -> reverb.Server:
  """Starts a server.

  Args:
    port: the port to listen on, on all interfaces (Reverb cannot restrict them).
    row: shapes and dtypes of what an actor writes at every step.
    unroll_length: T.
    memory_length: M.
    queue_size: the number of items that the queue holds; actors wait while it is full.
    variables: the variables of the acting network.
    checkpoints: a folder for Reverb's checkpoints of both tables. The server resumes
      from the newest. Without a folder it starts empty, and `checkpoint` fails.
    settings: a text that everyone who connects can read, see `server_settings`.

  Raises:
    config.ConfigError: the checkpoint is damaged, its tables have other signatures, or
      the port is taken.
  """
  signature = unroll_lib.signature(row, unroll_length, memory_length)
  queue = reverb.Table.queue(writer.TABLE, queue_size, signature=signature)
  table = weights.table(variables)
  _check_port(port)
  checkpointer = None
  if checkpoints is not None:
    tables = checkpoints / 'tables'  # For Reverb alone, which removes other files.
    tables.mkdir(parents=True, exist_ok=True)
    _check_stamp(checkpoints / 'signatures', str((signature, table.info.signature)))
    checkpointer = checkpointers_lib.DefaultCheckpointer(path=str(tables))
  served = [queue, table]
  if settings is not None:
    served.append(server_settings.table())
  try:
    server = reverb.Server(served, port=port, checkpointer=checkpointer)
  except (RuntimeError, ValueError) as error:
    if checkpoints is None:
      raise
    raise config.ConfigError(
        f'the checkpoint in {checkpoints} cannot be read ({config.one_line(error)}); '
        'without the folder the server starts with empty tables and loses the queued '
        'items') from error
  if settings is not None:  # In place of those in the checkpoint.
    server_settings.publish(f'localhost:{port}', settings)
  return server


def _check_port(port: int) -> None:
  """Refuses a port that is in use, which Reverb would share without an error."""
  with socket.socket() as probe:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
      probe.bind(('', port))
    except OSError as error:
      raise config.ConfigError(
          f'port {port} cannot be listened on: {error.strerror}') from error


def _check_stamp(path: pathlib.Path, text: str) -> None:
  """Refuses tables with other signatures; Reverb itself compares only their names."""
  if not path.exists():
    files.write_atomically(path, text)
  elif path.read_text(encoding='utf-8') != text:
    raise config.ConfigError(
        f'{path.parent} has tables of other shapes than these settings give; without '
        'the folder the server starts with empty tables')


def checkpoint(port: int) -> None:
  """Makes the local server at `port` write its tables to its folder."""
  try:
    reverb.Client(f'localhost:{port}').checkpoint()
  except (RuntimeError, reverb.ReverbError) as error:
    logging.error('server: no checkpoint of the tables: %s',
                  str(error).splitlines()[0])


def sizes(port: int) -> Dict[str, float]:
  """Counts of items of the tables of unrolls and weights: present, inserted, sampled."""
  found = {}
  for name, table in reverb.Client(f'localhost:{port}').server_info(10).items():
    if name == server_settings.TABLE:
      continue
    limiter = table.rate_limiter_info
    found[f'{name}_items'] = table.current_size
    found[f'{name}_inserted'] = limiter.insert_stats.completed
    found[f'{name}_sampled'] = limiter.sample_stats.completed
  return found
