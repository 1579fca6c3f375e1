"""Tests of the library's structure: its imports, and the size of its files.

A unit is a package of `gtrxl_tf/` or a loose module beside them. Tests and their helpers
are left out.
"""

import ast
import collections
import functools
import graphlib
import pathlib

from absl.testing import absltest
from absl.testing import parameterized

_ROOT = pathlib.Path(__file__).parents[1]
_LIBRARY = _ROOT / 'gtrxl_tf'
# The most lines that a package may have. Who needs more takes them from elsewhere, and a
# package that shrinks keeps the lower number.
_BUDGETS = {
    '.': 511,
    'agents': 2475,
    'analysis': 2426,
    'collecting': 764,
    'cores': 4122,
    'datasets': 1882,
    'environments': 5008,
    'launch': 1594,
    'losses': 1152,
    'networks': 3210,
    'replay': 1836,
    'serving': 1139,
    'settings': 1102,
    'training': 3028,
    'training/offline': 1471,
    'training/online': 2490,
}


def _declared():
  """Returns the table PACKAGES of BUILD."""
  build = ast.parse((_ROOT / 'BUILD').read_text(encoding='utf-8'))
  table, = (node.value for node in build.body if isinstance(node, ast.Assign)
            and node.targets[0].id == 'PACKAGES')
  return ast.literal_eval(table)


def _production(folder):
  return [path for path in folder.rglob('*.py')
          if not path.stem.endswith(('_test', 'testing'))]


def _module(path):
  return '.'.join(path.relative_to(_ROOT).with_suffix('').parts).removesuffix('.__init__')


def _imported(path):
  """The names that a file imports, such as `gtrxl_tf.cores.core`."""
  tree = ast.parse(path.read_text(encoding='utf-8'))
  for node in ast.walk(tree):
    if isinstance(node, ast.If) and 'TYPE_CHECKING' in ast.unparse(node.test):
      node.body = []  # Nothing imports these when it runs.
  for node in ast.walk(tree):
    if isinstance(node, ast.ImportFrom) and node.level == 0:
      yield from (f'{node.module}.{alias.name}' for alias in node.names)
    elif isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)


@functools.cache
def _imports():
  """The modules of the library that each of its modules imports."""
  paths = {_module(path): path for path in _production(_LIBRARY)}
  found = {}
  for module, path in paths.items():
    names = {name if name in paths else name.rpartition('.')[0]
             for name in _imported(path)}
    found[module] = (names & set(paths)) - {module}
  return found


def _unit(module):
  return module.split('.')[1] if '.' in module else ''


@functools.cache
def _units():
  """The units that each unit imports."""
  found = collections.defaultdict(set)
  for module, imported in _imports().items():
    found[_unit(module)] |= {_unit(x) for x in imported} - {_unit(module), ''}
  del found['']
  return found


_PACKAGES = sorted(path.parent.name for path in _LIBRARY.glob('*/__init__.py'))


class StructureTest(parameterized.TestCase):

  def test_every_package_is_declared_in_build(self):
    self.assertEqual(sorted(_declared()), _PACKAGES)

  @parameterized.parameters(*_PACKAGES)
  def test_a_package_declares_what_it_imports(self, package):
    self.assertEqual(
        sorted(_declared()[package]), sorted(_units()[package] & set(_PACKAGES)))

  def test_no_imports_form_a_circle(self):
    graphlib.TopologicalSorter(_imports()).prepare()  # It raises a CycleError.
    graphlib.TopologicalSorter(_units()).prepare()

  def test_there_are_few_floors(self):
    """A floor is a step in the longest chain of units that import each other."""
    sorter = graphlib.TopologicalSorter(_units())
    sorter.prepare()
    floors = 0
    while sorter.is_active():
      sorter.done(*sorter.get_ready())
      floors += 1
    self.assertLessEqual(floors, 9)

  def test_there_are_few_packages_and_loose_modules(self):
    self.assertLessEqual(len(_PACKAGES), 13)
    self.assertLessEqual(len(set(_units()) - {*_PACKAGES, '__main__'}), 4)

  def test_packages_keep_their_budgets(self):
    lines = collections.Counter()
    for path in _production(_LIBRARY):
      folder = path.parent.relative_to(_LIBRARY)
      lines[str(folder)] += path.read_text(encoding='utf-8').count('\n')
    self.assertEqual(lines.keys(), _BUDGETS.keys())
    over = {name: count for name, count in lines.items() if count > _BUDGETS[name]}
    self.assertEqual(over, {})

  def test_files_are_short(self):
    lines = {str(path.relative_to(_ROOT)): len(
        path.read_text(encoding='utf-8').splitlines()) for path in _production(_LIBRARY)}
    self.assertEqual({path: count for path, count in lines.items() if count > 600}, {})

  def test_production_code_imports_neither_test_code_nor_tools(self):
    for path in _production(_LIBRARY) + _production(_ROOT / 'binaries'):
      for name in _imported(path):
        self.assertNotEqual(name.partition('.')[0], 'tools', path)
        if name.startswith('gtrxl_tf.'):
          self.assertFalse(
              [part for part in name.split('.') if part.endswith(('_test', 'testing'))],
              f'{path} imports {name}')


if __name__ == '__main__':
  absltest.main()
