"""Tests of the binary that collects histories, in a process as a user starts it."""

import os
import pathlib
import subprocess
import sys
from unittest import mock

from absl.testing import absltest

from gtrxl_tf import datasets

_ROOT = pathlib.Path(__file__).parents[1]


def _run(path, *bindings, files=()):
  return subprocess.run(
      [sys.executable, '-m', 'binaries.collect_histories', f'--output_dir={path}',
       '--gin_file=gin/distillation/histories/dark_room.gin',
       *(f'--gin_file={file}' for file in files),
       *(f'--gin_bindings={binding}' for binding in bindings)],
      cwd=_ROOT, capture_output=True, text=True, check=False,
      env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'})


class CollectHistoriesTest(absltest.TestCase):

  def test_collects_once(self):
    path = pathlib.Path(self.create_tempdir().full_path) / 'dr'
    bindings = ('HistoryCollector.num_histories = 20', 'DarkRoomFamily.size = 3',
                'DarkRoomFamily.training_share = 0.5')
    done = _run(path, *bindings)
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertIn('at its end; the informed policy 1.00\n', done.stdout)
    self.assertIn('kind         histories\nepisodes     20\n', done.stdout)
    self.assertEqual({file.name for file in path.iterdir()},
                     {'training', 'evaluation', 'source.csv', 'source.png'})
    self.assertEqual(datasets.check(path / 'training').num_steps, 20 * 2500)
    done = _run(path, *bindings, 'HistoryCollector.seed = 1')
    self.assertEqual(done.returncode, 1)
    self.assertRegex(done.stderr, '^Stopped: .* has other settings')

  def test_an_error_of_the_tasks_is_one_line_and_a_file(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    (folder / 'broken_room.py').write_text('''
from gtrxl_tf.environments import dark_room

def _step(self, actions):
  raise KeyError('door')

dark_room.DarkRooms._step = _step
''')
    (folder / 'broken.gin').write_text('import broken_room\n')
    path = folder / 'dr'
    with mock.patch.dict(os.environ, PYTHONPATH=f'{folder}{os.pathsep}{_ROOT}'):
      done = _run(path, 'HistoryCollector.num_histories = 20',
                  files=[str(folder / 'broken.gin')])
    self.assertEqual(done.returncode, 1)
    self.assertIn("step 1 of the history: KeyError: 'door' "
                  f'(traceback: {path}.failure.txt)\n', done.stderr)
    self.assertNotIn('Traceback', done.stderr)
    self.assertIn('in _step', (folder / 'dr.failure.txt').read_text())


if __name__ == '__main__':
  absltest.main()
