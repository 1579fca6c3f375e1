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

  def test_a_signal_is_heard_and_handlers_come_back(self):
    before = signal.getsignal(signal.SIGTERM)
    with signals.stop_requested() as should_stop:
      self.assertFalse(should_stop())
      os.kill(os.getpid(), signal.SIGTERM)
      deadline = time.time() + 5
      while not should_stop() and time.time() < deadline:
        time.sleep(0.01)
      self.assertTrue(should_stop())
    self.assertIs(signal.getsignal(signal.SIGTERM), before)

  def test_it_is_heard_while_the_main_thread_is_in_a_call_that_does_not_return(self):
    # A lock that is never released stands for TensorFlow: no Python handler runs.
    process = subprocess.Popen([sys.executable, '-c', textwrap.dedent('''
        import ctypes, os, threading, time
        from gtrxl_tf.launch import signals
        with signals.stop_requested() as should_stop:
          def watch():
            while not should_stop():
              time.sleep(0.01)
            print('heard', flush=True)
          threading.Thread(target=watch, daemon=True).start()
          print('ready', flush=True)
          while True:
            ctypes.CDLL(None).sleep(1000)
        ''')], stdout=subprocess.PIPE, text=True)
    self.addCleanup(process.kill)
    self.assertEqual(process.stdout.readline(), 'ready\n')
    process.send_signal(signal.SIGTERM)
    self.assertEqual(process.stdout.readline(), 'heard\n')
    self.assertIsNone(process.poll())
    process.send_signal(signal.SIGTERM)  # Who asks twice does not want to wait.
    self.assertEqual(process.wait(timeout=5), 128 + signal.SIGTERM)


if __name__ == '__main__':
  absltest.main()
