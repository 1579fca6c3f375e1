"""Tests of history_experiment.py: small runs on histories of small rooms."""

import contextlib
import csv
import io
import tempfile

from absl.testing import absltest
from absl.testing import parameterized
import gin
import numpy as np
import pytest

from gtrxl_tf.launch import history_runs_testing
from gtrxl_tf.launch import train
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder


class HistoryExperimentTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.path = cls.enter_context(tempfile.TemporaryDirectory())
    cls.tiny = history_runs_testing.collect(cls.path)

  def setUp(self):
    super().setUp()
    self.addCleanup(gin.clear_config)

  def bindings(self, *more):
    return [*self.tiny, *more]

  def train(self, folder):
    """Runs `train`; returns its output."""
    gin.clear_config()
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout):
      code = train.train(
          history_runs_testing.files('ed'), self.bindings(), str(folder.root))
    self.assertEqual(code, 0)
    return stdout.getvalue()

  @pytest.mark.long
  def test_a_run_leaves_its_pictures_and_tables(self):
    folder = run_folder.RunFolder(self.create_tempdir().full_path)
    said = self.train(folder)
    self.assertIn('on the 30 histories of', said)
    self.assertIn('\nIn the last fifth of learning processes: return', said)
    last = metrics_csv.read_metrics(folder.metrics)[-1]
    played = metrics_csv.read_metrics(folder.evaluation)
    self.assertLen(played, 10)
    for name in ('return', 'success'):
      self.assertAlmostEqual(
          last[name], np.mean([row[name] for row in played]), places=5)
    self.assertAlmostEqual(
        last['normalized'], (last['return'] - last['random_return']) / (
            last['source_return'] - last['random_return']), places=4)
    self.assertIn(last['temperature'], (0.0, 0.25, 0.5, 0.75, 1.0))
    self.assertIn(f'at temperature {last["temperature"]:g}, the best in tasks of', said)
    for path in (folder.config, folder.done, folder.curve, folder.learning_process,
                 folder.policy / 'saved_model.pb'):
      self.assertTrue(path.exists(), path)
    with open(folder.learning_process.with_suffix('.csv'), encoding='utf-8') as file:
      self.assertEqual({row['name'] for row in csv.DictReader(file)},
                       {'policy', 'greedy', 'source', 'tuned'})
    self.assertIn('DistillationPolicy.', folder.config.read_text())

    # The run is done; its results are printed again.
    played = [path.read_text() for path in (
        folder.evaluation, folder.learning_process.with_suffix('.csv'))]
    folder.evaluation.unlink()
    self.assertEndsWith(said, self.train(folder))
    self.assertEqual([path.read_text() for path in (
        folder.evaluation, folder.learning_process.with_suffix('.csv'))], played)

  @parameterized.parameters(
      ('DarkRoomFamily.num_episodes = 7', r'the lengths \[30\]: .*, \[35\]'),
      ('DarkRoomFamily.size = 5', 'the observation BoundedArray'),
      ('DarkRoomFamily.setting = "drln"', "'dark rooms, setting dr, .*': expected that of"),
      ('DarkRoomFamily.split_seed = 1', "expected that of .*, split_seed 1'"),
      ('HistoryExperiment.collector = 1', 'collector = 1: expected a HistoryCollector'),
      ('Experiment.environment = @TMaze', 'Experiment.environment is set: expected none'),
      ('Experiment.wrappers = [@FrameStack]', 'Experiment.wrappers is set: expected none'),
      ('OfflineExperiment.end_reward = -200.0', 'end_reward = -200.0: expected None'),
      ('Experiment.tasks = {"size": (3, 5)}', 'Experiment.tasks is set: expected none'),
      ('OfflineExperiment.sampler = @WholeTrajectories',
       'sampler = @WholeTrajectories: expected @HistoryWindows or @HistoryChunks'),
      ('DistillationPolicy.window = 3', 'a window of 3 steps, 1 tokens each: expected a '))
  @pytest.mark.medium
  def test_a_setting_that_cannot_be_used(self, binding, expected):
    stderr = io.StringIO()
    with contextlib.redirect_stderr(stderr):
      code = train.train(
          history_runs_testing.files('adf'), self.bindings(binding),
          self.create_tempdir().full_path)
    self.assertEqual(code, 2)
    [line] = stderr.getvalue().splitlines()
    self.assertRegex(line, f'^Not started: .*{expected}')


if __name__ == '__main__':
  absltest.main()
