"""Tests of deadline.py."""

import threading
import time

from absl.testing import absltest

from gtrxl_tf.replay import deadline


class DeadlineTest(absltest.TestCase):

  def test_a_call_in_time_returns_or_raises(self):
    self.assertEqual(deadline.call(lambda: 3, 'three'), 3)
    with self.assertRaisesRegex(KeyError, 'door'):
      deadline.call(lambda: {}['door'], 'a door')

  def test_a_call_that_does_not_return_is_abandoned(self):
    released = threading.Event()
    self.addCleanup(released.set)
    before = time.time()
    with self.assertRaisesRegex(RuntimeError, '^no answer for 0 s: a door$'):
      deadline.call(released.wait, 'a door', seconds=0.2)
    self.assertLess(time.time() - before, 5)


if __name__ == '__main__':
  absltest.main()
