"""Tests of gin_files.py, through config.parse."""

import os
import pathlib
import subprocess
import sys
import textwrap
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import gin

from gtrxl_tf.settings import config
from gtrxl_tf.settings import gin_files


@config.configurable
def furnished(size: config.PositiveInt = 1, door=None, wall=None):
  return size, door, wall


class _Test(parameterized.TestCase):
  """In an empty folder, with this library's gin files replaced by those of a test."""

  def setUp(self):
    super().setUp()
    gin.clear_config()
    self.addCleanup(gin.clear_config)
    self.folder = pathlib.Path(self.create_tempdir().full_path)
    self.library = self.folder / 'library'
    self.write('library/a/room.gin', 'furnished.size = 2')
    self.write('library/a/both.gin')
    self.write('library/b/both.gin')
    self.enter_context(mock.patch.object(gin_files, 'FOLDER', self.library))
    self.work = self.folder / 'work'
    self.work.mkdir()
    before = os.getcwd()
    os.chdir(self.work)
    self.addCleanup(os.chdir, before)
    # What imports change.
    for name in '_own', '_folders':
      kept = type(getattr(gin_files, name))()
      self.enter_context(mock.patch.object(gin_files, name, kept))
    self.enter_context(mock.patch.object(sys, 'path', sys.path[:]))
    self.enter_context(mock.patch.dict(sys.modules))

  def write(self, name, text='') -> str:
    path = self.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return str(path)

  def error(self, files, bindings=()) -> str:
    """The line that says why these settings cannot be read."""
    with self.assertRaises(config.ConfigError) as caught:
      config.parse(files, bindings)
    self.assertNotIn('\n', str(caught.exception))
    return str(caught.exception)


class LookUpTest(_Test):

  @parameterized.parameters('gin/a/room.gin', 'a/room.gin', 'room.gin')
  def test_files_of_the_library_are_found_from_any_folder(self, name):
    config.parse([name], [])
    self.assertEqual(furnished()[0], 2)

  @parameterized.parameters('room.gin', 'a/room.gin')
  def test_files_of_the_working_folder_go_first(self, name):
    self.write(f'work/{name}', 'furnished.size = 3')
    config.parse([name], [])
    self.assertEqual(furnished()[0], 3)

  def test_a_name_of_several_files(self):
    self.assertRegex(self.error(['both.gin']),
                     '^both.gin: several .* expected one of a/both.gin, b/both.gin$')
    config.parse(['b/both.gin'], [])

  @parameterized.parameters('rom.gin', 'room', 'c/room.gin', '/nowhere/room.gin')
  def test_a_file_that_is_not_there(self, name):
    self.assertRegex(self.error([name]),
                     f'^{name}: no such gin file.*Did you mean a/room.gin')

  def test_a_file_that_is_no_text(self):
    pathlib.Path('binary.gin').write_bytes(b'furnished.size = \xff')
    self.assertStartsWith(self.error(['binary.gin']), 'binary.gin: not gin: ')

  def test_this_librarys_own_files(self):
    folder = pathlib.Path(__file__).parents[2] / 'gin'
    with mock.patch.object(gin_files, 'FOLDER', folder):
      self.assertEqual(gin_files.find('numpad_2x2_cpu.gin'),
                       folder / 'gtrxl/numpad_2x2_cpu.gin')
      with self.assertRaisesRegex(ValueError, 'one of gtrxl/t_maze_30_cpu.gin'):
        gin_files.find('t_maze_30_cpu.gin')


class IncludeTest(_Test):

  def test_includes_are_looked_for_beside_the_file_that_has_them(self):
    top = self.write('top.gin', "include 'deep/middle.gin'")
    self.write('deep/middle.gin', "include 'part.gin'\ninclude '../other/part.gin'")
    self.write('deep/part.gin', 'furnished.door = 1')
    self.write('other/part.gin', 'furnished.wall = 2')
    self.write('part.gin', 'furnished.door = 7')
    config.parse([top], [])
    self.assertEqual(furnished(), (1, 1, 2))

  @parameterized.parameters('a/room.gin', 'gin/a/room.gin', 'room.gin')
  def test_then_in_the_working_folder_and_the_library(self, name):
    top = self.write('elsewhere/top.gin', f"include '{name}'\nfurnished.door = 1")
    config.parse([top], [])
    self.assertEqual(furnished()[:2], (2, 1))
    self.write(f'work/{name}', 'furnished.size = 3')
    gin.clear_config()
    config.parse([top], [])
    self.assertEqual(furnished()[:2], (3, 1))

  def test_the_file_that_includes_what_is_not_there_is_named(self):
    top = self.write('top.gin', "include 'nowhere.gin'")
    self.assertRegex(self.error([top]), rf'^nowhere.gin: .*\({top}, line 1\)$')

  def test_a_file_that_includes_itself(self):
    top = self.write('top.gin', "furnished.size = 1\ninclude 'top.gin'")
    self.assertIn(f'{top} -> {top}', self.error([top]))

  def test_a_file_may_be_included_twice(self):
    top = self.write('top.gin', "include 'room.gin'\ninclude 'room.gin'")
    config.parse([top, top], [])
    self.assertEqual(furnished()[0], 2)


