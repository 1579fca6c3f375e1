"""Tests for comparison."""

import math
import pathlib

from absl.testing import absltest

from gtrxl_tf.analysis import comparison


def _metrics(returns):
  """A row every 1000 environment steps and every minute."""
  return [{'environment_steps': 1000. * i, 'seconds': 60. * i, 'return': value}
          for i, value in enumerate(returns, 1)]


def _evaluation(returns, success=1.):
  return [{'return': value, 'success': success} for value in returns]


class ComparisonTest(absltest.TestCase):

  def _rows(self, runs, informed=10.):
    """Cells of the table, by core and seed, or core and `mean`."""
    lines = comparison.table(runs, informed).split('\n\n')[0].splitlines()
    header, _, *rows = [line.strip('| ').split(' | ') for line in lines]
    return {(row[0].strip('*'), row[1]): dict(zip(header, row)) for row in rows}

  def test_a_row_says_what_a_run_reached_and_when_it_had_learned(self):
    rows = self._rows([comparison.Run(
        'gtrxl', 0, _metrics([math.nan, 2, 8.9, 9, 8, 9.5]), _evaluation([9, 10]))])
    self.assertEqual(rows['gtrxl', '0'], {
        'core': 'gtrxl', 'seed': '0', 'return': '9.50', 'success': '1.00',
        'steps': '6,000', 'minutes': '6.0', 'steps to 90%': '4,000',
        'minutes to 90%': '4.0'})

  def test_a_core_has_the_mean_of_its_seeds(self):
    rows = self._rows([
        comparison.Run('gtrxl', 0, _metrics([9]), _evaluation([8])),
        comparison.Run('lstm', 0, _metrics([1]), _evaluation([1])),
        comparison.Run('gtrxl', 1, _metrics([1, 2, 9]), _evaluation([9]))])
    self.assertEqual(rows['gtrxl', 'mean']['return'], '8.50')
    self.assertEqual(rows['gtrxl', 'mean']['steps to 90%'], '2,000')
    self.assertEqual(rows['lstm', 'mean']['return'], '1.00')

  def test_a_mean_says_how_many_seeds_it_leaves_out(self):
    rows = self._rows([
        comparison.Run('gtrxl', 0, _metrics([1, 9]), _evaluation([9])),
        comparison.Run('gtrxl', 1, _metrics([1, 2]), [])])
    self.assertEqual(rows['gtrxl', '1']['return'], '-')
    self.assertEqual(rows['gtrxl', '1']['steps to 90%'], '-')
    self.assertEqual(rows['gtrxl', 'mean']['return'], '9.00 (1 of 2)')
    self.assertEqual(rows['gtrxl', 'mean']['minutes to 90%'], '2.0 (1 of 2)')

  def test_where_the_environment_tells_no_success_the_table_does_not(self):
    rows = self._rows(
        [comparison.Run('gtrxl', 0, _metrics([1]), _evaluation([1], math.nan))])
    self.assertEqual(rows['gtrxl', '0']['success'], '-')
    self.assertEqual(rows['gtrxl', 'mean']['success'], '-')

  def test_without_an_informed_policy_nothing_counts_as_learned(self):
    rows = self._rows(
        [comparison.Run('gtrxl', 0, _metrics([1]), _evaluation([1]))], informed=None)
    self.assertNotIn('steps to 90%', rows['gtrxl', '0'])

  def test_draws_all_runs_in_one_picture(self):
    path = pathlib.Path(self.create_tempdir().full_path) / 'comparison.png'
    comparison.draw(path, [
        comparison.Run('gtrxl', 0, _metrics([1, 2, 3]), []),
        comparison.Run('gtrxl', 1, _metrics([math.nan, 2]), []),
        comparison.Run('lstm', 0, _metrics([math.nan]), [])], 'numpad', 10.)
    self.assertStartsWith(path.read_bytes(), b'\x89PNG')


if __name__ == '__main__':
  absltest.main()
