"""Tests of unroll_queue.py."""

import gc
import math
import threading
import time
from unittest import mock
import weakref

from absl.testing import absltest

from gtrxl_tf.replay import replay_testing
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
        'localhost:1', 1, staleness.Ledger(1), lambda: False, stall_seconds=60)
    with mock.patch.object(unroll_queue, 'unrolls', return_value=self.batches):
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

  def test_unrolls_that_wait_while_none_comes_mean_that_the_connection_is_lost(self):
    for length in 2, math.nan:
      queue = self.connect()
      queue._stall_seconds = 0.1  # pylint: disable=protected-access
      with mock.patch.object(queue, 'length', side_effect=[0, length]):
        with self.assertRaisesRegex(server_lost.ServerLost, f'^{length} unrolls wait'):
          queue.next(lambda: False)


@replay_testing.needs_reverb
class CallTest(absltest.TestCase):

  def test_a_call_in_time_returns_or_raises(self):
    self.assertEqual(server_lost.call(lambda: 3, 'three'), 3)
    with self.assertRaisesRegex(KeyError, 'door'):
      server_lost.call(lambda: {}['door'], 'a door')

  def test_a_call_that_does_not_return_is_abandoned(self):
    released = threading.Event()
    self.addCleanup(released.set)
    with self.assertRaisesRegex(server_lost.ServerLost, '^no answer for 0 s: a door$'):
      server_lost.call(released.wait, 'a door', seconds=0.2)


if __name__ == '__main__':
  absltest.main()
