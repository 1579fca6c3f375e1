"""Tests of watchdog.py."""

import subprocess
import sys
import threading
import time
from unittest import mock

from absl.testing import absltest
import pytest

from gtrxl_tf.training import watchdog as watchdog_lib


class WatchdogTest(absltest.TestCase):

  def test_each_stall_is_logged_once(self):
    clock = [0.0]  # It moves only here, however slow the machine is.
    self.enter_context(mock.patch.object(time, 'monotonic', lambda: clock[0]))
    with self.assertLogs(level='WARNING') as logs:

      def wait_for_lines(num):
        deadline = time.time() + 60
        while len(logs.output) < num and time.time() < deadline:
          time.sleep(0.01)
        time.sleep(0.2)  # The watchdog looks twice more.
        self.assertLen(logs.output, num)

      with watchdog_lib.Watchdog(0.4, 'no step for {:.1f} s'.format) as watchdog:
        clock[0] += 0.3
        watchdog.progress()
        clock[0] += 0.3
        self.assertFalse(watchdog.stalled())
        wait_for_lines(0)
        clock[0] += 0.3
        self.assertTrue(watchdog.stalled())
        wait_for_lines(1)
        watchdog.pause()
        clock[0] += 10
        self.assertEqual(watchdog.seconds, 0)
        watchdog.progress()
        self.assertFalse(watchdog.stalled())
        clock[0] += 0.5
        wait_for_lines(2)
      clock[0] += 10
      self.assertFalse(watchdog.stalled())
    self.assertLen(logs.output, 2)
    self.assertRegex(logs.output[0], r'no step for 0\.6 s$')

  def test_time_in_which_the_process_was_stopped_does_not_count(self):
    clock, looked = [0.0], threading.Event()

    def now():
      seen = clock[0]
      if threading.current_thread() is not threading.main_thread():
        looked.set()
      return seen

    self.enter_context(mock.patch.object(time, 'monotonic', now))
    ends = self.enter_context(mock.patch.object(watchdog_lib.os, '_exit'))
    with watchdog_lib.Watchdog(0.4, str, hang=20) as watchdog:
      self.assertTrue(looked.wait(60))
      clock[0] += 1000
      deadline = time.time() + 60
      while watchdog.seconds >= 1 and time.time() < deadline:
        time.sleep(0.01)
      self.assertLess(watchdog.seconds, 1)
    ends.assert_not_called()

  @pytest.mark.medium
  def test_a_process_that_hangs_ends_and_logs_where(self):
    said = subprocess.run([sys.executable, '-c', '''
import time
from absl import logging
from gtrxl_tf.training import watchdog as watchdog_lib
logging.use_absl_handler()
with watchdog_lib.Watchdog(1.0, lambda _: 'it waits for a door', hang=5) as watchdog:
  for _ in range(5):  # It waits, and lives.
    time.sleep(0.5)
    watchdog.alive()
  print('alive', flush=True)
  time.sleep(100)
'''], capture_output=True, text=True, timeout=90, check=False)
    self.assertEqual((said.returncode, said.stdout), (1, 'alive\n'), said.stderr)
    first, last = said.stderr.splitlines()[-2:]
    self.assertRegex(first, 'it waits for a door$')
    self.assertRegex(last, 'it waits for a door; it hangs: no call has returned for '
                     r'[56] s\. The process ends, to be started again$')


if __name__ == '__main__':
  absltest.main()
