"""Tests of the binaries for datasets, each in a process as a user starts it."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from gtrxl_tf import datasets

_ROOT = pathlib.Path(__file__).parents[1]
_BINDINGS = ('Collector.environment = @TMaze', 'TMaze.corridor_length = 4')


def _command(binary, *bindings, **flags):
  return [sys.executable, '-m', f'binaries.{binary}',
          *(f'--{key}={value}' for key, value in flags.items()),
          *(f'--gin_bindings={binding}' for binding in bindings)]


def _run(*args, **flags):
  return subprocess.run(
      _command(*args, **flags), cwd=_ROOT, capture_output=True, text=True, check=False,
      env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'})


class DatasetsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir().full_path)

  def test_collects_as_an_experiments_file_says(self):
    path = self._folder / 't_maze'
    done = _run('collect', 'Collector.num_episodes = 20', output_dir=path,
                num_processes=2, gin_file='gin/rate/t_maze_30_cpu.gin')
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertIn('episodes     20\n', done.stdout)

  def test_collected_and_inspected(self):
    path = self._folder / 't_maze'
    done = _run('collect', *_BINDINGS, 'Collector.num_episodes = 30', output_dir=path,
                num_processes=1)
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertIn('success      1.000', done.stdout)
    seen = _run('inspect_dataset', dataset=path)
    self.assertEqual(seen.returncode, 0, seen.stderr)
    self.assertIn('episodes     30\n', seen.stdout)
    self.assertTrue((path / 'dataset.png').exists())
    file = path / 'shard-00000' / 'reward.npy'
    file.write_bytes(file.read_bytes()[:-1])
    seen = _run('inspect_dataset', dataset=path)
    self.assertEqual(seen.returncode, 1)
    self.assertIn(f'{file}: has 727 bytes: expected 728', seen.stderr)

  def test_killed_and_started_again(self):
    bindings = (*_BINDINGS, 'Collector.num_episodes = 4000')
    path = self._folder / 'killed'
    process = subprocess.Popen(
        _command('collect', *bindings, output_dir=path, num_processes=2), cwd=_ROOT,
        start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.time() + 120
    while not (path / 'shard-00000').exists() and time.time() < deadline:
      time.sleep(0.05)
    process.kill()
    process.wait()
    self.assertGreaterEqual(datasets.check(path).num_episodes, 0)
    deadline = time.time() + 60
    while _members(process.pid) and time.time() < deadline:
      time.sleep(0.1)
    self.assertEmpty(_members(process.pid))  # Its processes have ended.
    done = _run('collect', *bindings, output_dir=path, num_processes=1)
    self.assertEqual(done.returncode, 0, done.stderr)
    dataset = datasets.check(path)
    self.assertEqual(dataset.num_episodes, 4000)
    noises = {dataset.episode(i).observation[:, 3].tobytes() for i in range(4000)}
    self.assertLen(noises, 3**5)
    self.assertAlmostEqual(np.mean([dataset.episode(i).observation[0, 1]
                                    for i in range(4000)]), 0, delta=0.08)

  def test_an_error_of_an_environment_is_one_line_and_a_file(self):
    (self._folder / 'broken_maze.py').write_text('''
import gin
from gtrxl_tf.environments import t_maze

class Broken(t_maze.TMaze):
  def _step(self, action):
    raise KeyError('door')

@gin.configurable
def BrokenMaze(seed):
  return Broken(corridor_length=3, seed=seed)

@gin.configurable
def UnmadeMaze(seed):
  raise ValueError('door')
''')
    path = f'{self._folder}{os.pathsep}{_ROOT}'
    for name, num_processes, where, expected in (
        ('BrokenMaze', 1, '_step', "environment 0, episode 1, step 1: KeyError: 'door'"),
        ('BrokenMaze', 2, '_step', "environment 0, episode 1, step 1: KeyError: 'door'"),
        ('UnmadeMaze', 1, 'UnmadeMaze',
         'making Collector.environment = UnmadeMaze: ValueError: door')):
      output = self._folder / f'{name}_{num_processes}'
      (self._folder / 'broken.gin').write_text(
          f'import broken_maze\nCollector.environment = @{name}\n')
      with mock.patch.dict(os.environ, PYTHONPATH=path):
        done = _run('collect', gin_file=self._folder / 'broken.gin', output_dir=output,
                    num_processes=num_processes)
      self.assertEqual(done.returncode, 1)
      line = 7 if where == '_step' else 15
      self.assertIn(f'Stopped: {expected} ({self._folder}/broken_maze.py, line {line}) '
                    f'(traceback: {output}.failure.txt)\n', done.stderr)
      self.assertNotIn('Traceback', done.stderr)
      self.assertIn(
          f'in {where}', (self._folder / f'{output}.failure.txt').read_text())

  @parameterized.parameters(('minari', 'minari'), ('rlds', 'tensorflow_datasets'))
  def test_exported_and_imported_again(self, format_, package):
    if importlib.util.find_spec(package) is None:
      self.skipTest(f'{package} is not installed')
    self.enter_context(mock.patch.dict(
        os.environ, {'MINARI_DATASETS_PATH': str(self._folder / 'minari')}))
    path = self._folder / 't_maze'
    done = _run('collect', *_BINDINGS, 'Collector.num_episodes = 30', output_dir=path,
                num_processes=1)
    self.assertEqual(done.returncode, 0, done.stderr)
    name = 't_maze-v0' if format_ == 'minari' else self._folder / 'rlds'
    done = _run('export_dataset', dataset=path, format=format_, output=name)
    self.assertEqual((done.returncode, done.stderr), (0, ''))
    self.assertIn('30 episodes and 150 steps are in ', done.stdout)
    done = _run('export_dataset', dataset=path, format=format_, output=name)
    self.assertEqual(done.returncode, 1)
    self.assertRegex(done.stderr, r'\AStopped: .*: exists: expected .*\n\Z')
    done = _run('import_dataset', format=format_, input=name,
                output_dir=self._folder / 'out', environment='TMaze')
    self.assertEqual(done.returncode, 0, done.stderr)
    first, again = map(datasets.check, (path, self._folder / 'out'))
    for i in range(30):
      np.testing.assert_equal(again.episode(i), first.episode(i))

  def test_an_error_is_one_line(self):
    done = _run('collect', 'Collector.environment = @TMaze', 'Collector.epsilon = 2.0',
                output_dir=self._folder / 'none')
    self.assertEqual(done.returncode, 2)
    self.assertIn('Not started: Collector.epsilon = 2.0: expected a ', done.stderr)
    self.assertFalse((self._folder / 'none').exists())
    done = _run('import_dataset', format='dqn_replay', input=self._folder / 'none',
                output_dir=self._folder / 'out')
    self.assertEqual(done.returncode, 1)
    self.assertIn('Stopped: ', done.stderr)
    self.assertIn('has no $store$_observation', done.stderr)


def _members(session: int):
  """The ids of the processes of a session that still run."""
  found = []
  for stat in pathlib.Path('/proc').glob('[0-9]*/stat'):
    try:
      state, _, _, their_session, *_ = stat.read_text().rpartition(')')[2].split()
    except OSError:
      continue
    if int(their_session) == session and state != 'Z':
      found.append(int(stat.parent.name))
  return found


if __name__ == '__main__':
  absltest.main()
