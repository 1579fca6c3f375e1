"""Tests of evaluate with a policy that learns while it acts."""

import contextlib
import io

from absl.testing import absltest
from absl.testing import flagsaver

from binaries import evaluate
from gtrxl_tf.training import history_runs_testing


class EvaluateTest(absltest.TestCase):

  def test_learning_processes_at_each_point_of_a_sweep(self):
    folder = history_runs_testing.make_run(self.create_tempdir().full_path, 'ed')
    sweep = 'DistillationPolicy.temperature=1.0,0.0'
    printed = io.StringIO()
    with flagsaver.flagsaver(root_dir=str(folder.root), sweep=sweep):
      with contextlib.redirect_stdout(printed):
        evaluate.main([])
    first, second, picture = printed.getvalue().splitlines()
    self.assertStartsWith(first, 'DistillationPolicy.temperature=1.0: In the last')
    self.assertStartsWith(second, 'DistillationPolicy.temperature=0.0: In the last')
    self.assertNotEqual(first.partition(': ')[2], second.partition(': ')[2])
    self.assertEqual(picture, f'Learning processes: {folder.root}/evaluation.png')
    self.assertTrue((folder.root / 'evaluation.png').exists())


if __name__ == '__main__':
  absltest.main()