class ImportTest(_Test):

  def test_a_module_beside_the_file(self):
    top = self.write('own/top.gin', """
        import my_doors
        furnished.door = @Door()
        furnished.wall = @my_doors.wall
        Door.width = 3
        """)
    self.write('own/my_doors.py', """
        import my_helper
        class Door:
          def __init__(self, width=1):
            self.width = width
        class Unused:
          pass
        def wall():
          return my_helper.HEIGHT
        """)
    self.write('own/my_helper.py', 'HEIGHT = 4')
    config.parse([top], [])
    _, door, wall = furnished()
    self.assertEqual((door.width, wall()), (3, 4))
    self.assertRaises(ValueError, gin.get_configurable, 'Unused')
    self.assertEqual(sys.path[-1], f'{self.folder}/own')
    # Named later, without an import.
    gin.clear_config()
    config.parse([top], ['furnished.wall = @Unused()'])
    self.assertEqual(type(furnished()[2]).__name__, 'Unused')

  @parameterized.parameters(
      ('GateA', 'furnished.door = @GaatA', 'Did you mean GateA?'),
      ('GateB', 'GateB.widht = 3', "'widht'.*Did you mean width?"),
      ('GateC', 'GateC.zzz = 3', 'Known: width, height'))
  def test_a_misspelt_name_of_ones_own(self, name, binding, expected):
    top = self.write('own/top.gin', f'import my_{name}\n{binding}')
    self.write(f'own/my_{name}.py', f"""
        class {name}:
          def __init__(self, width=1, height=2):
            pass
        """)
    self.assertRegex(self.error([top]), expected)

  def test_a_module_in_the_working_folder(self):
    self.write('work/my_binding.py', 'class BoundDoor: pass')
    config.parse([], ['import my_binding', 'furnished.door = @BoundDoor'])
    self.assertEqual(furnished()[1].__name__, 'BoundDoor')

  def test_another_process_reads_what_was_used(self):
    top = self.write('own/top.gin', 'import my_kept\nfurnished.door = @KeptDoor()')
    self.write('own/my_kept.py', 'class KeptDoor: pass')
    config.parse([top], [])
    furnished()
    record = self.write('run/config.gin', config.operative_text())
    code = f"""
from gtrxl_tf.settings import config, gin_files_test
config.parse([{record!r}], [])
print(type(gin_files_test.furnished()[1]).__name__)"""
    def read():
      return subprocess.run(
          [sys.executable, '-c', code], capture_output=True, text=True, check=False,
          cwd='/', env={**os.environ, 'PYTHONPATH': str(
              pathlib.Path(__file__).parents[2])})
    self.assertEqual(read().stdout, 'KeptDoor\n', read().stderr)
    # A run's folder may go to another machine, with the module in it.
    (self.folder / 'own/my_kept.py').rename(self.folder / 'run/my_kept.py')
    self.assertEqual(read().stdout, 'KeptDoor\n')
    (self.folder / 'run/my_kept.py').unlink()
    self.assertRegex(read().stderr, f'import my_kept: .*{record}')

  def test_a_name_that_the_library_has_too(self):
    top = self.write('top.gin', 'import my_twin\nfurnished.door = @furnished')
    self.write('my_twin.py', 'def furnished(): pass')
    self.assertRegex(self.error([top]), rf'^my_twin.furnished: .*\({top}, line 2\)$')
    gin_files._own.clear()  # pylint: disable=protected-access
    # What the module only imports stays the library's.
    self.write('my_other.py', 'from my_twin import furnished')
    config.parse([self.write('other.gin', 'import my_other\nfurnished.size = 4')], [])
    self.assertEqual(furnished()[0], 4)

  @parameterized.parameters(('json', 'json/__init__.py'), ('sys', 'its own'))
  def test_a_module_that_python_finds_elsewhere(self, name, found):
    top = self.write('top.gin', f'import {name}')
    self.write(f'{name}.py')
    self.assertRegex(self.error([top]),
                     f'^import {name}: .*{found} .* in {self.folder}')

  @parameterized.parameters(
      ('import my_lost', "my_lost: .*'my_lost'.* my_lost.py .*PYTHONPATH"),
      ('import my_wrong', r"my_wrong: .*'nix' \(.*/my_wrong.py, line 2\)"),
      ('import my_bad', r'my_bad: SyntaxError: .*\(my_bad.py, line 1\)'),
      ('import my_exit', r'my_exit: SystemExit: ended \(.*/my_exit.py, line 1\)'),
      ('from my_good import Door', r'my_good.Door: .* expected a module'))
  def test_a_module_that_cannot_be_imported(self, line, expected):
    self.write('my_wrong.py', '\nimport nix')
    self.write('my_bad.py', 'class')
    self.write('my_exit.py', 'raise SystemExit("ended")')
    self.write('my_good.py', 'class Door: pass')
    self.assertRegex(self.error([self.write('top.gin', line)]),
                     rf'^import {expected}.*\(.*/top.gin, line 1\)$')


if __name__ == '__main__':
  absltest.main()
