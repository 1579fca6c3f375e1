"""The learner's end of Reverb's queue: batches of unrolls."""

import functools
import gc
import math
import queue
import threading
import time
from typing import Callable, Iterator, List, Optional

from absl import logging
import tensorflow as tf

from gtrxl_tf.replay import dataset
from gtrxl_tf.replay import deadline
from gtrxl_tf.replay import lazy_reverb as reverb
from gtrxl_tf.replay import newest_item
from gtrxl_tf.replay import reverb_writer
from gtrxl_tf.replay import server_lost
from gtrxl_tf.replay import staleness
from gtrxl_tf.replay import unroll
from gtrxl_tf.replay import weights
from gtrxl_tf.settings import config

# Seconds between checks that the server has the newest weights, and their timeout. A
# server that was killed and started again has lost them.
_LOOK_SECONDS = 1.0
_LOOK_TIMEOUT = 3
# Seconds to wait for threads at the end. If the interpreter exited while one of them is
# inside Reverb's C++ code, the process would abort.
_JOIN_SECONDS = 5.0
# Seconds after which a connection is abandoned if it is silent while unrolls wait; half
# of `stall_seconds` if that is more, because a large transfer takes time.
_SILENT_SECONDS = 30.0


class UnrollQueue:
  """Takes batches from a Reverb server's queue; connects again as often as asked."""

  def __init__(self, address: str, items_per_batch: int, ledger: staleness.Ledger,
               should_stop: Callable[[], bool], stall_seconds: float,
               signature: unroll.Unroll):
    """Creates the queue's end; nothing is connected yet.

    Args:
      address: the Reverb server's address.
      items_per_batch: the items of a batch, each of E environments.
      ledger: the ledger that admits items.
      should_stop: called while waiting, sometimes from another thread.
      stall_seconds: seconds after which a connection without unrolls is given up.
      signature: the signature of the items.
    """
    self._address = address
    self._ledger = ledger
    self._should_stop = should_stop
    self._stall_seconds = stall_seconds
    self._items_per_batch = items_per_batch
    self._signature = signature
    self._abandoned = threading.Event()  # Each connection has its own.
    self._batches: Optional[tf.data.Dataset] = None
    self._iterator: Optional[Iterator[unroll.Unroll]] = None
    self._threads: List[threading.Thread] = []

  def abandon(self) -> None:
    """Gives up the connection: from now on it takes nothing from the queue."""
    self._abandoned.set()
    # As long as the iterator exists, Reverb fetches items for it. Deleting it was seen
    # to take a minute, for which only a thread should wait.
    last_reference = [self._iterator]
    self._iterator = None
    if last_reference[0] is not None:
      self._start_thread(last_reference.clear)

  def connect(self, channel: Optional[weights.WeightsChannel] = None) -> None:
    """Connects, and gives up the connection before.

    Args:
      channel: if given, a thread checks whether the server still has its weights. If
        not, the thread publishes them again and gives up the connection.

    Raises:
      config.ConfigError: the server was started with other settings.
    """
    self.abandon()
    reverb_writer.check_signature(
        reverb.Client(self._address), self._signature, "the learner's")
    if self._batches is not None:
      gc.collect()  # Frees the functions of the last connection.
    self._abandoned = abandoned = threading.Event()
    if channel:
      self._start_thread(_keep_published, channel, abandoned)
    self._batches = dataset.unrolls(
        self._address, self._items_per_batch, self._ledger,
        should_stop=lambda: self._should_stop() or abandoned.is_set(),
        abandoned=abandoned.is_set)

  def next(self, alive_or_stop: Callable[[], bool]) -> Optional[unroll.Unroll]:
    """Returns the next batch; None if the learner should stop or reconnect.

    A thread waits for it: if the network is cut, Reverb does not return, and without
    the thread the learner could not be told to stop. The learner reconnects, and
    thereby publishes its weights again, if no unroll of the batch has arrived for
    `stall_seconds`. This loses nothing, whatever the cause is.

    Args:
      alive_or_stop: called every second; returns whether to stop.

    Raises:
      ServerLost: the connection is broken, or delivers nothing although unrolls wait in
        the queue.
    """
    if self._iterator is None:
      self._iterator = iter(self._batches)
    found = queue.SimpleQueue()
    self._start_thread(
        deadline.run, functools.partial(next, self._iterator, None), found)
    started, taken_at_start = time.monotonic(), self._ledger.taken
    taken, since = taken_at_start, started  # The last change of `taken`.
    longest = max(_SILENT_SECONDS, self._stall_seconds / 2)
    while True:
      try:
        batch, error = found.get(timeout=1)
      except queue.Empty:
        if alive_or_stop() or self._abandoned.is_set():
          return None
        waited = time.monotonic() - started
        if self._ledger.taken == taken_at_start and waited > self._stall_seconds:
          logging.warning('learner: no unroll has come for %.0f s: it connects again to '
                          'the server at %s', waited, self._address)
          self.abandon()
          return None
        if self._ledger.taken != taken:
          taken, since = self._ledger.taken, time.monotonic()
        elif time.monotonic() - since > longest:
          since, waiting = time.monotonic(), self.length()
          if waiting > 0:
            self.abandon()
            raise server_lost.ServerLost(
                f'{waiting:.0f} unrolls wait in the queue and none has come for '
                f'{longest:.0f} s') from None
        continue
      try:
        if error is not None:
          with server_lost.converted():
            raise error
        return batch
      finally:
        del error  # Its traceback has this frame: a cycle, which keeps the iterator.

  def length(self, raises: bool = False) -> float:
    """Returns how many items wait; NaN, or an error, if the server does not answer."""
    try:
      return newest_item.table_info(
          reverb.Client(self._address), reverb_writer.TABLE, timeout=1).current_size
    except server_lost.ServerLost:
      if raises:
        raise
      return math.nan

  def close(self) -> None:
    """Gives up the connection, and waits a little for threads to end."""
    self.abandon()
    end = time.monotonic() + _JOIN_SECONDS
    for thread in self._threads:
      thread.join(max(0, end - time.monotonic()))

  def _start_thread(self, target: Callable[..., None], *args) -> None:
    self._threads = [thread for thread in self._threads if thread.is_alive()]
    self._threads.append(threading.Thread(target=target, args=args, daemon=True))
    self._threads[-1].start()


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
    except config.ConfigError:
      abandoned.set()
    except server_lost.ServerLost:
      pass  # The server is gone; the learner connects to the next one.
