"""Tests that an interrupted and resumed run equals an uninterrupted one, bit for bit.

Each run has dropout. The tests compare everything in the last checkpoint except the
time spent: network, optimizer, and the sampler's state.
"""

import contextlib
import functools
import pathlib
import shutil
import tempfile

from absl.testing import absltest
from absl.testing import parameterized
import gin
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import testing
from gtrxl_tf.environments import clues
from gtrxl_tf.environments import t_maze
from gtrxl_tf.launch import history_runs_testing
from gtrxl_tf.launch import prepare
from gtrxl_tf.networks import decision
from gtrxl_tf.networks import torsos
from gtrxl_tf.settings import config
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import evaluation
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import optimizers
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import trainer as training_lib
from gtrxl_tf.training.offline import experiment as offline_experiment
from gtrxl_tf.training.offline import samplers
from gtrxl_tf.training.offline import trainer

_MAZE = functools.partial(t_maze.TMaze, corridor_length=4)


def _network(action_spec, segment_length):
  return decision.DecisionNetwork(
      action_spec, torsos.VectorTorso((8,)),
      cores.RATE(1, 8, 2, 4, num_memory_tokens=1, dropout=0.3, attention_dropout=0.3,
                 segment_length=3 * segment_length))


class _NoEvaluator(evaluation.Evaluator):
  """An evaluator for runs whose policies need not be evaluated."""
  columns = ['return', 'success']

  def evaluate(self, should_stop, after_training):
    del should_stop, after_training
    return evaluation.Evaluation([], [], [], dict.fromkeys(self.columns, 0.0))


class OfflineResumeTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.path = pathlib.Path(cls.enter_context(tempfile.TemporaryDirectory()))
    testing.write_informed_episodes(cls.path / 'mazes', _MAZE(seed=0), 100)
    cls.tiny = history_runs_testing.collect(str(cls.path))

  def setUp(self):
    super().setUp()
    self.addCleanup(gin.clear_config)

  def train(self, experiment, folder):
    """Trains to the end; returns the contents of the checkpoint."""
    experiment.make_policy = experiment.make_evaluator = lambda *_: _NoEvaluator()
    training = trainer.OfflineTrainer(experiment, training_lib.Process(
        folder, tf.distribute.get_strategy(), lambda: False))
    self.began = training.step
    self.assertTrue(training.train())
    reader = tf.train.load_checkpoint(str(folder.checkpoints))
    return {name: reader.get_tensor(name)
            for name in reader.get_variable_to_shape_map()
            if not name.startswith(('seconds', 'cpu_seconds', '_CHECKPOINTABLE'))}

  def assert_resumes(self, experiment, saved_at):
    """Trains, and repeats the end from a checkpoint in the middle."""
    folder = run_folder.RunFolder(self.create_tempdir().full_path)
    whole = self.train(experiment, folder)
    rows = metrics_csv.read_metrics(folder.metrics)
    other = run_folder.RunFolder(pathlib.Path(self.create_tempdir().full_path) / 'run')
    shutil.copytree(folder.root, other.root)
    for path in other.checkpoints.glob(f'ckpt-{experiment.learner_steps}.*'):
      path.unlink()
    self.assertTrue((other.checkpoints / f'ckpt-{saved_at}.index').exists())
    resumed = self.train(experiment, other)
    self.assertEqual(self.began, saved_at)
    self.assertIn('sampler/.ATTRIBUTES/py_state', whole)
    # Two moments of each weight, and its average.
    each = 2 + (experiment.optimizer.ema_momentum > 0)
    self.assertGreater(sum('optimizer/' in name for name in whole),
                       each * len(experiment.make_agent().learned_variables))
    self.assert_same(whole, resumed)
    seconds = [row['cpu_seconds'] for row in metrics_csv.read_metrics(other.metrics)]
    self.assertEqual(seconds, sorted(seconds))
    self.assert_same_rows(rows, metrics_csv.read_metrics(other.metrics))
    return whole, rows

  def assert_same(self, checkpoint, other, tolerance=0):
    self.assertEqual(list(checkpoint), list(other))
    for name, value in checkpoint.items():
      if not tolerance:
        np.testing.assert_array_equal(value, other[name], name)
      elif not isinstance(value, bytes):
        np.testing.assert_allclose(value, other[name], tolerance, tolerance, err_msg=name)

  def assert_same_rows(self, rows, others, tolerance=0):
    for name in ('learner_step', 'loss', 'gradient_norm'):
      np.testing.assert_allclose(*(
          [row[name] for row in each] for each in (rows, others)), tolerance)

  @pytest.mark.medium
  def test_refuses_another_dataset_in_the_folder_of_the_first(self):
    path = pathlib.Path(self.create_tempdir().full_path) / 'mazes'
    testing.write_informed_episodes(path, _MAZE(seed=0), 20)
    folder = run_folder.RunFolder(self.create_tempdir().full_path)

    def experiment(learner_steps):
      return offline_experiment.OfflineExperiment(
          dataset=str(path), environment=_MAZE,
          network=functools.partial(_network, segment_length=6),
          learner_steps=learner_steps, segment_length=6, num_segments=1, batch_size=4)

    self.train(experiment(1), folder)
    shutil.rmtree(path)
    testing.write_informed_episodes(path, _MAZE(seed=1), 20)
    with self.assertRaisesRegex(
        config.ConfigError, 'mazes is not what the run has learned from: its'):
      self.train(experiment(2), folder)
    with self.assertRaisesRegex(config.ConfigError, '^OfflineExperiment.dataset: .*from'):
      again = experiment(2)
      again.check_resumes(str(folder.checkpoints / 'ckpt-1'), again.make_agent())

  @parameterized.parameters(
      (functools.partial(samplers.WholeTrajectories, curriculum=True), 6),
      (samplers.SegmentBySegment, 2),
      # It has begun to be used at step 20.
      (functools.partial(
          samplers.MemoryPool, clue=clues.t_maze_clue, start_loss=9.), 2))
  @pytest.mark.long
  def test_rate(self, sampler, segment_length):
    self.assert_resumes(offline_experiment.OfflineExperiment(
        dataset=str(self.path / 'mazes'), environment=_MAZE,
        network=functools.partial(_network, segment_length=segment_length),
        sampler=sampler, learner_steps=28, segment_length=segment_length, num_segments=2,
        batch_size=8, optimizer=optimizers.AdamW(warmup_steps=5),
        checkpoints=checkpoints.Settings(period=23), log_period=5), saved_at=23)

  @pytest.mark.long
  def test_a_disk_that_is_full_for_a_while(self):
    disk = testing.small_disk(self, 2048)
    experiment = offline_experiment.OfflineExperiment(
        dataset=str(self.path / 'mazes'), environment=_MAZE,
        network=functools.partial(_network, segment_length=2), learner_steps=12,
        segment_length=2, num_segments=2, batch_size=8,
        checkpoints=checkpoints.Settings(period=2), log_period=1)
    whole = self.train(
        experiment, run_folder.RunFolder(self.create_tempdir().full_path))

    folder = run_folder.RunFolder(disk / 'run')
    with contextlib.ExitStack() as room:
      def fill(row):
        if row['learner_step'] == 5:
          room.enter_context(testing.full(disk))
      training = trainer.OfflineTrainer(
          experiment, training_lib.Process(
              folder, tf.distribute.get_strategy(), lambda: training.step == 12,
              show=fill))
      with self.assertRaisesRegex(checkpoints.SaveFailed, 'checkpoint 12 .*ckpt-4$'):
        with self.assertLogs('absl', 'ERROR') as logs:
          training.train()
      # It continued and tried to save at steps 6, 8, 10 and 12.
      self.assertEqual(str(logs.output).count('was not saved'), 3)
      metrics_csv.read_metrics(folder.metrics)  # All lines are complete.
    self.assert_same(whole, self.train(experiment, folder))
    self.assertEqual([row['learner_step'] for row in metrics_csv.read_metrics(
        folder.metrics)], list(range(1, 13)))

  # Windows, and chunks that carry their memory.
  @parameterized.parameters('adf', 'ed')
  @pytest.mark.long
  def test_distillation(self, model):
    self.assert_resumes(self.distillation(model), saved_at=4)

  def distillation(self, model, *settings):
    gin.clear_config()
    return prepare.prepare(history_runs_testing.files(model), [
        *self.tiny, 'adf_steps = 6', 'recurrent_steps = 6',
        'SegmentTransformer.dropout = 0.3',
        'SegmentTransformer.attention_dropout = 0.3', 'AdamW.ema_momentum = 0.5',
        'Checkpoints.period = 4', *settings])

  @parameterized.parameters('adf', 'ed')
  @pytest.mark.long
  def test_several_steps_in_a_call(self, model):
    # Rows at 3 and 6 and the checkpoint at 4 end calls: with 2, of 2, 1, 1 and 2 steps.
    settings = ['Experiment.log_period = 3', 'OfflineExperiment.steps_per_call = 2']
    whole, rows = self.assert_resumes(self.distillation(model, *settings), saved_at=4)
    of_three, others = self.trained(
        model, 'OfflineExperiment.steps_per_call = 3', *settings[:1])
    self.assert_same(whole, of_three)
    self.assert_same_rows(rows, others)
    # A step of its own is another graph, which TensorFlow may round differently. Dropout
    # would then differ, too: its masks are functions of the inputs' bits.
    settings += [f'SegmentTransformer.{name} = 0.0'
                 for name in ('dropout', 'attention_dropout')]
    whole, rows = self.trained(model, *settings)
    settings[1] = 'OfflineExperiment.steps_per_call = 1'
    of_one, others = self.trained(model, *settings)
    self.assert_same(whole, of_one, 1e-5)
    self.assert_same_rows(rows, others, 1e-5)

  def trained(self, model, *settings):
    """Trains a model of distillation; returns the checkpoint and the metrics."""
    folder = run_folder.RunFolder(self.create_tempdir().full_path)
    checkpoint = self.train(self.distillation(model, *settings), folder)
    return checkpoint, metrics_csv.read_metrics(folder.metrics)

  def test_a_sampler_that_takes_one_step_in_a_call(self):
    experiment = offline_experiment.OfflineExperiment(
        dataset=str(self.path / 'mazes'), environment=_MAZE, steps_per_call=2,
        network=functools.partial(_network, segment_length=2),
        sampler=samplers.SegmentBySegment, segment_length=2, num_segments=2,
        batch_size=8)
    with self.assertRaisesRegex(config.ConfigError, 'steps_per_call = 2'):
      experiment.make_batch(experiment.make_agent())


if __name__ == '__main__':
  absltest.main()
