"""Tests of weights.py, whose other tests are in connection_test.py: lost servers."""

import time

from absl.testing import absltest
import numpy as np
import portpicker
import pytest
import tensorflow as tf

from gtrxl_tf.replay import replay_testing
from gtrxl_tf.replay import server
from gtrxl_tf.replay import server_lost
from gtrxl_tf.replay import unroll
from gtrxl_tf.replay import weights


@replay_testing.needs_reverb
class WeightsChannelTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.port = portpicker.pick_unused_port()
    self.learned, self.arrived = (
        [tf.Variable(tf.zeros([2, 3])), tf.Variable(tf.zeros([4], tf.int64))]
        for _ in range(2))
    self.start_server()
    self.publisher, self.receiver = self.channel(self.learned), self.channel(self.arrived)

  def start_server(self):
    numbers = tf.TensorSpec([1], tf.float32)
    self.server = server.serve(self.port, unroll.Layout(
        unroll.Unroll(*[numbers] * len(unroll.Unroll._fields)), 2, 1,
        weights=weights.specs(self.learned)))
    self.addCleanup(self.server.stop)

  def channel(self, variables):
    return weights.WeightsChannel(f'localhost:{self.port}', variables)

  def retry(self, call):
    """Calls until it raises no error: connections to the old server are closed late."""
    deadline = time.time() + 30
    while True:
      try:
        return call()
      except server_lost.ServerLost:
        self.assertLess(time.time(), deadline)

  def set(self, value):
    for variable in self.learned:
      variable.assign(tf.cast(tf.fill(variable.shape, value), variable.dtype))

  def test_a_restarted_server_gets_the_newest_weights_again(self):
    self.assertFalse(self.publisher.publish_again_if_lost())
    self.set(3)
    self.publisher.publish(70)
    self.assertEqual(self.receiver.receive(), 70)
    self.assertFalse(self.publisher.publish_again_if_lost())
    self.assertIsNone(self.receiver.receive())
    self.server.stop()
    self.start_server()
    receiver = self.channel(self.arrived)
    self.assertIsNone(self.retry(receiver.receive))
    self.set(0)  # Later values do not count.
    self.assertTrue(self.retry(self.publisher.publish_again_if_lost))
    self.assertEqual(self.retry(receiver.receive), 70)
    for variable in self.arrived:
      np.testing.assert_array_equal(variable, np.full(variable.shape, 3))
    self.assertFalse(self.publisher.publish_again_if_lost())

  def test_who_publishes_learns_that_the_server_was_restarted(self):
    self.assertFalse(self.publisher.publish(70))
    self.assertFalse(self.publisher.publish(80))
    self.server.stop()
    self.start_server()
    self.assertTrue(self.retry(lambda: self.publisher.publish(90)))
    self.assertFalse(self.publisher.publish(100))

  def test_a_server_for_another_network_takes_no_weights(self):
    others = self.channel(self.learned[:1])
    with self.assertRaises(server_lost.ServerLost):
      others.publish(80)

  @pytest.mark.medium
  def test_a_server_that_is_gone_is_an_error(self):
    self.publisher.publish(70)
    self.server.stop()
    for call in (self.receiver.receive,
                 lambda: self.publisher.publish_again_if_lost(timeout=1)):
      with self.assertRaises(server_lost.ServerLost):
        call()


if __name__ == '__main__':
  absltest.main()
