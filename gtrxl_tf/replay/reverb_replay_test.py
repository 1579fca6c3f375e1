"""Tests of reverb_replay.py, whose other tests are in connection_test.py: lost servers."""

import itertools
import math
import threading
import time
from unittest import mock

from absl.testing import absltest
import numpy as np
import portpicker
import pytest
import tensorflow as tf

from gtrxl_tf.replay import connection
from gtrxl_tf.replay import packed_weights
from gtrxl_tf.replay import replay_testing
from gtrxl_tf.replay import reverb_replay
from gtrxl_tf.replay import server
from gtrxl_tf.replay import server_lost
from gtrxl_tf.replay import staleness
from gtrxl_tf.replay import unroll


@replay_testing.needs_reverb
class LostServerTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.port = portpicker.pick_unused_port()
    self.learned, self.arrived = (
        [tf.Variable(tf.zeros([2, 3])), tf.Variable(tf.zeros([4], tf.int64))]
        for _ in range(2))
    numbers = tf.TensorSpec([1], tf.float32)
    self.layout = unroll.Layout(
        unroll.Unroll(*[numbers] * len(unroll.Unroll._fields)), 2, 1,
        weights=packed_weights.specs(self.learned))
    self.start_server()
    self.replay = connection.connect(f'localhost:{self.port}', self.layout)
    self.publisher, self.receiver = map(self.replay.weights, (self.learned, self.arrived))

  def start_server(self):
    self.server = server.serve(self.port, self.layout)
    self.addCleanup(self.server.stop)

  def retry(self, call):
    """Calls until it raises no error: connections to the old server are closed late."""
    deadline = time.time() + 30
    while True:
      try:
        return call()
      except server_lost.ServerLost:
        self.assertLess(time.time(), deadline)

  def connected_queue(self):
    queue = self.replay.queue(1, staleness.Ledger(1))
    queue.connect(self.publisher)
    return queue

  def test_a_restarted_server_is_noticed_once_by_who_publishes(self):
    self.publisher.publish(70)
    self.publisher.publish(80)
    self.server.stop()
    self.start_server()
    for variable in self.learned:
      variable.assign(tf.cast(tf.fill(variable.shape, 3), variable.dtype))
    with self.assertRaises(server_lost.ServerLost):
      self.publisher.publish(90)
    self.retry(lambda: self.publisher.publish(90))
    self.assertEqual(self.retry(self.receiver.receive), 90)
    for variable in self.arrived:
      np.testing.assert_array_equal(variable, np.full(variable.shape, 3))

  def test_a_learner_that_waits_notices_a_restarted_server(self):
    self.publisher.publish(70)
    queue = self.connected_queue()
    asked = itertools.count()
    self.assertIsNone(queue.next(lambda: next(asked) == 2))
    self.server.stop()
    self.start_server()
    with self.assertRaises(server_lost.ServerLost):
      queue.next(lambda: False)

  @pytest.mark.medium
  def test_unrolls_that_wait_while_none_comes_mean_that_the_connection_is_lost(self):
    released = threading.Event()
    self.addCleanup(released.set)
    queue = self.connected_queue()
    with mock.patch.object(queue, '_look', return_value=2), mock.patch.object(
        reverb_replay, '_ITEM_SECONDS', 1.0), mock.patch.object(
            queue._client, 'sample', side_effect=lambda *_, **__: released.wait()):
      with self.assertRaises(server_lost.ServerLost):
        queue.next(lambda: False)

  def test_an_abandoned_queue_waits_for_a_new_connection(self):
    queue = self.connected_queue()
    queue.abandon()
    with self.assertRaises(server_lost.ServerLost):
      queue.next(lambda: False)
    queue.connect(self.publisher)
    self.assertIsNone(queue.next(lambda: True))

  def test_a_server_for_another_network_takes_no_weights(self):
    with self.assertRaises(server_lost.ServerLost):
      self.replay.weights(self.learned[:1]).publish(80)

  @pytest.mark.medium
  def test_a_server_that_is_gone_is_an_error(self):
    queue = self.connected_queue()
    self.publisher.publish(70)
    self.server.stop()
    for call in (self.receiver.receive, lambda: self.publisher.publish(80),
                 lambda: queue.next(lambda: False)):
      with self.assertRaises(server_lost.ServerLost):
        call()
    self.assertTrue(math.isnan(queue.length()))


@replay_testing.needs_reverb
class CallTest(absltest.TestCase):

  def test_a_call_in_time_returns_or_raises(self):
    self.assertEqual(server_lost.call(lambda: 3, 'three'), 3)
    with self.assertRaisesRegex(KeyError, 'door'):
      server_lost.call(lambda: {}['door'], 'a door')

  def test_a_call_that_does_not_return_is_abandoned(self):
    released = threading.Event()
    self.addCleanup(released.set)
    with self.assertRaises(server_lost.ServerLost):
      server_lost.call(released.wait, 'a door', seconds=0.2)


if __name__ == '__main__':
  absltest.main()
