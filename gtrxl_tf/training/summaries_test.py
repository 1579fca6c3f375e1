"""Tests of summaries.py."""

import contextlib
import math
import pathlib

from absl.testing import absltest
import tensorflow as tf

from gtrxl_tf import testing
from gtrxl_tf.training import summaries


class SummariesTest(absltest.TestCase):

  def read(self, folder):
    """Steps and names of all that was written."""
    values = []
    for path in folder.glob('events*'):
      # TensorBoard, too, reads no further than to the first number that is not whole.
      with contextlib.suppress(tf.errors.DataLossError):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
          values += [(event.step, value.tag) for value in event.summary.value]
    return values

  def test_numbers_are_written_unless_they_are_nan(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    writer = summaries.Summaries(folder)
    writer.flush()
    writer.write(3, {'loss': 1.0, 'return': math.nan})
    writer.flush()
    self.assertEqual(self.read(folder), [(3, 'loss')])

  def test_a_full_disk_costs_what_it_has_no_room_for(self):
    disk = testing.small_disk(self, 64)
    writer = summaries.Summaries(disk / 'summaries')
    writer.write(1, {'loss': 1.0})
    writer.flush()
    with testing.full(disk):
      with self.assertLogs('absl', 'ERROR') as logs:
        for step in (2, 3):
          writer.write(step, {f'metric_{i}': 1.0 for i in range(100)})
          writer.flush()
      self.assertIn('; training goes on', logs.output[0])
    writer.write(4, {'loss': 1.0})
    writer.flush()
    self.assertContainsSubset([(1, 'loss'), (4, 'loss')], self.read(disk / 'summaries'))


if __name__ == '__main__':
  absltest.main()
