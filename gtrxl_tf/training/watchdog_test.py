"""Tests of watchdog.py."""

import time

from absl.testing import absltest

from gtrxl_tf.training import watchdog as watchdog_lib


class WatchdogTest(absltest.TestCase):

  def test_each_stall_is_logged_once(self):
    with self.assertLogs(level='WARNING') as logs:
      with watchdog_lib.Watchdog(0.2, 'no step for {:.1f} s'.format) as watchdog:
        time.sleep(0.1)
        watchdog.progress()
        self.assertFalse(watchdog.stalled())
        time.sleep(0.6)
        self.assertTrue(watchdog.stalled())
        self.assertLen(logs.output, 1)
        watchdog.pause()
        time.sleep(0.4)
        self.assertEqual(watchdog.seconds, 0)
        watchdog.progress()
        self.assertFalse(watchdog.stalled())
        time.sleep(0.6)
      self.assertFalse(watchdog.stalled())
      time.sleep(0.3)
    self.assertLen(logs.output, 2)
    self.assertRegex(logs.output[0], r'no step for 0\.[234] s$')

  def test_an_error_in_the_description_is_logged_in_its_place(self):
    def describe(seconds):
      raise RuntimeError('no server')

    with self.assertLogs(level='WARNING') as logs:
      with watchdog_lib.Watchdog(0.1, describe):
        time.sleep(0.4)
    self.assertLen(logs.output, 1)
    self.assertRegex(logs.output[0], 'no progress for 0 s; no server$')


if __name__ == '__main__':
  absltest.main()
