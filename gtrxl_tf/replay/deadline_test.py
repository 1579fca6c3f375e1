"""Tests of deadline.py."""

import gc
import threading
import time
import weakref

from absl.testing import absltest

from gtrxl_tf.replay import deadline
from gtrxl_tf.replay import replay_testing
from gtrxl_tf.replay import server_lost


@replay_testing.needs_reverb
class DeadlineTest(absltest.TestCase):

  def test_a_call_in_time_returns_or_raises(self):
    self.assertEqual(deadline.call(lambda: 3, 'three'), 3)
    with self.assertRaisesRegex(KeyError, 'door'):
      deadline.call(lambda: {}['door'], 'a door')

  def test_a_call_that_does_not_return_is_abandoned(self):
    released = threading.Event()
    self.addCleanup(released.set)
    before = time.time()
    with self.assertRaisesRegex(server_lost.ServerLost, '^no answer for 0 s: a door$'):
      deadline.call(released.wait, 'a door', seconds=0.2)
    self.assertLess(time.time() - before, 5)

  def test_what_a_failed_call_used_does_not_stay_until_garbage_is_collected(self):
    # A client of Reverb that stays shares its broken connection with new ones.
    class Client:
      def sample(self):
        released.wait()
        raise RuntimeError('Socket closed')

    gc.disable()
    self.addCleanup(gc.enable)
    for seconds, message in ((60, 'Socket closed'), (0.2, 'no answer')):
      released, client = threading.Event(), Client()
      self.addCleanup(released.set)
      if seconds == 60:
        released.set()
      try:
        deadline.call(client.sample, 'no sample', seconds)
        self.fail('no error')
      except server_lost.ServerLost as error:  # `assertRaises` would clear its frames.
        self.assertIn(message, str(error))
      released.set()  # The abandoned call fails.
      client = weakref.ref(client)
      end = time.time() + 5
      while client() and time.time() < end:
        time.sleep(0.01)
      self.assertIsNone(client())


if __name__ == '__main__':
  absltest.main()
