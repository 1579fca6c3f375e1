"""The learner's end of Reverb's queue: batches of unrolls."""

import functools
import gc
import math
import queue
import threading
import time
from typing import Callable, Iterator, List, Optional

from absl import logging
import numpy as np
import tensorflow as tf

from gtrxl_tf.replay import lazy_reverb as reverb
from gtrxl_tf.replay import reverb_writer
from gtrxl_tf.replay import server_lost
from gtrxl_tf.replay import staleness
from gtrxl_tf.replay import unroll as unroll_lib
from gtrxl_tf.replay import weights

# Seconds between checks that the server has the newest weights, and their timeout. A
# server that was killed and started again has lost them.
_LOOK_SECONDS = 1.0
_LOOK_TIMEOUT = 3
# Seconds to wait for threads at the end. If the interpreter exited while one of them is
# inside Reverb's C++ code, the process would abort.
_JOIN_SECONDS = 5.0


def unrolls(address: str, num_items: int, ledger: staleness.Ledger,
            should_stop: Callable[[], bool],
            abandoned: Callable[[], bool] = lambda: False) -> tf.data.Dataset:
  """Reads batches of `num_items` items that the ledger admits, each of E environments.

  The dataset has one worker, one item in flight, and prefetches nothing: items that
  Reverb and tf.data would fetch early grow old before they are trained on. The ledger
  sees every item, including those that it refuses.

  Args:
    address: the Reverb server's address.
    num_items: items per batch.
    ledger: admits items as they are taken from the queue.
    should_stop: called at the start and whenever the queue of a server that answers has
      been empty for a second; once it returns True the dataset ends.
    abandoned: called for every item; once it returns True no item is admitted, and the
      dataset ends. A stream that is no longer read would otherwise keep taking items
      while the ledger refuses them.

  Returns:
    A dataset of `Unroll`, batch first: `[num_items * E, time, ...]`, static shapes.
  """
  with server_lost.converted():
    samples = reverb.TrajectoryDataset.from_table_signature(
        address, reverb_writer.TABLE, max_in_flight_samples_per_worker=1,
        num_workers_per_iterator=1, rate_limiter_timeout_ms=1000,
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

  options = tf.data.Options()
  # The default ones include parallel maps, which ran four batches ahead when measured.
  options.experimental_optimization.apply_default_optimizations = False
  # Sampling restarts after each time-out; the unfinished batch keeps its samples.
  return (tf.data.Dataset.counter().take_while(until(should_stop))
          .flat_map(lambda _: samples).take_while(until(abandoned)).filter(admitted)
          .map(lambda sample: unroll_lib.Unroll(*sample.data))  # Reverb gives a tuple.
          .batch(num_items, drop_remainder=True)
          .map(_batch_first)
          .with_options(options))


def _batch_first(unroll: unroll_lib.Unroll) -> unroll_lib.Unroll:
  """Turns `[items, time, E, ...]` into `[items * E, time, ...]`, except for the ids."""
  def leaf(x):
    x = tf.transpose(x, [0, 2, 1, *range(3, x.shape.rank)])
    return tf.reshape(x, [x.shape[0] * x.shape[1], *x.shape[2:]])
  ids = dict(target_step=unroll.target_step, unroll_id=unroll.unroll_id)
  rest = unroll._replace(**{name: () for name in ids})
  return tf.nest.map_structure(leaf, rest)._replace(**ids)


class UnrollQueue:
  """Takes batches from a Reverb server's queue; connects again as often as asked."""

  def __init__(self, address: str, items_per_batch: int, ledger: staleness.Ledger,
               should_stop: Callable[[], bool], stall_seconds: float):
    """Creates the queue's end; nothing is connected yet.

    Args:
      address: the Reverb server's address.
      items_per_batch: the items of a batch, each of E environments.
      ledger: the ledger that admits items.
      should_stop: called while waiting, sometimes from another thread.
      stall_seconds: seconds after which a connection without unrolls is lost, unless
        the queue is empty.
    """
    self._address = address
    self._ledger = ledger
    self._should_stop = should_stop
    self._stall_seconds = stall_seconds
    self._items_per_batch = items_per_batch
    self._abandoned = threading.Event()  # Each connection has its own.
    self._batches: Optional[tf.data.Dataset] = None
    self._iterator: Optional[Iterator[unroll_lib.Unroll]] = None
    self._threads: List[threading.Thread] = []

  def abandon(self) -> None:
    """Gives up the connection: from now on it takes nothing from the queue."""
    self._abandoned.set()
    # As long as the iterator exists, Reverb fetches items for it. Deleting it was seen
    # to take a minute, for which only a thread should wait.
    last_reference = [self._iterator]
    self._iterator = None
    if last_reference[0] is not None:
      self._started(last_reference.clear)

  def connect(self, channel: Optional[weights.WeightsChannel] = None) -> None:
    """Connects, and gives up the connection before.

    Args:
      channel: if given, a thread checks whether the server still has its weights. If
        not, the thread publishes them again and gives up the connection.
    """
    self.abandon()
    if self._batches is not None:
      gc.collect()  # Frees the functions of the last connection.
    self._abandoned = abandoned = threading.Event()
    if channel:
      self._started(functools.partial(_keep_published, channel, abandoned))
    self._batches = unrolls(
        self._address, self._items_per_batch, self._ledger,
        should_stop=lambda: self._should_stop() or abandoned.is_set(),
        abandoned=abandoned.is_set)

  def next(self, alive_or_stop: Callable[[], bool]) -> Optional[unroll_lib.Unroll]:
    """Returns the next batch; None if the learner should stop or reconnect.

    A thread waits for it: if the network is cut, Reverb does not return, and without
    the thread the learner could not be told to stop.

    Args:
      alive_or_stop: called every second; returns whether to stop.

    Raises:
      ServerLost: the connection is broken, or delivers nothing although unrolls wait in
        the queue.
    """
    if self._iterator is None:
      self._iterator = iter(self._batches)
    call = self._started(functools.partial(next, self._iterator, None))
    taken, since = self._ledger.taken, time.monotonic()
    while True:
      try:
        return call.result(1)
      except queue.Empty:
        if alive_or_stop() or self._abandoned.is_set():
          return None
        if self._ledger.taken != taken:
          taken, since = self._ledger.taken, time.monotonic()
        elif time.monotonic() - since > self._stall_seconds:
          since, waiting = time.monotonic(), self.length()
          if waiting != 0:
            self.abandon()
            raise server_lost.ServerLost(
                f'{waiting:.0f} unrolls wait in the queue and none has come for '
                f'{self._stall_seconds:.0f} s') from None

  def length(self) -> float:
    """Returns how many items wait; NaN if the server does not answer."""
    try:
      return weights.table_info(
          reverb.Client(self._address), reverb_writer.TABLE, timeout=1).current_size
    except server_lost.ServerLost:
      return math.nan

  def close(self) -> None:
    """Gives up the connection, and waits a little for threads to end."""
    self.abandon()
    end = time.monotonic() + _JOIN_SECONDS
    for thread in self._threads:
      thread.join(max(0, end - time.monotonic()))

  def _started(self, function: Callable[[], None]) -> server_lost.Call:
    call = server_lost.Call(function)
    self._threads = [x for x in self._threads if x.is_alive()] + [call.thread]
    return call


def _keep_published(channel: weights.WeightsChannel, abandoned: threading.Event
                    ) -> None:
  """Publishes weights again when the server has lost them, until `abandoned` is set.

  It runs in a thread, because the learner may be waiting: for unrolls, or for workers
  that wait for unrolls. Actors make no usable unrolls while the weights are lost.
  A server that has lost the weights was restarted, perhaps with other settings. The
  learner therefore reconnects, which compares the settings.
  """
  while not abandoned.wait(_LOOK_SECONDS):
    try:
      if channel.publish_again_if_lost(_LOOK_TIMEOUT):
        logging.info('learner: the server had lost the newest weights; published again')
        abandoned.set()
    except server_lost.ServerLost:
      pass  # The server is gone; the learner connects to the next one.
