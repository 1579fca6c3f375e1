"""The walks of docs/walks.md go through functions that exist, and through few files."""

import ast
import pathlib
import re
from typing import List, Set, Tuple

from absl.testing import absltest
from absl.testing import parameterized
import pytest

_DOCS = pathlib.Path(__file__).parents[1] / 'docs'
_STEP = re.compile(
    r'^\d+\. \[([^]]+)\]\(([^)]+)\),\s+((?:`[\w.]+`,?\s*)+):\s', re.MULTILINE)


def _read_walks() -> List[str]:
  """The text of each section."""
  text = (_DOCS / 'walks.md').read_text(encoding='utf-8')
  return re.split(r'^## ', text, flags=re.MULTILINE)[1:]


def _read_steps(walk: str) -> List[Tuple[str, str, List[str]]]:
  """Each step's text of the link, file, and functions."""
  return [(shown, target, re.findall(r'[\w.]+', names))
          for shown, target, names in _STEP.findall(walk)]


def _read_definitions(path: pathlib.Path) -> Set[str]:
  """Names of functions, classes, and methods, these as `Class.method`."""
  names = set()
  for node in ast.parse(path.read_text(encoding='utf-8')).body:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
      names.add(node.name)
    if isinstance(node, ast.ClassDef):
      names |= {f'{node.name}.{x.name}' for x in node.body
                if isinstance(x, ast.FunctionDef)}
  return names


class WalksTest(parameterized.TestCase):

  def test_there_are_three(self):
    self.assertLen(_read_walks(), 3)

  @parameterized.parameters(0, 1, 2)
  def test_every_item_is_a_step(self, i):
    walk = _read_walks()[i]
    numbers = list(map(int, re.findall(r'^(\d+)\. ', walk, re.MULTILINE)))
    self.assertEqual(numbers, list(range(1, len(_read_steps(walk)) + 1)))

  @parameterized.parameters(0, 1, 2)
  @pytest.mark.medium
  def test_files_define_the_functions(self, i):
    for shown, target, functions in _read_steps(_read_walks()[i]):
      path = _DOCS / target
      self.assertTrue(path.is_file(), target)
      self.assertEqual(target, f'../gtrxl_tf/{shown}')
      self.assertContainsSubset(functions, _read_definitions(path), target)

  @parameterized.parameters((0, 17), (1, 12), (2, 7))
  def test_they_go_through_few_files(self, i, most):
    files = {target for _, target, _ in _read_steps(_read_walks()[i])}
    self.assertBetween(len(files), most // 2, most)


if __name__ == '__main__':
  absltest.main()
