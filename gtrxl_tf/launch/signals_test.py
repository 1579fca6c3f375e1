"""Tests of signals.py."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
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

  def test_no_thread_outlives_the_context(self):
    before = set(threading.enumerate())
    with signals.stop_requested() as should_stop:
      os.kill(os.getpid(), signal.SIGTERM)
      # Has a copy of every file, as a worker that an environment forks.
      child = os.fork()
      if not child:
        signal.pause()
        os._exit(0)
    after = set(threading.enumerate())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    self.assertEqual(after, before)
    self.assertTrue(should_stop())

  def test_a_signal_is_noticed_while_the_main_thread_is_in_a_blocking_call(self):
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
    process.send_signal(signal.SIGTERM)  # As `timeout` sends two.
    time.sleep(signals.SECONDS_OF_ONE_SIGNAL + 0.1)
    self.assertIsNone(process.poll())
    process.send_signal(signal.SIGTERM)  # A later signal ends the process at once.
    self.assertEqual(process.wait(timeout=60), 128 + signal.SIGTERM)


if __name__ == '__main__':
  absltest.main()
