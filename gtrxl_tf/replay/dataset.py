"""A dataset that reads a learner's batches from Reverb's queue."""

from typing import Callable

import numpy as np
import tensorflow as tf

from gtrxl_tf.replay import lazy_reverb as reverb
from gtrxl_tf.replay import reverb_writer
from gtrxl_tf.replay import server_lost
from gtrxl_tf.replay import staleness
from gtrxl_tf.replay import unroll as unroll_lib


def unrolls(address: str, num_items: int, ledger: staleness.Ledger,
            should_stop: Callable[[], bool], timeout_ms: int = 1000,
            abandoned: Callable[[], bool] = lambda: False) -> tf.data.Dataset:
  """Reads batches of `num_items` items that the ledger admits, each of E environments.

  The dataset has one worker, one item in flight, and prefetches nothing: items that
  Reverb and tf.data would fetch early grow old before they are trained on. It waits for
  items, and for a lost server to return, until `should_stop` returns True. The ledger
  sees every item, including those that it refuses.

  Args:
    address: the Reverb server's address.
    num_items: items per batch.
    ledger: admits items as they are taken from the queue.
    should_stop: called at the start and whenever the queue of a server that answers has
      been empty for `timeout_ms`; once it returns True the dataset ends.
    timeout_ms: how long to wait for an item before calling `should_stop`.
    abandoned: called for every item; once it returns True no item is admitted, and the
      dataset ends. A stream that is no longer read would otherwise keep taking items
      while the ledger refuses them.

  Returns:
    A dataset of `Unroll`, batch first: `[num_items * E, time, ...]`, static shapes.

  Raises:
    ServerLost: there is no server.
  """
  with server_lost.converted():
    samples = reverb.TrajectoryDataset.from_table_signature(
        address, reverb_writer.TABLE, max_in_flight_samples_per_worker=1,
        num_workers_per_iterator=1, rate_limiter_timeout_ms=timeout_ms,
        get_signature_timeout_secs=10)

  def until(over):
    def goes_on(_):
      go_on = tf.numpy_function(lambda: np.bool_(not over()), [], tf.bool)
      return tf.ensure_shape(go_on, [])
    return goes_on

  def admitted(sample):
    unroll = sample.data
    unroll_length = unroll.episode_return.shape[0]
    admit = tf.numpy_function(
        lambda *args: np.bool_(ledger.admit(*args)),
        [unroll.unroll_id[0], unroll.target_step[0], unroll.step_type[-unroll_length:],
         unroll.episode_return, unroll.episode_success, unroll.task[0]], tf.bool)
    return tf.ensure_shape(admit, [])

  # Sampling restarts after each time-out; the unfinished batch keeps its samples.
  return (tf.data.Dataset.counter().take_while(until(should_stop))
          .flat_map(lambda _: samples).take_while(until(abandoned)).filter(admitted)
          .map(lambda sample: unroll_lib.Unroll(*sample.data))  # Reverb gives a tuple.
          .batch(num_items, drop_remainder=True)
          .map(_batch_first)
          .with_options(_options()))


def _options() -> tf.data.Options:
  options = tf.data.Options()
  # The default ones include parallel maps, which ran four batches ahead when measured.
  options.experimental_optimization.apply_default_optimizations = False
  return options


def _batch_first(unroll: unroll_lib.Unroll) -> unroll_lib.Unroll:
  """Turns `[items, time, E, ...]` into `[items * E, time, ...]`.

  `target_step` and `unroll_id` keep their shape `[items, 1]`.
  """
  def leaf(x):
    x = tf.transpose(x, [0, 2, 1, *range(3, x.shape.rank)])
    return tf.reshape(x, [x.shape[0] * x.shape[1], *x.shape[2:]])
  ids = dict(target_step=unroll.target_step, unroll_id=unroll.unroll_id)
  rest = unroll._replace(**{name: () for name in ids})
  return tf.nest.map_structure(leaf, rest)._replace(**ids)
