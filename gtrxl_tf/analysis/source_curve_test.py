"""Tests of source_curve.py."""

import csv
import io
import pathlib

from absl.testing import absltest

from gtrxl_tf import collecting
from gtrxl_tf import environments
from gtrxl_tf.analysis import source_curve
from gtrxl_tf.collecting import histories


class SourceCurveTest(absltest.TestCase):

  def test_the_curve_of_a_bandit_rises(self):
    path = pathlib.Path(self.create_tempdir().full_path)
    collector = collecting.HistoryCollector(
        environments.BanditFamily(num_arms=5, num_steps=200), collecting.UCB, 3, 100)
    evaluation = histories.collect_split(
        collector, 'evaluation', path, io.StringIO())
    printed = io.StringIO()
    source_curve.draw(collector, evaluation, path, printed)
    self.assertStartsWith(printed.getvalue(), 'evaluation: the source returns 0.')
    self.assertContainsInOrder(['at its end; the informed policy 0.8'],
                               printed.getvalue())
    with open(path / 'source.csv', encoding='utf-8') as file:
      rows = list(csv.DictReader(file))
    self.assertLen(rows, 50)
    self.assertEqual([rows[0]['transitions'], rows[-1]['transitions']], ['4', '200'])
    # Chance is 1/2, and the best of five arms pays 5/6 on average.
    self.assertBetween(float(rows[0]['return']), 0.4, 0.6)
    self.assertGreater(float(rows[-1]['return']), 0.7)
    self.assertTrue((path / 'source.png').exists())


if __name__ == '__main__':
  absltest.main()
