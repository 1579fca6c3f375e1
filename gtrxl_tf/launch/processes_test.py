"""Tests of processes.py, in programs that start processes and get signals."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

from absl.testing import absltest
from absl.testing import parameterized
import pytest

from gtrxl_tf.launch import processes

_ROOT = pathlib.Path(__file__).parents[2]
_MODULE = '''
    import os, pathlib, subprocess, sys, time
    from gtrxl_tf.launch import processes
    from gtrxl_tf.launch import signals

    def part(seconds_to_save=0.5):
      with signals.stop_requested_by_parent() as should_stop:
        import tensorflow as tf
        tf.config.threading.set_intra_op_parallelism_threads(1)  # Still possible.
        assert float(tf.add(1., 1.)) == 2
        # In one call, as below: two parts share the file.
        print(f'{os.getppid()} {os.getcwd()}\\n', end='', flush=True)
        while not should_stop():
          time.sleep(0.1)
        time.sleep(seconds_to_save)
        print('saved\\n', end='', flush=True)
      return 5

    def save_slowly():
      return part(60)

    def command(code, *args):
      log = pathlib.Path(args[0])
      with signals.stop_requested_by_parent() as should_stop:
        part_ = processes.start(part, name='part', log=log)
        while not log.exists() or not log.read_text():
          time.sleep(0.1)
        print('ready', os.getppid(), flush=True)
        while not should_stop():
          time.sleep(0.1)
        part_.terminate()
        part_.join()
      return code

    def leave_a_process():  # As a C++ library starts it: it gets all open files.
      subprocess.Popen(['sleep', '300'], close_fds=False, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
      return 7

    def wait():
      print('ready', flush=True)
      time.sleep(100)

    def run(main):
      log = pathlib.Path(sys.argv[1])
      with signals.stop_requested() as should_stop:
        started = [processes.start(main, name=str(i), log=log) for i in range(2)]
        while not log.exists() or log.read_text().count('\\n') < 2:
          time.sleep(0.1)
        print('ready', flush=True)
        while not should_stop():
          time.sleep(0.1)
        for process in started:
          process.terminate()
        for process in started:
          process.join()
      print([process.exitcode for process in started], flush=True)
    '''


class ProcessesTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.create_tempdir().full_path)
    self.log = self.folder / 'log'

  def test_gtrxl_starts_in_a_folder_with_a_module_that_it_needs(self):
    (self.folder / 'absl.py').write_text('raise RuntimeError')
    done = subprocess.run(
        processes.gtrxl('train', '--help'), cwd=self.folder, capture_output=True, text=True,
        check=False)
    self.assertEqual((done.returncode, done.stderr), (0, ''))
    self.assertIn('--gin_file', done.stdout)

  def start(self, function: str, setting: str = '') -> subprocess.Popen:
    """Starts a program with two parts that call a function of `_MODULE`."""
    process = self.start_program(f'{setting or "pass"}\n  work.run(work.{function})')
    self.assertEqual(process.stdout.readline(), 'ready\n')
    return process

  def start_program(self, statements: str) -> subprocess.Popen:
    (self.folder / 'work.py').write_text(textwrap.dedent(_MODULE))
    (self.folder / 'here').mkdir()  # The library imports a module of this name.
    (self.folder / 'here' / 'tree.py').write_text('raise RuntimeError')
    (self.folder / 'program.py').write_text(
        f'import sys\nimport work\nif __name__ == "__main__":\n  {statements}\n')
    process = subprocess.Popen(
        [sys.executable, self.folder / 'program.py', self.log], text=True,
        cwd=self.folder / 'here', start_new_session=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, 'PYTHONPATH': str(_ROOT)})
    self.addCleanup(process.kill)
    return process

  @parameterized.parameters(False, True)
  @pytest.mark.medium
  def test_a_command_is_forked_as_its_parts_are_and_gets_the_signal(self, to_all):
    process = self.start_program(
        'code = work.processes.run("work:command", 7, sys.argv[1])\n'
        '  assert "tensorflow" not in sys.modules\n  sys.exit(code)')
    ready, fork_server = process.stdout.readline().split()
    self.assertEqual(ready, 'ready')
    if to_all:  # Also to the fork server and the part.
      os.killpg(process.pid, signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=120)
    self.assertEqual(process.returncode, 7, stderr)
    self.assertNotEqual(fork_server, str(process.pid))
    first, *rest = self.log.read_text().splitlines()
    self.assertStartsWith(first, f'{fork_server} ')
    self.assertEqual(rest, ['saved'])

  @pytest.mark.medium
  def test_a_command_that_is_stopped_before_it_can_save_says_so(self):
    process = self.start_program('sys.exit(work.processes.run("work:wait"))')
    self.assertEqual(process.stdout.readline(), 'ready\n')
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    self.assertEqual((process.returncode, stderr), (130, 'Interrupted before it began.\n'))

  @pytest.mark.medium
  def test_a_command_ends_though_an_environment_has_left_a_process(self):
    process = self.start_program('sys.exit(work.processes.run("work:leave_a_process"))')
    self.addCleanup(os.killpg, process.pid, signal.SIGKILL)
    _, stderr = process.communicate(timeout=60)
    self.assertEqual(process.returncode, 7, stderr)

  @parameterized.parameters(
      (signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGHUP, True))
  @pytest.mark.medium
  def test_parts_share_a_parent_and_save_when_the_program_is_stopped(self, signum, to_all):
    process = self.start('part', 'import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)')
    if to_all:  # Also to the fork server and the parts.
      os.killpg(process.pid, signum)
    process.send_signal(signum)
    stdout, stderr = process.communicate(timeout=120)
    self.assertEqual((process.returncode, stdout), (0, '[5, 5]\n'), stderr)
    first, second, *rest = self.log.read_text().splitlines()
    self.assertEqual(first, second)
    self.assertNotStartsWith(first, f'{process.pid} ')
    self.assertEndsWith(first, f' {self.folder / "here"}')
    self.assertEqual(rest, ['saved'] * 2)

  @pytest.mark.medium
  def test_a_second_signal_after_a_while_ends_all_at_once(self):
    process = self.start('save_slowly', 'work.signals.SECONDS_OF_ONE_SIGNAL = 0.2')
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)  # Until no process has the pipes.
    self.assertEqual((process.returncode, stdout), (130, ''))
    self.assertRegex(stderr, '^Ended at once: .* is lost. Run the same command to .*\n$')


if __name__ == '__main__':
  absltest.main()
