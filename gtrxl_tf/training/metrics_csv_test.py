"""Tests of metrics_csv.py."""

import math

from absl.testing import absltest
from absl.testing import parameterized

from gtrxl_tf import files
from gtrxl_tf import testing
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder

_ROWS = [{'learner_step': float(step), 'return': step / 7, 'success': math.nan}
         for step in range(10, 60, 10)]


class MetricsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = run_folder.RunFolder(self.create_tempdir().full_path)
    self.path = self.folder.metrics

  def write(self, rows, resume_step=0):
    writer = metrics_csv.MetricsWriter(self.path, resume_step)
    for row in rows:
      writer.append(row)

  def steps(self):
    return [row['learner_step'] for row in metrics_csv.read_metrics(self.path)]

  def assert_last_is_that_of_all(self):
    rows, last = metrics_csv.read_metrics(self.path), metrics_csv.last_metrics(self.path)
    self.assertEqual(str(last), str(rows[-1] if rows else None))  # NaN != NaN.

  def test_before_there_is_a_file_there_are_no_rows(self):
    self.assertEqual(metrics_csv.read_metrics(self.path), [])
    self.assert_last_is_that_of_all()

  def test_the_last_of_rows_with_many_columns(self):
    tasks = {f'return_{task}': task / 7 for task in range(1000)}
    self.write([{**row, **tasks} for row in _ROWS])
    self.assert_last_is_that_of_all()

  def test_rows_come_back_with_six_digits(self):
    self.write(_ROWS)
    rows = metrics_csv.read_metrics(self.path)
    self.assertLen(rows, len(_ROWS))
    for read, written in zip(rows, _ROWS):
      self.assertEqual(list(read), list(written))
      self.assertEqual(read['learner_step'], written['learner_step'])
      self.assertAlmostEqual(read['return'], written['return'], places=5)
      self.assertTrue(math.isnan(read['success']))
    self.assert_last_is_that_of_all()

  def test_a_column_may_have_any_name_of_one_line(self):
    row = {'learner_step': 1.0, 'return_(2, 2)': 0.5, 'return_"a"': 2.0}
    self.write([row, row])
    self.assertEqual(metrics_csv.read_metrics(self.path), [row, row])
    self.assert_last_is_that_of_all()

  def test_resuming_drops_the_rows_that_will_be_repeated(self):
    self.write(_ROWS)
    self.write([], resume_step=35)
    self.assertEqual(self.steps(), [10, 20, 30])
    self.write(_ROWS[3:], resume_step=35)
    self.assertEqual(self.steps(), [10, 20, 30, 40, 50])
    self.assert_last_is_that_of_all()

  def test_lines_that_cannot_be_read_are_left_out(self):
    self.path.write_bytes(b'learner_step,return\n1,\xff\n2,0.5\n3\n4,1\n')
    self.assertEqual(self.steps(), [2, 4])
    self.write([{'learner_step': 5, 'return': 1}], resume_step=4)
    self.assertEqual(self.steps(), [2, 4, 5])

  @parameterized.parameters(
      ('learner_step,re', []),
      ('learner_step,return\n', []),
      ('learner_step,return\n10,0.', []),
      ('learner_step,return\n10,0.5\n', [10]),
      ('learner_step,return\n10,0.5\n20', [10]),
      ('learner_step,return\n10,0.5\n20,0.', [10]),
  )
  def test_a_line_that_is_still_being_written_is_left_out(self, text, steps):
    self.path.write_text(text)
    self.assertEqual(self.steps(), steps)
    self.assert_last_is_that_of_all()
    self.write([{'learner_step': 20, 'return': 1}], resume_step=10)
    self.assertEqual(self.steps(), steps + [20])

  def test_a_column_that_rows_no_longer_have_is_nan(self):
    self.write([{'learner_step': 10, 'score': 7, 'return': 0.5}])
    writer = metrics_csv.MetricsWriter(self.path)
    for step in (20, 30):
      writer.append({'learner_step': step, 'return': 1, 'new': 2})
    self.assertEqual(
        self.path.read_text(),
        'learner_step,score,return,new\n10,7,0.5,nan\n20,nan,1,2\n30,nan,1,2\n')

  def test_a_new_column_is_nan_in_the_rows_before(self):
    self.write([{'learner_step': 10, 'return': 0.5}])
    writer = metrics_csv.MetricsWriter(self.path)
    for step in (20, 30):
      writer.append({'learner_step': step, 'score': 7, 'return': 1})
    self.assertEqual(self.path.read_text(),
                     'learner_step,return,score\n10,0.5,nan\n20,1,7\n30,1,7\n')

  def test_without_its_folder_rows_wait(self):
    writer = metrics_csv.MetricsWriter(self.path)
    away = self.path.parent.with_name('away')
    self.path.parent.rename(away)
    with self.assertLogs('absl', 'ERROR') as logs:
      for row in _ROWS[:2]:
        writer.append(row)
    self.assertIn('metrics.csv: [Errno 2] No such file', logs.output[0])
    away.rename(self.path.parent)
    writer.append({**_ROWS[2], 'score': 7.0})
    self.assertEqual(self.steps(), [10, 20, 30])

  def test_the_last_row_of_a_long_file(self):
    rows = [{'learner_step': i, 'return': i / 3} for i in range(2000)]
    self.write(rows)
    self.assertGreater(self.path.stat().st_size, 3 * 4096)
    self.assert_last_is_that_of_all()
    with open(self.path, 'a') as file:
      file.write('2000,')
    self.assert_last_is_that_of_all()

  def test_on_a_full_disk_rows_wait(self):
    disk = testing.small_disk(self, 64)
    self.path = disk / 'metrics.csv'
    writer = metrics_csv.MetricsWriter(self.path, 0)
    for row in _ROWS[:2]:
      writer.append(row)
    before = self.path.read_text()
    with testing.full(disk), self.assertLogs('absl', 'ERROR') as logs:
      for step in range(30, 500):  # More than the rest of a page.
        writer.append({**_ROWS[0], 'learner_step': step})
      self.assertStartsWith(self.path.read_text(), before)
      written = self.steps()
      self.assertLess(len(written), 400)
      self.assertEqual(len(self.path.read_text().splitlines()), len(written) + 1)
      with self.assertRaisesRegex(OSError, 'No space left'):
        files.write_atomically(disk / 'done', 'The run took all its steps.')
      self.assertCountEqual(
          [path.name for path in disk.iterdir()], ['metrics.csv', 'stuff'])
    self.assertIn('metrics.csv: [Errno 28] No space left on device; training continues',
                  logs.output[0])
    writer.append({**_ROWS[0], 'learner_step': 500})
    self.assertEqual(self.steps(), [10, 20, *range(30, 501)])
    with testing.full(disk):
      metrics_csv.MetricsWriter(self.path, 25)
      self.assertEqual(self.steps(), [10, 20])


if __name__ == '__main__':
  absltest.main()
