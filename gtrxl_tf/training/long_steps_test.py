"""Tests of long_steps.py: what is said while a step takes long."""

import os
import threading
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from gtrxl_tf.training import long_steps as long_steps_lib


class LongStepsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.stop, self.now = threading.Event(), 0.0
    self.watcher, self.looks = None, 0
    self.exits = []
    tester = threading.current_thread()

    def monotonic():
      if threading.current_thread() is not tester:
        self.watcher, self.looks = threading.current_thread(), self.looks + 1
      return self.now

    self.enter_context(mock.patch.object(long_steps_lib.time, 'monotonic', monotonic))
    self.enter_context(mock.patch.object(long_steps_lib, '_POLL_SECONDS', 0.005))
    self.enter_context(mock.patch.object(
        os, '_exit', self.exits.append))

  def after(self, seconds):
    """Lets `seconds` pass, and waits until the thread has seen it, or has ended."""
    self.now += seconds
    looks = self.looks + 2  # When the second begins, the first is complete.
    while self.looks < looks and (self.watcher is None or self.watcher.is_alive()):
      time.sleep(0.001)

  def watched(self, may_exit=True):
    return long_steps_lib.LongSteps(self.stop.is_set, may_exit)

  def test_says_what_the_learner_does_until_the_first_row(self):
    with self.assertLogs('absl', 'WARNING') as logs, self.watched() as long_steps:
      self.after(29)
      self.assertEmpty(logs.output)
      self.after(2)
      long_steps.step_begins(1, 0)
      self.after(28)
      self.assertLen(logs.output, 1)
      self.after(2)
      long_steps.step_ends()
      self.after(70)
      long_steps.row_logged()
      self.after(1000)
    self.assertEqual([line.partition('absl:')[2] for line in logs.output], [
        'no line of progress yet after 31 s: the learner waits for its first batch, for '
        '31 s so far',
        'no line of progress yet after 61 s: the learner takes learner step 1, for 30 s '
        'so far',
        'no line of progress yet after 131 s: the learner waits for a batch after learner '
        'step 1, for 70 s so far'])

  def test_says_nothing_of_short_steps(self):
    with self.assertNoLogs('absl', 'WARNING'), self.watched() as long_steps:
      for step in range(1, 4):
        long_steps.step_begins(step, 0)
        self.after(9)
        long_steps.step_ends()
      long_steps.row_logged()
      self.stop.set()
      self.after(1)
    self.assertEmpty(self.exits)

  @parameterized.parameters(
      (1, 0, True, 'is given up: no step was taken before, so there is nothing to save'),
      (8, 0, True, 'is given up: all steps before are saved'),
      (8, 0, False, 'ends before the run stops'),
      (8, 3, True, 'ends before the run stops; if it is killed before, the 3 steps since '
       'the last checkpoint are lost'))
  def test_a_stop_within_a_long_step(self, step, unsaved, may_exit, what):
    with self.assertLogs('absl', 'WARNING') as logs:
      with self.watched(may_exit) as long_steps:
        long_steps.step_begins(step, unsaved)
        self.after(20)
        self.stop.set()
        self.after(1)
        self.assertEmpty(logs.output)
        self.after(4)
    self.assertLen(logs.output, 1)
    self.assertEndsWith(
        logs.output[0], f':learner step {step}, under way for 25 s, {what}')
    self.assertEqual(self.exits, [0] if 'given up' in what else [])


if __name__ == '__main__':
  absltest.main()
