"""Tests of processes.py."""

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
    import os, signal, sys, time
    import tensorflow as tf
    from gtrxl_tf.launch import processes

    def main(code):
      tf.config.threading.set_intra_op_parallelism_threads(1)  # Still possible.
      assert float(tf.add(1., 1.)) == 2
      part = processes.context().Process(target=say_parent, daemon=True)
      part.start()
      part.join()
      say_parent()
      return code

    def say_parent():
      print(os.getppid(), 'matplotlib' in sys.modules, flush=True)

    def wait_for_stop(seconds_to_save=0.5):
      from gtrxl_tf.launch import signals
      with signals.stop_requested_by_parent() as should_stop:
        time.sleep(1)  # Until `Process.start` has returned, `run` exits on a signal.
        print('ready', flush=True)
        while not should_stop():
          time.sleep(0.1)
        time.sleep(seconds_to_save)
        print('saved', flush=True)
      return 5

    def save_slowly():
      return wait_for_stop(60)

    def wait():
      time.sleep(1)
      print('ready', flush=True)
      time.sleep(100)
    '''


class ProcessesTest(parameterized.TestCase):

  @pytest.mark.medium
  def test_modules_in_the_working_folder_are_not_in_the_way(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    (folder / 'tree.py').write_text('raise RuntimeError')  # The library imports one.
    program = folder / 'bin' / 'program.py'  # Python looks in its folder first.
    program.parent.mkdir()
    program.write_text('from gtrxl_tf.launch import processes\n'
                       'if __name__ == "__main__":\n'
                       '  processes.run("os", "getcwd")\n')
    done = subprocess.run(
        [sys.executable, program], cwd=folder, capture_output=True, text=True,
        check=False, env={**os.environ, 'PYTHONPATH': str(_ROOT)})
    self.assertEqual((done.returncode, done.stderr.splitlines()), (0, [str(folder)]))

  def test_gtrxl_starts_in_a_folder_with_a_module_that_it_needs(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    (folder / 'absl.py').write_text('raise RuntimeError')
    done = subprocess.run(
        processes.gtrxl('train', '--help'), cwd=folder, capture_output=True, text=True,
        check=False)
    self.assertEqual((done.returncode, done.stderr), (0, ''))
    self.assertIn('--gin_file', done.stdout)

  def start(self, statement: str) -> subprocess.Popen:
    folder = pathlib.Path(self.create_tempdir().full_path)
    (folder / 'work.py').write_text(textwrap.dedent(_MODULE))
    process = subprocess.Popen(
        [sys.executable, '-c', textwrap.dedent(statement)], text=True, cwd=_ROOT,
        start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, 'PYTHONPATH': f'{folder}:{_ROOT}'})
    self.addCleanup(process.kill)
    return process

  def start_run(self, function: str, setting: str = '') -> subprocess.Popen:
    """Starts `processes.run` with a function of `_MODULE` that says when it is ready."""
    process = self.start(f'''
        import signal, sys
        from gtrxl_tf.launch import processes
        {setting}
        sys.exit(processes.run('work', {function!r}))
        ''')
    self.assertEqual(process.stdout.readline(), 'ready\n')
    return process

  def assert_saves(self, process: subprocess.Popen) -> None:
    self.assertEqual(process.stdout.readline(), 'saved\n')
    self.assertEqual(process.wait(timeout=120), 5)

  @pytest.mark.medium
  def test_one_process_imports_tensorflow_for_those_of_a_run(self):
    process = self.start('''
        import os, sys
        from gtrxl_tf.launch import processes
        code = processes.run('work', 'main', 7)
        assert 'tensorflow' not in sys.modules
        print(os.getpid())
        sys.exit(code)
        ''')
    stdout, stderr = process.communicate(timeout=120)
    self.assertEqual(process.returncode, 7, stderr)
    of_part, of_run, caller = stdout.splitlines()
    self.assertEqual(of_part, of_run)
    self.assertNotEqual(of_run, f'{caller} False')
    self.assertEndsWith(of_run, ' False')

  @pytest.mark.medium
  def test_a_missing_module_leaves_the_collector_on(self):
    process = self.start('''
        import gc, sys
        from gtrxl_tf.launch import processes
        try:
          processes.preload('work', 'no_such_module')
        except ImportError:
          print(gc.isenabled(), 'work' in sys.modules)
        ''')
    stdout, stderr = process.communicate(timeout=60)
    self.assertEqual(stdout, 'True True\n', stderr)

  @parameterized.parameters(False, True)
  @pytest.mark.long
  def test_a_terminal_that_is_closed_ends_the_work_once(self, to_all):
    # If the tests run with nohup.
    process = self.start_run('wait_for_stop', 'signal.signal(signal.SIGHUP, signal.SIG_DFL)')
    for _ in range(2):  # By the shell, and by the system.
      if to_all:
        os.killpg(process.pid, signal.SIGHUP)
      else:
        process.send_signal(signal.SIGHUP)
    self.assert_saves(process)

  @pytest.mark.medium
  def test_a_terminal_may_hang_up_while_the_stop_is_requested(self):
    process = self.start('''
        import signal, sys, time
        from gtrxl_tf.launch import processes
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        forked = type(processes.context().Process())
        terminate = forked.terminate
        def terminate_late(self):
          if signums:
            signal.raise_signal(signums.pop())  # The handler is called once more.
            time.sleep(0.2)  # Two signals at once would be one.
          terminate(self)
        signums = [signal.SIGHUP]
        forked.terminate = terminate_late
        sys.exit(processes.run('work', 'wait_for_stop'))
        ''')
    self.assertEqual(process.stdout.readline(), 'ready\n')
    process.send_signal(signal.SIGHUP)
    self.assert_saves(process)

  @pytest.mark.medium
  def test_a_signal_that_all_get_and_pass_on_is_one(self):
    process = self.start_run('wait_for_stop')
    os.killpg(process.pid, signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    self.assert_saves(process)

  @pytest.mark.medium
  def test_a_second_signal_after_a_while_ends_the_work_at_once(self):
    process = self.start_run('save_slowly', 'processes.signals.SECONDS_OF_ONE_SIGNAL = 0.2')
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)  # Until no process has the pipes.
    self.assertEqual((process.returncode, stdout), (130, ''))
    self.assertRegex(stderr, '^Ended at once: .* is lost. Run the same command to .*\n$')

  @parameterized.parameters(False, True)
  @pytest.mark.medium
  def test_a_signal_is_passed_on(self, to_all):
    process = self.start_run('wait')
    if to_all:  # Also to the fork server.
      os.killpg(process.pid, signal.SIGTERM)
    else:
      process.send_signal(signal.SIGTERM)
    self.assertEqual(process.wait(timeout=120), 128 + signal.SIGTERM)

  @pytest.mark.medium
  def test_a_signal_right_after_the_beginning_is_not_lost(self):
    process = self.start('''
        import signal, sys
        from gtrxl_tf.launch import processes
        forked = type(processes.context().Process())
        start = forked.start
        def start_and_stop(self):
          start(self)
          signal.raise_signal(signal.SIGTERM)
        forked.start = start_and_stop
        sys.exit(processes.run('work', 'wait'))
        ''')
    self.assertEqual(process.wait(timeout=60), 128 + signal.SIGTERM)
    self.assertEqual(process.stdout.read(), '')

  @pytest.mark.medium
  def test_a_signal_before_the_beginning_is_one_line(self):
    process = self.start('''
        from multiprocessing import context
        import signal
        from unittest import mock
        from gtrxl_tf.launch import processes
        with mock.patch.object(context.ForkServerProcess, 'start',
                               lambda _: signal.raise_signal(signal.SIGINT)):
          processes.run('work', 'wait')
        ''')
    self.assertEqual(process.wait(timeout=120), 130)
    self.assertEqual(process.stderr.read(), 'Interrupted before it began.\n')


if __name__ == '__main__':
  absltest.main()
