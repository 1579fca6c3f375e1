"""The Reverb server: a queue of unrolls, a table of weights, and one of settings."""

from __future__ import annotations

from typing import Any, Dict, Optional

import numpy as np
import tensorflow as tf

from gtrxl_tf import machine
from gtrxl_tf.replay import lazy_reverb as reverb
from gtrxl_tf.replay import packed_weights
from gtrxl_tf.replay import reverb_replay
from gtrxl_tf.replay import unroll
from gtrxl_tf.settings import config


def serve(port: int, layout: unroll.Layout, settings: Optional[str] = None
          ) -> reverb.Server:
  """Starts a server, whose tables are empty.

  Its queue holds a batch, which is soon too old to be trained on, and the learner
  publishes its weights again. So nothing is kept for another start.

  Args:
    port: the port to listen on, on all interfaces (Reverb cannot restrict them).
    layout: what the processes of the run exchange.
    settings: a text that everyone who connects can read, see `reverb_replay.Connection.check`.
  """
  check_port(port)
  tables = [
      reverb.Table.queue(
          reverb_replay.UNROLLS, layout.queue_size, signature=layout.signature),
      _newest(reverb_replay.WEIGHTS, packed_weights.item_specs(layout.weights))]
  if settings is not None:
    tables.append(_newest(reverb_replay.SETTINGS, tf.TensorSpec([None], tf.uint8)))
  server = reverb.Server(tables, port=port)
  if settings is not None:
    reverb.Client(f'localhost:{port}').insert(
        np.frombuffer(settings.encode(), np.uint8), {reverb_replay.SETTINGS: 1.0})
  return server


def _newest(name: str, signature: Any) -> reverb.Table:
  """Returns a table that keeps the newest item, which everyone may sample."""
  return reverb.Table(
      name, sampler=reverb.selectors.Uniform(), remover=reverb.selectors.Fifo(),
      max_size=1, rate_limiter=reverb.rate_limiters.MinSize(1), signature=signature)


def check_port(port: int, host: str = '0.0.0.0') -> None:
  """Refuses a port that is in use on this machine; Reverb would share it silently."""
  try:
    machine.addresses(host, port)
  except OSError as error:
    raise config.ConfigError(f'{machine.host_and_port(host, port)} cannot be listened '
                             f'on: {error.strerror}') from error


def sizes(port: int) -> Dict[str, float]:
  """Counts the items present, inserted and sampled of every table but the settings'."""
  counts = {}
  for name, table in reverb_replay.tables(reverb.Client(f'localhost:{port}')).items():
    if name != reverb_replay.SETTINGS:
      limiter = table.rate_limiter_info
      counts[f'{name}_items'] = table.current_size
      counts[f'{name}_inserted'] = limiter.insert_stats.completed
      counts[f'{name}_sampled'] = limiter.sample_stats.completed
  return counts
