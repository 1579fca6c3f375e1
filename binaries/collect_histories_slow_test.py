"""The binary that collects histories, in a process as a person starts it."""

import os
import pathlib
import subprocess
import sys

from absl.testing import absltest

from gtrxl_tf import datasets

_ROOT = pathlib.Path(__file__).parents[1]


def _run(path, *bindings):
  return subprocess.run(
      [sys.executable, '-m', 'binaries.collect_histories', f'--output_dir={path}',
       '--gin_file=gin/distillation/histories/dark_room.gin',
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


if __name__ == '__main__':
  absltest.main()
