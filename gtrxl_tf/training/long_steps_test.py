"""Tests of long_steps.py."""

import threading
from unittest import mock

from absl.testing import absltest

from gtrxl_tf.training import long_steps


class LongStepsTest(absltest.TestCase):

  def test_lines_say_what_the_learner_does_until_the_first_row(self):
    self.enter_context(mock.patch.object(long_steps, '_SECONDS_BEFORE_LINE', 0.1))
    said, lines = threading.Semaphore(0), []

    def warn(text, *args):
      lines.append(text % args)
      said.release()

    with mock.patch.object(long_steps.logging, 'warning', warn):
      with long_steps.LongSteps() as steps:
        said.acquire(timeout=60)
        steps.now('takes learner step 1')
        said.acquire(timeout=60)
        steps.row_logged()
        self.assertFalse(said.acquire(timeout=0.5))
    self.assertRegex(lines[0], r'^no line of progress yet after 0 s: the learner waits for '
                     r'its first batch, for 0 s so far$')
    self.assertIn('the learner takes learner step 1, for', lines[1])


if __name__ == '__main__':
  absltest.main()
