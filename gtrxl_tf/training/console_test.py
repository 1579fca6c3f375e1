"""Tests of console.py."""

import io
import math
import os
import re
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from gtrxl_tf import progress
from gtrxl_tf.training import console as console_lib


def _row(learner_step=1, **values):
  return {
      'learner_step': learner_step, 'environment_steps': 250_000,
      'environment_steps_per_second': 5000.0, 'return': 12.345, 'success': 0.5,
      'kl_mean_over_bound': 1.234, 'kl_scale_over_bound': 0.5, 'temperature': 0.7654, **values}


class _Terminal(io.StringIO):

  def isatty(self):
    return True


class ConsoleTest(parameterized.TestCase):

  @parameterized.parameters(
      (0, '0:00'), (59.9, '0:59'), (61, '1:01'), (3599, '59:59'), (3600, '1:00:00'),
      (86400 + 62, '24:01:02'))
  def test_durations(self, seconds, expected):
    self.assertEqual(console_lib.duration(seconds), expected)

  def test_a_complete_line(self):
    line = console_lib.Console(1_000_000).format(_row(learner_step=1234))
    self.assertEqual(
        line, '250,000 of 1,000,000 steps | 1,234 updates | 5,000 steps/s | '
        'return 12.35 | success 0.50 | KL/bound 1.23 0.50 | temperature 0.765 | '
        '2:30 left')

  def test_what_is_not_known_yet_is_a_dash(self):
    line = console_lib.Console(1_000_000).format(_row(**{
        'return': math.nan, 'success': math.nan, 'environment_steps_per_second': 0.0}))
    self.assertIn('steps/s | return - | KL/bound ', line)
    self.assertEndsWith(line, '- left')

  def test_success_is_left_out_where_no_episode_reports_it(self):
    stream = _Terminal()
    console = console_lib.Console(1_000_000, stream=stream)
    console.update(_row(1, success=math.nan))
    self.assertNotIn('success', stream.getvalue())
    console.update(_row(2, success=0.25))
    console.update(_row(3, success=math.nan))  # As in a row in which no episode ended.
    self.assertLen(re.findall(r'success\s0\.25', stream.getvalue()), 2)

  def test_a_file_gets_a_line_every_few_seconds(self):
    stream = io.StringIO()
    console = console_lib.Console(1_000_000, stream=stream)
    with mock.patch.object(progress.time, 'monotonic') as clock:
      for seconds in range(100, 125):
        clock.return_value = seconds
        console.update(_row(learner_step=seconds))
    console.close()
    lines = stream.getvalue().splitlines()
    self.assertLen(lines, 3)
    self.assertEqual([re.search(r'(\d+) updates', line)[1] for line in lines],
                     ['100', '110', '120'])

  def test_nothing_is_written_before_the_first_row_or_twice(self):
    stream = _Terminal()
    console = console_lib.Console(1_000_000, stream=stream)
    console.update(None)
    console.close()
    self.assertEqual(stream.getvalue(), '')
    console.update(_row())
    once = stream.getvalue()
    console.update(_row())
    self.assertEqual(stream.getvalue(), once)

  def test_a_terminals_line_is_written_over_and_ended(self):
    stream = _Terminal()
    with mock.patch.dict(os.environ, {'COLUMNS': '200'}):
      console = console_lib.Console(1_000_000, stream=stream)
      for step in (1, 2):
        console.update(_row(learner_step=step))
      console.close()
    first, second = (console.format(_row(learner_step=step)) for step in (1, 2))
    self.assertEqual(stream.getvalue(), f'\r\033[J{first}\r\033[J{second}\n')

  def test_on_a_narrow_terminal_all_its_rows_are_written_over(self):
    stream = _Terminal()
    with mock.patch.dict(os.environ, {'COLUMNS': '60'}):
      console = console_lib.Console(1_000_000, stream=stream)
      console.update(_row(learner_step=1))
      rows = stream.getvalue().split('\n')
      console.update(_row(learner_step=2))
    self.assertGreater(len(rows), 1)
    for row in rows:
      self.assertLess(len(row.removeprefix('\r\033[J')), 60)
    again = stream.getvalue().removeprefix('\n'.join(rows))
    self.assertStartsWith(again, f'\033[{len(rows) - 1}F\033[J')


if __name__ == '__main__':
  absltest.main()
