"""Tests of attention in the learning processes of a policy."""

import contextlib
import csv
import io

from absl.testing import absltest
from absl.testing import flagsaver
import numpy as np

from binaries import attention
from gtrxl_tf.training import history_runs_testing


class AttentionTest(absltest.TestCase):

  def test_the_share_of_the_recurrence(self):
    folder = history_runs_testing.make_run(self.create_tempdir().full_path, 'ed')
    printed = io.StringIO()
    with flagsaver.flagsaver(root_dir=str(folder.root)):
      with contextlib.redirect_stdout(printed):
        attention.main([])
    picture = folder.root / 'attention' / 'recurrence.png'
    self.assertStartsWith(printed.getvalue(), f'{picture}: 0.000 at first, ')
    self.assertTrue(picture.exists())
    with open(picture.with_suffix('.csv'), encoding='utf-8') as file:
      rows = list(csv.DictReader(file))
    # Of 30 steps there are 7 whole segments.
    self.assertEqual([row['transitions'] for row in rows],
                     [str(4 * i) for i in range(1, 8)])
    # Attention is even at first: 4 keys of memory for 1 to 4 of the segment's.
    shares = [float(row['share']) for row in rows]
    self.assertEqual(shares[0], 0)
    np.testing.assert_allclose(
        shares[1:], np.mean([4 / (4 + i) for i in range(1, 5)]), atol=0.05)


if __name__ == '__main__':
  absltest.main()
