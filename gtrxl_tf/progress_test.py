"""Tests of progress.py."""

import io
import os
import shutil
from unittest import mock

from absl.testing import absltest

from gtrxl_tf import progress


class _Terminal(io.StringIO):

  def isatty(self):
    return True


class ProgressLineTest(absltest.TestCase):

  def test_elsewhere_than_on_a_terminal_lines_are_10_seconds_apart(self):
    stream = io.StringIO()
    line = progress.ProgressLine(stream)
    shown = []
    with mock.patch.object(progress.time, 'monotonic') as now:
      for now.return_value in range(100, 125):
        if line.is_due():
          line.show(str(now.return_value))
          shown.append(now.return_value)
    line.close()
    self.assertEqual(shown, [100, 110, 120])
    self.assertEqual(stream.getvalue(), '100\n110\n120\n')

  def test_on_a_terminal_a_line_takes_the_place_of_the_one_before(self):
    stream = _Terminal()
    line = progress.ProgressLine(stream)
    with mock.patch.object(
        shutil, 'get_terminal_size', return_value=os.terminal_size((10, 24))):
      for text in ('one', 'two of three rows', 'four'):
        self.assertTrue(line.is_due())
        line.show(text)
    line.close()
    self.assertEqual(stream.getvalue(),
                     '\r\033[Jone\r\033[Jtwo of\nthree\nrows\033[2F\033[Jfour\n')

  def test_a_terminal_of_one_column_has_lines_too(self):
    stream = _Terminal()
    with mock.patch.object(
        shutil, 'get_terminal_size', return_value=os.terminal_size((1, 24))):
      progress.ProgressLine(stream).show('ab')
    self.assertEqual(stream.getvalue(), '\r\033[Ja\nb')

  def test_a_line_that_cannot_be_written_is_lost(self):
    stream = io.StringIO()
    line = progress.ProgressLine(stream)
    with mock.patch.object(stream, 'flush', side_effect=OSError(28, 'No space left')):
      line.show('one')

  def test_without_a_line_there_is_nothing_to_end(self):
    stream = _Terminal()
    progress.ProgressLine(stream).close()
    self.assertEqual(stream.getvalue(), '')


if __name__ == '__main__':
  absltest.main()
