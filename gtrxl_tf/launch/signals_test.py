"""Tests of signals.py."""

import os
import signal
import subprocess
import sys
import textwrap
import time

from absl.testing import absltest

from gtrxl_tf.launch import signals


class SignalsTest(absltest.TestCase):

  def test_a_signal_is_noticed_and_handlers_are_restored(self):
    before = signal.getsignal(signal.SIGTERM)
    with signals.stop_requested() as should_stop:
      self.assertFalse(should_stop())
      os.kill(os.getpid(), signal.SIGTERM)
      deadline = time.time() + 60
      while not should_stop() and time.time() < deadline:
        time.sleep(0.01)
      self.assertTrue(should_stop())
    self.assertIs(signal.getsignal(signal.SIGTERM), before)

  def test_a_closed_terminal_is_ignored_after_nohup(self):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    self.addCleanup(signal.signal, signal.SIGHUP, before)
    with signals.stop_requested() as should_stop:
      os.kill(os.getpid(), signal.SIGHUP)
      time.sleep(0.05)
      self.assertFalse(should_stop())

  def test_a_second_signal_after_a_while_ends_the_process(self):
    process = subprocess.Popen([sys.executable, '-c', textwrap.dedent('''
        import time
        from gtrxl_tf.launch import signals
        with signals.stop_requested():
          print('ready', flush=True)
          time.sleep(1000)
        ''')], stdout=subprocess.PIPE, text=True)
    self.addCleanup(process.kill)
    self.assertEqual(process.stdout.readline(), 'ready\n')
    for _ in range(2):  # As `timeout` sends two.
      process.send_signal(signal.SIGTERM)
    time.sleep(signals.SECONDS_OF_ONE_SIGNAL + 0.1)
    self.assertIsNone(process.poll())
    process.send_signal(signal.SIGTERM)
    self.assertEqual(process.wait(timeout=60), 128 + signal.SIGTERM)


if __name__ == '__main__':
  absltest.main()
