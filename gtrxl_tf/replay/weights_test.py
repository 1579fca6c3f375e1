"""Tests of weights.py."""

import time
from unittest import mock

from absl.testing import absltest
import numpy as np
import portpicker
import pytest
import reverb
from reverb.platform import checkpointers_lib
import tensorflow as tf

from gtrxl_tf.replay import server_lost
from gtrxl_tf.replay import weights
from gtrxl_tf.settings import config


def _variables(value):
  """Variables of several shapes and dtypes, as a network has."""
  return [tf.Variable(tf.cast(tf.fill(shape, value), dtype)) for shape, dtype in (
      ([2, 3], tf.float32), ([], tf.float32), ([4], tf.int64), ([5], tf.float16))]


class WeightsChannelTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.port = portpicker.pick_unused_port()
    self.checkpoints = self.create_tempdir().full_path
    self.learners, self.actors = _variables(0), _variables(0)
    self.start_server()
    self.publisher, self.receiver = self.channels()

  def start_server(self):
    self.server = reverb.Server(
        [weights.table(self.learners)], port=self.port,
        checkpointer=checkpointers_lib.DefaultCheckpointer(self.checkpoints))
    self.addCleanup(self.server.stop)

  def retry(self, call):
    """Calls until it raises no error: connections to the old server are closed late."""
    deadline = time.time() + 30
    while True:
      try:
        return call()
      except server_lost.ServerLost:
        self.assertLess(time.time(), deadline)

  def channels(self):
    """The learner's end and the actor's end of a channel."""
    address = f'localhost:{self.port}'
    return (weights.WeightsChannel(address, self.learners),
            weights.WeightsChannel(address, self.actors))

  def publish(self, value, step):
    for variable in self.learners:
      variable.assign(tf.cast(tf.fill(variable.shape, value), variable.dtype))
    self.publisher.publish(step)

  def assert_received(self, value):
    for variable in self.actors:
      np.testing.assert_array_equal(variable, np.full(variable.shape, value))

  def test_published_weights_are_received(self):
    self.publish(3, step=70)
    self.assertEqual(self.receiver.receive(), 70)
    self.assert_received(3)

  def test_nothing_is_received_before_weights_are_published(self):
    self.assertIsNone(self.receiver.receive())
    self.assert_received(0)

  def test_the_same_weights_are_received_once(self):
    self.publish(3, step=70)
    self.receiver.receive()
    self.actors[0].assign(tf.zeros([2, 3]))
    self.assertIsNone(self.receiver.receive())
    np.testing.assert_array_equal(self.actors[0], np.zeros([2, 3]))
    self.publish(4, step=70)
    self.assertEqual(self.receiver.receive(), 70)
    self.assert_received(4)

  def test_only_the_newest_is_received(self):
    for step in range(1, 6):
      self.publish(step, step)
    self.assertEqual(self.receiver.receive(), 5)
    self.assert_received(5)
    self.assertIsNone(self.receiver.receive())

  def test_every_receiver_receives(self):
    self.publish(3, step=70)
    _, other = self.channels()
    self.assertEqual([self.receiver.receive(), other.receive()], [70, 70])

  def test_weights_that_the_server_still_holds_are_not_published_again(self):
    self.assertFalse(self.publisher.publish_again_if_lost())
    self.publish(3, step=70)
    self.receiver.receive()
    self.assertFalse(self.publisher.publish_again_if_lost())
    self.assertIsNone(self.receiver.receive())

  def test_a_server_restored_from_a_checkpoint_gets_the_newest_weights_again(self):
    self.publish(3, step=70)
    self.publisher._client.checkpoint()  # pylint: disable=protected-access
    self.assertFalse(self.publisher.publish_again_if_lost())
    self.publish(4, step=80)
    self.server.stop()
    self.start_server()
    _, receiver = self.channels()
    self.assertEqual(self.retry(receiver.receive), 70)
    self.assert_received(3)
    for variable in self.learners:  # Later values do not count.
      variable.assign(tf.zeros_like(variable))
    self.assertTrue(self.retry(self.publisher.publish_again_if_lost))
    self.assertEqual(self.retry(receiver.receive), 80)
    self.assert_received(4)
    self.assertFalse(self.publisher.publish_again_if_lost())

  def test_who_publishes_learns_that_the_server_was_restarted(self):
    self.assertFalse(self.publisher.publish(70))
    self.assertFalse(self.publisher.publish(80))
    self.server.stop()
    self.start_server()
    self.assertTrue(self.retry(lambda: self.publisher.publish(90)))
    self.assertFalse(self.publisher.publish(100))

  def test_the_step_at_the_server_is_that_of_its_weights(self):
    self.assertIsNone(self.publisher.step_at_server())
    self.publish(3, step=70)
    self.publish(4, step=80)
    self.assertEqual(self.publisher.step_at_server(), 80)

  def test_the_last_weights_are_marked(self):
    self.publish(3, step=70)
    self.receiver.receive()
    self.assertFalse(self.receiver.finished)
    self.publisher.publish(70, finished=True)
    self.assertEqual(self.receiver.receive(), 70)
    self.assertTrue(self.receiver.finished)

  def test_weights_of_another_network_are_refused(self):
    self.publish(3, step=70)
    others = self.actors[:1] + [tf.Variable(tf.zeros([7]))] + self.actors[2:]
    channel = weights.WeightsChannel(f'localhost:{self.port}', others)
    with self.assertRaisesRegex(config.ConfigError, r'variable 1 is float32\[\]'):
      channel.receive()
    self.assert_received(0)
    with self.assertRaisesRegex(
        config.ConfigError, f'^the server at localhost:{self.port} is for weights of '
        'another network: '):
      channel.publish(80)

  def test_new_channels_work_with_a_new_server_on_the_same_port(self):
    self.publish(3, step=70)
    self.receiver.receive()
    self.server.stop()
    self.start_server()
    self.publisher, self.receiver = self.channels()
    self.assertIsNone(self.receiver.receive())
    self.publish(4, step=90)
    self.assertEqual(self.receiver.receive(), 90)
    self.assert_received(4)

  @pytest.mark.medium
  def test_a_server_that_is_gone_is_an_error(self):
    self.publish(3, step=70)
    self.server.stop()
    self.enter_context(mock.patch.object(weights, '_TIMEOUT', 1))
    for call in (self.receiver.receive, self.publisher.step_at_server,
                 lambda: self.publisher.publish_again_if_lost(timeout=1)):
      with self.assertRaises(server_lost.ServerLost):
        call()


if __name__ == '__main__':
  absltest.main()
