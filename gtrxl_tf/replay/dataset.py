"""Batches of unrolls for a learner."""

from typing import Callable

import numpy as np
import reverb
import tensorflow as tf

from gtrxl_tf.replay import ledger as ledger_lib
from gtrxl_tf.replay import unroll as unroll_lib
from gtrxl_tf.replay import writer


def unrolls(address: str, num_items: int, ledger: ledger_lib.Ledger,
            should_stop: Callable[[], bool], timeout_ms: int = 1000,
            abandoned: Callable[[], bool] = lambda: False) -> tf.data.Dataset:
  """Batches of `num_items` items that the ledger admits, each of E environments.

  One worker, one item in flight and nothing prefetched: what Reverb and tf.data would
  pull ahead by themselves grows old before it is trained on. The dataset waits for
  items as long as it may, and for a server that went away to come back.
  The ledger sees every item, also those that it refuses.

  Args:
    address: of the Reverb server.
    num_items: items a batch.
    ledger: admits items as they are taken from the queue.
    should_stop: asked at the start and whenever the queue of a server that answers has
      been empty for `timeout_ms`; if so the dataset ends.
    timeout_ms: how long to wait for an item before asking.
    abandoned: asked for every item; once it returns True no item is admitted, and the
      dataset ends. A stream that is no longer read would otherwise go on taking items
      for as long as the ledger refuses them.

  Returns:
    A dataset of `Unroll`, batch first: `[num_items * E, time, ...]`, static shapes.
  """
  samples = reverb.TrajectoryDataset.from_table_signature(
      address, writer.TABLE, max_in_flight_samples_per_worker=1,
      num_workers_per_iterator=1, rate_limiter_timeout_ms=timeout_ms,
      get_signature_timeout_secs=10)

  def goes_on(_):
    go_on = tf.numpy_function(lambda: np.bool_(not should_stop()), [], tf.bool)
    return tf.ensure_shape(go_on, [])

  def in_use(_):
    used = tf.numpy_function(lambda: np.bool_(not abandoned()), [], tf.bool)
    return tf.ensure_shape(used, [])

  def admitted(sample):
    unroll = sample.data
    unroll_length = unroll.episode_return.shape[0]
    admit = tf.numpy_function(
        lambda *args: np.bool_(ledger.admit(*args)),
        [unroll.unroll_id[0], unroll.target_step[0], unroll.step_type[-unroll_length:],
         unroll.episode_return, unroll.episode_success, unroll.task[0]], tf.bool)
    return tf.ensure_shape(admit, [])

  options = tf.data.Options()
  # One of them makes parallel maps, which run ahead, by four batches when measured.
  options.experimental_optimization.apply_default_optimizations = False
  # Sampling begins again after a time-out, behind which a batch goes on to fill.
  return (tf.data.Dataset.counter().take_while(goes_on).flat_map(lambda _: samples)
          .take_while(in_use)
          .filter(admitted)
          .map(lambda sample: unroll_lib.Unroll(*sample.data))  # Only alike so far.
          .batch(num_items, drop_remainder=True)
          .map(_batch_first)
          .with_options(options))


def _batch_first(unroll: unroll_lib.Unroll) -> unroll_lib.Unroll:
  """`[items, time, E, ...]` to `[items * E, time, ...]`; scalars `[items, 1]` stay."""
  def leaf(x):
    x = tf.transpose(x, [0, 2, 1, *range(3, x.shape.rank)])
    return tf.reshape(x, [x.shape[0] * x.shape[1], *x.shape[2:]])
  ids = dict(target_step=unroll.target_step, unroll_id=unroll.unroll_id)
  rest = unroll._replace(**{name: () for name in ids})
  return tf.nest.map_structure(leaf, rest)._replace(**ids)
