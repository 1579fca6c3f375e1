"""Tests of offline experiments: small runs on episodes of small mazes."""

import functools
import pathlib
import tempfile
import types
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import datasets
from gtrxl_tf import devices_testing
from gtrxl_tf import environments
from gtrxl_tf import testing
from gtrxl_tf.agents import decision as policy_lib
from gtrxl_tf.datasets import format as format_lib
from gtrxl_tf.environments import action_recall
from gtrxl_tf.environments import clues
from gtrxl_tf.environments import t_maze
from gtrxl_tf.networks import decision
from gtrxl_tf.networks import torsos
from gtrxl_tf.serving import exported
from gtrxl_tf.settings import config
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import devices
from gtrxl_tf.training import evaluation
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import optimizers
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import trainer as training_lib
from gtrxl_tf.training.offline import experiment as offline_experiment
from gtrxl_tf.training.offline import samplers
from gtrxl_tf.training.offline import trainer

devices_testing.split_cpu(2)

_MAZE = functools.partial(t_maze.TMaze, corridor_length=4)


def _network(action_spec, segment_length=18, **settings):
  return decision.DecisionNetwork(
      action_spec, torsos.VectorTorso((16,)),
      cores.RATE(1, 16, 2, 8, variant='trxl_i', num_memory_tokens=1,
                 segment_length=segment_length), **settings)


class _Maze(t_maze.TMaze):
  """A maze whose spec has other actions."""

  def __init__(self, action_spec, seed):
    super().__init__(corridor_length=4, seed=seed)
    self._claimed = action_spec

  def action_spec(self):
    return self._claimed


class OfflineTrainingTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    temporary = cls.enter_context(tempfile.TemporaryDirectory())
    cls.dataset = str(pathlib.Path(temporary) / 'dataset')
    testing.write_informed_episodes(cls.dataset, _MAZE(seed=0), 300)

  def setUp(self):
    super().setUp()
    self.folder = run_folder.RunFolder(self.create_tempdir().full_path)
    self.rows = []

  def experiment(self, **settings):
    return offline_experiment.OfflineExperiment(**{**dict(
        dataset=self.dataset, environment=_MAZE, network=_network,
        policy=functools.partial(policy_lib.DecisionPolicy, target_return=1.0),
        learner_steps=200, segment_length=6, num_segments=1, batch_size=16,
        optimizer=optimizers.AdamW(learning_rate=5e-3, warmup_steps=10),
        evaluation_episodes=20, log_period=20), **settings})

  def train(self, experiment, strategy='default'):
    training = trainer.OfflineTrainer(
        experiment, training_lib.Process(
            self.folder, devices.make_strategy(strategy), lambda: False,
            show=self.rows.append))
    return training.run()

  @pytest.mark.long
  def test_it_learns_to_turn_as_the_clue_says(self):
    experiment = self.experiment(
        evaluation_period=100, tasks={'corridor_length': (3, 4)},
        network=functools.partial(_network, normalize_observations=True))
    self.assertTrue(self.train(experiment))
    self.assertTrue(self.folder.done.exists())
    rows = metrics_csv.read_metrics(self.folder.metrics)
    self.assertEqual(rows[-1]['learner_step'], 200)
    self.assertGreaterEqual(rows[-1]['success'], 0.9)
    evaluated = [row['learner_step'] for row in rows if not np.isnan(row['return'])]
    self.assertEqual(evaluated, [100, 200])
    self.assertEqual(self.rows[-1]['success'], rows[-1]['success'])
    self.assertEqual(
        rows[-1]['success'], (rows[-1]['success_3'] + rows[-1]['success_4']) / 2)
    # The checkpoint and the exported policy both succeed.
    for played in (
        experiment.evaluate(self.folder, lambda: False),
        experiment.make_evaluator(exported.load(self.folder.policy)).evaluate()):
      self.assertGreaterEqual(np.mean(played.successes), 0.9)

  @pytest.mark.long
  def test_cpu_seconds_are_those_of_training_without_evaluations(self):
    clock = types.SimpleNamespace(now=50.)

    class Sampler(samplers.WholeTrajectories):

      def observe(self, step, metrics):
        clock.now += 1

    class Evaluator(evaluation.Evaluator):
      columns = ['return']

      def evaluate(self, should_stop, after_training):
        del should_stop
        clock.now += 100
        return evaluation.Evaluation([], [], [], {'return': float(after_training)})

    experiment = self.experiment(
        learner_steps=4, sampler=Sampler, log_period=1, evaluation_period=2,
        checkpoints=checkpoints.Settings(2))
    experiment.make_evaluator = lambda *_: Evaluator()
    with mock.patch.object(trainer, 'time', types.SimpleNamespace(
        process_time=lambda: clock.now)):
      self.assertTrue(self.train(experiment))
      experiment.learner_steps = 6  # The run is continued by another process.
      clock.now = 7.
      self.assertTrue(self.train(experiment))
    self.assertEqual([row['cpu_seconds'] for row in self.rows], [1, 2, 3, 4, 5, 6])
    self.assertEqual([row['return'] for row in self.rows if row['learner_step'] % 2 == 0],
                     [0, 1, 1])

  @pytest.mark.medium
  def test_a_run_that_is_told_to_stop_ends_within_an_evaluation(self):
    class Evaluator:
      columns = ['return']

      def evaluate(self, should_stop, after_training):
        del after_training
        told.append('to stop')
        assert should_stop()

      def close(self):
        told.append('to close')

    told = []
    experiment = self.experiment(
        learner_steps=4, evaluation_period=2, checkpoints=checkpoints.Settings(4))
    experiment.make_evaluator = lambda *_: Evaluator()
    self.assertFalse(trainer.OfflineTrainer(experiment, training_lib.Process(
        self.folder, devices.make_strategy('default'), lambda: bool(told))).run())
    self.assertEqual(told, ['to stop', 'to close'])
    self.assertTrue((self.folder.checkpoints / 'ckpt-2.index').exists())

  @parameterized.parameters('default', 'mirrored')
  @pytest.mark.long
  def test_policies_act_with_averaged_weights(self, strategy):
    settings = dict(learner_steps=4, checkpoints=checkpoints.Settings(1, kept=4))
    plain = self.experiment(**settings, optimizer=optimizers.AdamW(warmup_steps=1))
    averaged = self.experiment(**settings, optimizer=optimizers.AdamW(
        warmup_steps=1, ema_momentum=0.5))
    self.assertTrue(self.train(averaged, strategy))
    expected = [x.numpy() for x in plain.make_agent().network.variables]
    for step in range(1, 5):
      agent = plain.make_agent()
      tf.train.Checkpoint(agent=agent).read(
          str(self.folder.checkpoints / f'ckpt-{step}')).expect_partial()
      learned = [x.numpy() for x in agent.network.variables]
      expected = [0.5 * x + 0.5 * y for x, y in zip(expected, learned)]
    policy = tf.saved_model.load(str(self.folder.policy))
    for found in (averaged.restore_agent(self.folder.checkpoints).network.variables,
                  policy.model_variables):
      for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)
    # Without the setting, the same checkpoint has the last weights.
    for x, y in zip(plain.restore_agent(self.folder.checkpoints).network.variables,
                    learned, strict=True):
      np.testing.assert_array_equal(x, y)

  def test_replicas_share_a_batch_evenly(self):
    if len(tf.config.list_logical_devices('CPU')) == 1:
      self.skipTest('TensorFlow had started before the CPU could be split.')
    with self.assertRaisesRegex(config.ConfigError, 'OfflineExperiment.batch_size = 13'):
      self.train(self.experiment(batch_size=13), strategy='mirrored')

  def test_observations_are_normalized_as_the_dataset_says(self):
    def network(action_spec):
      return decision.DecisionNetwork(
          action_spec, torsos.VectorTorso(()), cores.Memoryless(1, 8),
          normalize_observations=True)
    experiment = self.experiment(network=network)
    made = experiment.make_agent().network
    everything = np.concatenate([
        experiment.dataset.episode(i).observation for i in range(300)])
    seen = made.normalized(tf.constant(everything)).numpy()
    varies = everything.std(axis=0) > 0
    np.testing.assert_allclose(seen.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(seen.std(axis=0)[varies], 1, rtol=1e-5)

  @parameterized.parameters(
      ('any', functools.partial(
          samplers.MemoryPool, clue=clues.t_maze_clue, start_loss=1.0)),
      ('random', functools.partial(samplers.WholeTrajectories, curriculum=True)))
  def test_samplers_that_need_trajectories_from_the_start(self, starts, sampler):
    experiment = self.experiment(starts=starts, sampler=sampler)
    with self.assertRaisesRegex(config.ConfigError, f"starts = '{starts}' with"):
      experiment.make_sampler(experiment.make_agent())

  def test_an_oracle_needs_trajectories_from_the_start(self):
    def network(action_spec):
      return decision.DecisionNetwork(
          action_spec, torsos.VectorTorso((8,)),
          cores.RATE(1, 8, 2, 4, segment_length=18), oracle=lambda first: first[:, 1])
    with self.assertRaisesRegex(
        config.ConfigError, "OfflineExperiment.starts = 'random' with "):
      self.experiment(network=network, starts='random').make_agent()

  def test_a_return_policy_needs_undiscounted_returns(self):
    experiment = self.experiment(return_discount=0.9)
    with self.assertRaisesRegex(
        config.ConfigError, 'return_discount = 0.9 with DecisionPolicy'):
      experiment.make_policy(experiment.make_agent().network)

  def test_a_dataset_of_another_environment_is_logged(self):
    with mock.patch.object(offline_experiment.logging, 'warning') as warning:
      self.experiment()
      warning.assert_not_called()
      with mock.patch.object(_MAZE.func, 'name', 'OtherMaze', create=True):
        self.experiment()
    self.assertEqual(warning.call_args.args[1:], ('TMaze', 'OtherMaze'))

  def test_the_description_says_which_steps_are_left_out(self):
    self.assertRegex(self.experiment().description, r'^on the 300 episodes')
    self.assertRegex(
        self.experiment(segment_length=2, num_segments=1).description,
        r'^on the first 2 steps of the 300 episodes')

  def test_refuses_a_dataset_of_another_task(self):
    with self.assertRaisesRegex(
        config.ConfigError, 'OfflineExperiment.dataset has observations'):
      self.experiment(environment=action_recall.ActionRecall)

  @parameterized.parameters(
      (specs.DiscreteArray(3), "'num_values': 4.* with .*'num_values': 3"),
      (specs.DiscreteArray(18), "'num_values': 4.* with .*'num_values': 18"),
      (environments.NamedActions(['up', 'left', 'right', 'down']),
       "'left', 'up', .* with .*'up', 'left', "))
  def test_refuses_a_dataset_of_other_actions(self, spec, message):
    with self.assertRaisesRegex(
        config.ConfigError, 'OfflineExperiment.dataset has actions with .*' + message):
      self.experiment(environment=functools.partial(_Maze, spec))

  def test_reads_old_actions_that_count_from_0(self):
    maze = functools.partial(_Maze, specs.BoundedArray((), np.int32, -1, 2))
    for version in 1, 2:
      path = self.create_tempdir().full_path
      with mock.patch.object(format_lib, 'VERSION', version):
        testing.write_informed_episodes(path, _Maze(specs.DiscreteArray(4), seed=0), 5)
      if version == 1:
        experiment = self.experiment(dataset=path, environment=maze)
        recorded = datasets.open_dataset(path).episode(0).action
        np.testing.assert_array_equal(
            experiment.dataset.episode(0).action, recorded - 1)
        space = experiment.make_agent().network.action_space
        np.testing.assert_array_equal(
            experiment.episode(space, 0).action[0, :len(recorded)], recorded)
      else:
        with self.assertRaisesRegex(config.ConfigError, r"'bounds': \[-1.0, 2.0\]"):
          self.experiment(dataset=path, environment=maze)

  def test_compares_the_bounds_of_continuous_actions(self):
    bounded = specs.BoundedArray((2,), np.float32, [-1, -2], 1)
    self.assertEqual(*offline_experiment._comparable(
        specs.BoundedArray((2,), np.float64, [-1, -2], [1, 1]), bounded))
    self.assertNotEqual(*offline_experiment._comparable(
        specs.BoundedArray((2,), np.float32, -1, 1), bounded))
    self.assertEqual(*offline_experiment._comparable(
        specs.Array((2,), np.float32), bounded))
    self.assertNotEqual(*offline_experiment._comparable(
        specs.Array((), np.int32), specs.DiscreteArray(3)))


if __name__ == '__main__':
  absltest.main()
