"""Tests of logs.py, in processes as a run has them."""

import pathlib
import subprocess
import sys
import textwrap

from absl.testing import absltest

from gtrxl_tf import testing

_ROOT = pathlib.Path(__file__).parents[2]


class LogsTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.create_tempdir().full_path) / 'logs' / 'part.log'

  def run_code(self, code, path=None, prints=False):
    """Runs code within `kept`; returns the exit code and what is on the console."""
    done = subprocess.run(
        [sys.executable, '-c', textwrap.dedent('''
            import os, pathlib, sys
            from absl import logging
            from gtrxl_tf.launch import logs
            kept = logs.kept(pathlib.Path(sys.argv[1]), prints=len(sys.argv) > 2)
            kept.__enter__()
            undo = lambda: kept.__exit__(None, None, None)
            ''') + textwrap.dedent(code), str(path or self.path), *['prints'] * prints],
        cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout

  def test_what_libraries_print_is_in_the_file(self):
    code, console = self.run_code('''
        os.write(2, b'chatter of a library\\n')
        print('Stopped: a reason', file=sys.stderr)
        logging.set_verbosity(logging.INFO)
        logging.info('the learner begins')
        logging.warning('the disk is full')
        undo()
        os.write(2, b'after it\\n')
        logging.warning('a second warning')
        ''')
    self.assertEqual(code, 0)
    self.assertEqual(console, 'Stopped: a reason\nWARNING: the disk is full\nafter it\n'
                     'WARNING:absl:a second warning\n')
    chatter, info, warning = self.path.read_text().splitlines()
    self.assertEqual(chatter, 'chatter of a library')
    self.assertRegex(info, r'^[-\d]+ [:,\d]+ INFO the learner begins$')
    self.assertEndsWith(warning, ' WARNING the disk is full')

  def test_an_error_of_python_is_on_the_console(self):
    code, console = self.run_code('raise KeyError("door")')
    self.assertEqual(code, 1)
    self.assertIn('Traceback', console)
    self.assertEndsWith(console, "KeyError: 'door'\n")

  def test_what_is_printed_is_in_the_file(self):
    code, console = self.run_code('''
        print('an environment')
        print('its error', file=sys.stderr)
        os.system('echo a program')
        logging.warning('the disk is full')
        sys.stdout.buffer.write(b'bytes')
        os._exit(3)
        ''', prints=True)
    self.assertEqual((code, console), (3, 'WARNING: the disk is full\n'))
    *lines, warning, end = self.path.read_text().splitlines()
    self.assertEqual(lines, ['an environment', 'its error', 'a program'])
    self.assertEndsWith(warning, ' WARNING the disk is full')
    self.assertEqual(end, 'bytes')

  def test_what_is_printed_is_on_the_console_if_the_disk_is_full(self):
    disk = testing.small_disk(self, 64)
    path = disk / 'part.log'
    path.touch()
    with testing.full(disk):
      done = self.run_code('print("Stopped: a reason", file=sys.stderr)', path, prints=True)
    self.assertEqual(done, (0, 'Stopped: a reason\n'))

  def test_a_second_start_adds_to_the_file(self):
    for line in (b'one\\n', b'two\\n'):
      self.run_code(f'os.write(2, b"{line.decode()}")')
    self.assertEqual(self.path.read_text(), 'one\ntwo\n')

  def test_a_full_disk_is_no_error(self):
    disk = testing.small_disk(self, 64)
    path = disk / 'part.log'
    path.touch()
    with testing.full(disk):
      code, console = self.run_code('logging.warning("a warning")\nundo()', path)
    self.assertEqual((code, console), (0, 'WARNING: a warning\n'))


if __name__ == '__main__':
  absltest.main()
