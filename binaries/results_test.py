"""Tests that docs/results.md says what the runs in docs/runs are."""

import pathlib
import re

from absl.testing import absltest
import pytest

from gtrxl_tf.analysis import comparison
from gtrxl_tf.analysis import runs
from gtrxl_tf.training import curves

_DOCS = pathlib.Path(__file__).parents[1] / 'docs'
_PAGE = (_DOCS / 'results.md').read_text(encoding='utf-8')
# Without the tables, which are made of the runs.
_TEXT = ' '.join(re.sub('<!-- runs:.*?<!-- end of runs -->', '', _PAGE, flags=re.DOTALL).split())
_RUNS = sorted(_DOCS.glob('runs/*.jsonl'))
_VERDICTS = ('yes', 'in part', 'no', 'undecided', 'not run')


def _claims():
  """The rows below 'the paper says' that are about a claim of a paper."""
  for table in re.findall(r'\n\| where \| the paper says .*\n\|[-|]+\n((?:\|.*\n)+)', _PAGE):
    where = ''
    for row in table.splitlines():
      cells = [cell.strip() for cell in row.strip('|').split('|')]
      where = cells[0] or where
      if where != 'not in the paper' and '(no statement in the text)' not in cells[1]:
        yield cells


class ResultsTest(absltest.TestCase):

  def test_each_claim_has_one_row_and_a_verdict(self):
    claims = list(_claims())
    self.assertGreater(len(claims), 40)
    for where, claim, *_, verdict in claims:
      self.assertTrue(claim, verdict)
      self.assertRegex(verdict, rf'^({"|".join(_VERDICTS)})([:,. ]|$)', f'{where} {claim}')

  def test_runs_are_counted(self):
    online, offline = 0, 0
    for path in _RUNS:
      _, *runs = path.read_text(encoding='utf-8').splitlines()
      if '"environment_steps"' in runs[0]:
        online += len(runs)
      else:
        offline += len(runs)
    self.assertIn(f'{online} online runs', _TEXT)
    self.assertIn(f'{offline} offline runs', _TEXT)

  @pytest.mark.medium
  def test_the_text_counts_the_runs_that_succeed_as_the_tables_do(self):
    counted = set()
    for path in _RUNS:
      for point in runs.read(path).points:
        for model in point.by_model:
          for task in range(len(point.tasks)):
            if values := point.finals(model, 'success', task):
              counted.add(f'{comparison.succeed(values)}, {curves.mean_and_error(values)}')
    told = re.findall(r'\d+ of \d+, \d\.\d\d ± \d\.\d\d', _TEXT)
    self.assertGreater(len(told), 50)
    self.assertEmpty(set(told) - counted)


if __name__ == '__main__':
  absltest.main()
