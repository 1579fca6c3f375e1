"""Tests that docs/results.md and its pages say what the runs in docs/runs are."""

import functools
import pathlib
import re
import sys

from absl.testing import absltest
from absl.testing import parameterized
import claims  # Beside this file.
import pytest

from gtrxl_tf.settings import config

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason='needs tomllib')

_DOCS = pathlib.Path(__file__).parents[1]
_TABLE = _DOCS / 'results/claims.toml'
_DECIMAL = re.compile(r'\d\.\d')


@functools.lru_cache(maxsize=None)
def _book() -> claims.Book:
  return claims.Book(_TABLE)


class ResultsTest(parameterized.TestCase):

  def test_pages_are_those_of_the_runs(self):
    for path, text in _book().texts().items():
      self.assertEqual(path.read_text(encoding='utf-8'), text, f'{path}: run make figures')
      self.assertNotRegex(text, r'\{\w+\s+\w+/')  # All picks are filled.

  def test_the_overview_is_short(self):
    lines = (_DOCS / 'results.md').read_text(encoding='utf-8').splitlines()
    self.assertLessEqual(len(lines), 200)
    for line in lines:
      if line.startswith('|'):
        for cell in line.strip('|').split('|'):
          self.assertLessEqual(len(cell.strip()), 120, cell)

  def test_claims_have_verdicts_and_few_words(self):
    self.assertGreater(len(_book().claims), 60)
    for claim in _book().claims:
      self.assertIn(claim.verdict, claims.VERDICTS, claim.claim)
      self.assertLessEqual(len(claim.claim.split()), 12, claim.claim)
      self.assertIn(claim.page, _book().pages)
    places = [(claim.page, claim.anchor) for claim in _book().claims]
    self.assertLen(places, len(set(places)))  # A link to a claim leads to no other.

  def test_numbers_of_no_run_say_where_they_are_from(self):
    for claim in _book().claims:
      typed = re.sub(r'\{[^}]*\}', '', claim.here)
      if _DECIMAL.search(typed):
        self.assertTrue(claim.by_hand, claim.claim)
      if '{' in claim.here:
        self.assertTrue(claim.runs, claim.claim)

  def test_each_file_of_runs_and_each_picture_is_shown(self):
    pages = ''.join(path.read_text(encoding='utf-8') for path in _book().texts())
    self.assertEqual({path.stem for path in _DOCS.glob('runs/*.jsonl')},
                     {name for claim in _book().claims for name in claim.runs})
    for picture in _book().pictures:
      self.assertIn(f'({picture}.png)', pages)
    self.assertEqual({path.stem for path in _TABLE.parent.glob('*.png')},
                     set(_book().pictures))

  @parameterized.parameters(
      ('{mean gates_by_depth/12/trxl}', '5.54 ± 1.24'),
      ('{each rate_t_maze_90/88/dgru}', '1.00, 0.60, 0.46'),
      ('{count rate_t_maze_90/88/dgru}', '1 of 3'),
      ('{ahead sensitivity/-/gtrxl sensitivity/-/trxl}', '25 of 25'),
      ('{rises distillation_dr/-/ed distillation_recurrent/dktdlq_cpu/ed}', '5 of 6'),
      ('{ratio distillation_dr/-/ed distillation_dr/-/adf}', '0.69'))
  def test_numbers_are_picked(self, text, expected):
    self.assertEqual(_book().fill(text), expected)

  def test_a_pick_of_nothing_is_refused(self):
    with self.assertRaisesRegex(config.ConfigError, 'gates_by_depth/2/gtrxl, '):
      _book().fill('{mean gates_by_depth/3/gtrxl}')

  @pytest.mark.medium
  def test_pictures_of_each_kind_are_drawn(self):
    kinds = {about.get('kind'): name for name, about in _book().pictures.items()}
    for name in kinds.values():
      path = pathlib.Path(self.create_tempdir().full_path) / f'{name}.png'
      claims.draw(_book(), name, path)
      self.assertEqual(path.read_bytes()[:4], b'\x89PNG')


if __name__ == '__main__':
  absltest.main()
