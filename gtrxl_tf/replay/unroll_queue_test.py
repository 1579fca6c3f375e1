"""Tests of unroll_queue.py."""

import gc
import threading
import time
from unittest import mock
import weakref

from absl.testing import absltest

from gtrxl_tf.replay import dataset
from gtrxl_tf.replay import replay_testing
from gtrxl_tf.replay import reverb_writer
from gtrxl_tf.replay import server_lost
from gtrxl_tf.replay import staleness
from gtrxl_tf.replay import unroll_queue


class _Iterator:
  """Waits for a batch until its connection is lost."""

  def __init__(self, lost):
    self._lost = lost

  def __next__(self):
    self._lost.wait()
    raise RuntimeError('Socket closed')


class _Batches:
  """Stands for the dataset of a connection."""

  def __init__(self):
    self.lost = threading.Event()
    self.iterators = weakref.WeakSet()

  def __iter__(self):
    iterator = _Iterator(self.lost)
    self.iterators.add(iterator)
    return iterator


@replay_testing.needs_reverb
class UnrollQueueTest(absltest.TestCase):

  def connect(self):
    """Connects to a stand-in, which Python's collector does not clean up."""
    gc.disable()
    self.addCleanup(gc.enable)
    self.batches = _Batches()
    self.addCleanup(self.batches.lost.set)
    queue = unroll_queue.UnrollQueue(
        'localhost:1', 1, staleness.Ledger(1), lambda: False, stall_seconds=60,
        signature=None)
    with mock.patch.object(dataset, 'unrolls', return_value=self.batches), (
        mock.patch.object(reverb_writer, 'check_signature')):
      queue.connect()
    return queue

  def assert_no_iterator_stays(self):
    """Reverb takes unrolls for an iterator as long as it exists."""
    end = time.time() + 5
    while self.batches.iterators and time.time() < end:
      time.sleep(0.01)
    self.assertEmpty(self.batches.iterators)

  def test_an_iterator_whose_server_is_lost_goes_with_its_connection(self):
    queue = self.connect()
    self.batches.lost.set()
    try:
      queue.next(lambda: False)
      self.fail('no error')
    except server_lost.ServerLost:
      pass  # `assertRaises` would clear the frames of the traceback.
    queue.abandon()
    self.assert_no_iterator_stays()

  def test_an_iterator_that_fails_after_it_was_abandoned_goes_too(self):
    queue = self.connect()
    # It should stop while it waits for a batch.
    self.assertIsNone(queue.next(lambda: True))
    queue.abandon()
    self.batches.lost.set()
    self.assert_no_iterator_stays()


if __name__ == '__main__':
  absltest.main()
