"""Tests of run_evaluation.py."""

# pylint: disable=protected-access

import os
import re

from absl.testing import absltest
import gin

from gtrxl_tf import testing
from gtrxl_tf.analysis import run_evaluation
from gtrxl_tf.environments import t_maze
from gtrxl_tf.settings import config
from gtrxl_tf.settings import gin_files
from gtrxl_tf.training import run_folder


class RunEvaluationTest(absltest.TestCase):

  def test_a_dataset_that_has_moved_is_given_by_a_setting(self):
    self.addCleanup(gin.clear_config)
    folder = run_folder.RunFolder(self.create_tempdir().full_path)
    folder.config.write_text(
        f"include '{gin_files.FOLDER}/rate/t_maze_30_cpu.gin'\n"
        f"include '{gin_files.FOLDER}/rate/models/rate.gin'\n"
        "dataset = 'before'\n", encoding='utf-8')
    moved = f'{folder.root}/moved'
    testing.write_informed_episodes(moved, t_maze.TMaze(28, seed=0), 10)
    here = re.escape(os.getcwd())
    with self.assertRaisesRegex(config.ConfigError, f'^OfflineExperiment.dataset: {here}/before: no'):
      run_evaluation._prepare(folder, [], [])
    with self.assertRaisesRegex(config.ConfigError, f'dataset: {here}/elsewhere: no dataset'):
      run_evaluation._prepare(folder, [], ["dataset = 'elsewhere'"])
    experiment = run_evaluation._prepare(folder, [], [f"dataset = '{moved}'"])
    self.assertEqual(experiment.task_names[0], '28')


if __name__ == '__main__':
  absltest.main()
