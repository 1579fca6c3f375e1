"""The dependencies that BUILD declares for each room are those that it imports."""

import ast
import pathlib

from absl.testing import absltest
from absl.testing import parameterized

_LIBRARY = pathlib.Path(__file__).parent


def _declared():
  """The table ROOMS of BUILD."""
  build = ast.parse((_LIBRARY.parent / 'BUILD').read_text(encoding='utf-8'))
  rooms, = (node.value for node in build.body if isinstance(node, ast.Assign)
            and node.targets[0].id == 'ROOMS')
  return ast.literal_eval(rooms)


def _imported(path):
  """The modules of the library that a file imports, by their parts after `gtrxl_tf`."""
  for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
    if isinstance(node, ast.ImportFrom) and node.level == 0:
      names = [f'{node.module}.{alias.name}' for alias in node.names]
    elif isinstance(node, ast.Import):
      names = [alias.name for alias in node.names]
    else:
      continue
    yield from (name.split('.')[1:] for name in names if name.startswith('gtrxl_tf.'))


def _production(folder):
  return [path for path in folder.rglob('*.py')
          if not path.stem.endswith(('_test', '_testing'))]


_ROOMS = sorted(path.parent.name for path in _LIBRARY.glob('*/__init__.py'))


class BuildTest(parameterized.TestCase):

  def test_every_room_is_declared(self):
    self.assertEqual(sorted(_declared()), _ROOMS)

  @parameterized.parameters(*_ROOMS)
  def test_a_room_declares_what_it_imports(self, room):
    imported = {parts[0] for path in _production(_LIBRARY / room)
                for parts in _imported(path)}
    self.assertEqual(
        sorted(_declared()[room]), sorted((imported & set(_ROOMS)) - {room}))

  def test_rooms_do_not_import_each_other_in_a_circle(self):
    rooms, done = _declared(), set()
    while ready := {room for room in set(rooms) - done if done.issuperset(rooms[room])}:
      done |= ready
    self.assertEqual(set(rooms) - done, set())

  def test_production_code_does_not_import_test_code(self):
    for path in _production(_LIBRARY) + _production(_LIBRARY.parent / 'binaries'):
      for parts in _imported(path):
        self.assertFalse(
            parts[-1].endswith('_testing') or 'testing' in parts, f'{path}: {parts}')


if __name__ == '__main__':
  absltest.main()
