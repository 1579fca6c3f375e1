"""Tests of experiment.py."""

import functools
from unittest import mock

from absl import logging
from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import gin
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import environments
from gtrxl_tf.agents import vmpo
from gtrxl_tf.environments import t_maze
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import torsos
from gtrxl_tf.replay import unroll
from gtrxl_tf.settings import config
from gtrxl_tf.settings import seeds
from gtrxl_tf.training import experiment as base
from gtrxl_tf.training import optimizers
from gtrxl_tf.training.online import experiment as experiment_lib


def _experiment(core=lambda: cores.TransformerXL(1, 4, 2, 2, memory_length=3),
                **settings):
  return experiment_lib.OnlineExperiment(**{**dict(
      environment=lambda seed: t_maze.TMaze(3, seed=seed),
      network=lambda action_spec: actor_critic.ActorCritic(
          action_spec, torsos.VectorTorso((4,)), core(), head_units=4),
      unroll_length=4, batch_size=6, environments_per_actor=3), **settings})


class ExperimentTest(parameterized.TestCase):

  @pytest.mark.medium
  def test_networks_start_as_the_seed_says(self):
    def weights(seed):
      return [
            v.numpy() for v in _experiment(seed=seed).make_agent().online.variables]
    for one, same, other in zip(weights(0), weights(0), weights(1)):
      np.testing.assert_array_equal(one, same)
      if np.ptp(one):  # Not a bias or a scale.
        self.assertTrue((one != other).any())

  def test_environments_differ_by_seed_and_stream(self):
    def clues(seed, stream):
      return _experiment(seed=seed).make_environments(
            32, stream).reset().observation[:, 1].tobytes()
    self.assertEqual(clues(0, 2), clues(0, 2))
    self.assertLen({clues(0, 2), clues(0, 3), clues(1, 2), clues(1, 3)}, 4)

  def test_random_actions_of_head_starts_differ_by_seed_actor_and_environment(self):
    def play(seed, actor):
      batch = _experiment(seed=seed).make_environments(3, seeds.Stream.ACTING, actor, 0)
      played = batch._environments  # pylint: disable=protected-access
      for environment in played:
        environment.step = mock.Mock(wraps=environment.step)
      batch.reset(np.full(3, 12))
      return [str(environment.step.call_args_list) for environment in played]
    self.assertEqual(play(0, 0), play(0, 0))
    self.assertLen({*play(0, 0), *play(0, 1), *play(1, 0)}, 9)

  def test_an_environment_without_a_seed_is_refused(self):
    with self.assertRaisesRegex(
        ValueError, '^Experiment.environment does not take the argument seed'):
      _experiment(environment=lambda: t_maze.TMaze(3))

  @pytest.mark.medium
  def test_a_metric_may_not_take_a_column_of_the_run(self):
    for name in ('return', 'a, b'):
      class Agent(vmpo.VMPOAgent):

        def _policy_loss(self, steps):
          loss, metrics = super()._policy_loss(steps)
          return loss, {**metrics, name: loss}  # pylint: disable=cell-var-from-loop

      with self.assertRaisesRegex(
          config.ConfigError, f"^Agent.loss returns a metric '{name}': expected a name"):
        _experiment(agent=Agent).check()

  @pytest.mark.medium
  def test_a_step_that_fails_is_found_before_training(self):
    class Grows(cores.Memoryless):

      def _step(self, inputs, is_first, cache):
        outputs, _ = super()._step(inputs, is_first, cache)
        return outputs, tf.zeros([tf.shape(inputs)[0], 3])

    with self.assertRaisesRegex(ValueError, "^_step's cache of type "):
      _experiment(core=lambda: Grows(1, 4)).check()

  @pytest.mark.medium
  def test_a_core_that_builds_its_parts_when_called_is_refused(self):
    class Unbuilt(cores.Memoryless):

      def build(self, input_shape):
        super().build(input_shape)
        self.late = tf.keras.layers.Dense(4, name='late')

      def _step(self, inputs, is_first, cache):
        outputs, cache = super()._step(inputs, is_first, cache)
        return self.late(outputs), cache

    with self.assertRaisesRegex(
        config.ConfigError, '^ActorCritic: variable .*late/kernel:0 was made by the first call'):
      _experiment(core=lambda: Unbuilt(1, 4)).check()

  def test_a_slow_environment_is_not_played_for_long_before_the_run(self):
    steps, now = [], 0.0

    class Slow(t_maze.TMaze):

      def step(self, action):
        nonlocal now
        now += 0.3
        steps.append(action)
        return super().step(action)

    with mock.patch.object(base.time, 'monotonic', lambda: now):
      # pylint: disable-next=protected-access
      _experiment(environment=lambda seed: Slow(100, seed=seed))._play()
    self.assertLen(steps, 7)
    self.assertCountEqual(steps[:4], range(4))

  def test_an_environment_s_other_errors_are_its_own(self):
    with self.assertRaisesRegex(TypeError, 'corridor'):
      _experiment(environment=lambda seed: t_maze.TMaze(corridor=3, seed=seed))

  def test_wrappers_change_all_environments_and_the_specs(self):
    experiment = _experiment(
        environment=lambda seed: t_maze.TMaze(3, penalty=3.0, seed=seed), wrappers=[
            functools.partial(environments.ScaleReward, factor=5.0),
            functools.partial(environments.FrameStack, frames=2)])
    self.assertEqual(experiment.observation_spec.shape, (8,))
    environment = experiment.make_evaluation_environments(1)
    self.assertEqual(environment.reset().observation.shape, (1, 8))
    seen = [environment.step(np.array([t_maze.UP])) for _ in range(5)]
    self.assertEqual([x.reward[0] for x in seen], [-5] * 5)
    self.assertEqual(seen[-1].episode_return[0], -5)  # Before it was scaled.
    self.assertIsNone(experiment.informed_return(2))

  @parameterized.parameters((None, 1), (True, 0))
  def test_only_its_check_warns_of_the_scale_of_observations(self, normalizes, num):
    class Far(environments.Wrapper):

      def reset(self):
        seen = self._environment.reset()
        return seen._replace(observation=1e4 * seen.observation)

      def step(self, action):
        seen = self._environment.step(action)
        return seen._replace(observation=1e4 * seen.observation)

      def observation_spec(self):
        return specs.Array([4], np.float32)

    self.addCleanup(gin.clear_config)
    if normalizes:
      config.parse([], ['on = True', 'ActorCritic.normalize_observations = %on'])
    experiment = _experiment(wrappers=[Far], network=actor_critic.ActorCritic)
    with self.assertLogs(level='WARNING') as logs:
      logging.warning('the first')
      for batch in experiment._prototype, experiment.make_evaluation_environments(1):
        batch.reset()
        for _ in range(20):
          batch.step(np.zeros(batch.num_environments, np.int32))
    self.assertLen(logs.output, 1 + num)

  def test_scores_are_of_the_mean_return_of_each_task(self):
    def experiment(score):
      return _experiment(score=score, tasks={'corridor_length': (2, 5)},
                         environment=lambda **settings: t_maze.TMaze(**settings),
                         environments_per_actor=2)
    one = experiment(lambda returns: returns['2'] + 10 * returns['5'])
    self.assertEqual(one.compute_scores([1, 3, 4], [0, 0, 1]), {'score': 42})
    several = experiment(lambda returns: {'score': returns['2'], 'other': 7})
    self.assertEqual(several.compute_scores([1, 3, 4], [0, 0, 1]), {'score': 2, 'other': 7})
    np.testing.assert_equal(
        several.compute_scores([1], [0]), {'score': np.nan, 'other': np.nan})
    self.assertEqual(experiment(None).compute_scores([1], [0]), {})

  def test_every_task_is_played_by_equally_many_environments(self):
    def settings(num_tasks):
      return dict(environment=lambda corridor_length, seed: t_maze.TMaze(
          corridor_length, seed=seed), num_actors=4,
                  tasks={'corridor_length': tuple(range(2, 2 + num_tasks))})
    experiment = _experiment(**settings(6))
    tasks = np.concatenate([
        experiment.make_environments(3, actor, first=3 * actor).tasks
        for actor in range(4)])
    np.testing.assert_array_equal(np.bincount(tasks), [2] * 6)
    for num_tasks in (5, 13):  # 13 is more than there are environments.
      with self.assertRaisesRegex(
          config.ConfigError, f'Experiment.tasks has {num_tasks} values: expected a '
          r'divisor of .* = 4 x 3, so that every task has the same share'):
        _experiment(**settings(num_tasks))

  def test_a_budget_counts_actions_or_frames(self):
    self.assertEqual(_experiment(environment_steps=1001).environment_steps, 1001)
    self.assertEqual(_experiment(
        environment_steps=1001, frames_per_action=4).environment_steps, 251)

  def test_every_task_is_evaluated_on_as_many_episodes(self):
    for num_tasks, episodes, expected in (
        (1, 100, 50), (1, 101, 34), (30, 200, 30), (4, 100, 48), (3, 2, 6)):
      experiment = _experiment(
          environment=lambda corridor_length, seed: t_maze.TMaze(
              corridor_length, seed=seed), num_actors=40, evaluation_episodes=episodes,
          tasks={'corridor_length': tuple(range(2, 2 + num_tasks))})
      environment = experiment.make_evaluation_environments()
      self.assertEqual(environment.num_environments, expected)
      self.assertEqual(experiment.evaluation_episodes, num_tasks * episodes)
      self.assertLen(set(np.bincount(environment.tasks)), 1)
    self.assertEqual(
        experiment.make_evaluation_environments(100, 10).num_environments, 9)

  def test_dropout_which_would_do_nothing_is_refused(self):
    for setting in 'dropout', 'attention_dropout':
      def core(setting=setting):
        return cores.TransformerXL(
            1, 4, 2, 2, memory_length=3, **{setting: 0.1})
      with self.assertRaisesRegex(
          config.ConfigError, 'TransformerXL.dropout or TransformerXL.attention_dropout is not 0'):
        _experiment(core).make_agent()

  def test_an_average_of_the_weights_which_would_do_nothing_is_refused(self):
    with self.assertRaisesRegex(config.ConfigError, '^AdamW.ema_momentum = 0.5'):
      _experiment(optimizer=optimizers.AdamW(ema_momentum=0.5))

  def test_recurrence_by_segments_is_refused(self):
    def core():
      return cores.SegmentTransformer(
            1, 4, 2, 2, 4, segment_length=5, recurrence='same_layer', memory_length=3)
    with self.assertRaisesRegex(
        config.ConfigError, 'SegmentTransformer works in segments'):
      _experiment(core).make_agent()

  def test_actors_that_wait_for_weights_make_the_batches_that_these_need(self):
    for num_actors, batches, unrolls in ((1, 1, 2), (1, 5, 10), (2, 1, 1), (5, 5, 2)):
      experiment = _experiment(num_actors=num_actors, batches_per_weights=batches)
      self.assertEqual(experiment.unrolls_per_weights, unrolls)
    self.assertIsNone(_experiment().unrolls_per_weights)
    agent = functools.partial(vmpo.VMPOAgent, target_update_period=5)
    _experiment(batches_per_weights=5, agent=agent).make_agent()
    with self.assertRaisesRegex(
        config.ConfigError, '^OnlineExperiment.batches_per_weights = 4'):
      _experiment(batches_per_weights=4, agent=agent).make_agent()
    with self.assertRaisesRegex(config.ConfigError, '^OnlineExperiment.max_age = 4'):
      _experiment(max_age=4, agent=agent).make_agent()

  @parameterized.parameters(
      (dict(batch_size=3, num_actors=2), '1 x 3 / 3 = 1'),
      (dict(num_actors=4, batches_per_weights=3), '3 x 6 / 3 = 6'))
  def test_actors_that_wait_for_weights_share_the_batches_that_these_make(
      self, settings, numbers):
    settings = {'batches_per_weights': 1, **settings}
    with self.assertRaisesRegex(
        config.ConfigError, f'^OnlineExperiment.num_actors = {settings["num_actors"]}: '
        'expected a divisor of OnlineExperiment.batches_per_weights x .* = '
        f'{numbers}, so that'):
      _experiment(**settings)
    _experiment(**{**settings, 'batches_per_weights': None})

  def test_a_batch_is_whole_items(self):
    self.assertEqual(_experiment().items_per_batch, 2)
    self.assertEqual(_experiment(queue_batches=3).queue_size, 6)
    with self.assertRaisesRegex(config.ConfigError, 'OnlineExperiment.batch_size = 7'):
      _experiment(batch_size=7)

  @pytest.mark.medium
  def test_data_may_be_two_target_periods_old_by_default(self):
    agent = functools.partial(vmpo.VMPOAgent, target_update_period=7)
    experiment = _experiment(agent=agent)
    self.assertEqual(experiment.max_age(experiment.make_agent()), 14)
    for settings, expected in (
        (dict(max_age=8), 8), (dict(batches_per_weights=7), 7),
        (dict(batches_per_weights=7, max_age=9), 9)):
      experiment = _experiment(agent=agent, **settings)
      self.assertEqual(experiment.max_age(experiment.make_agent()), expected)

  @pytest.mark.medium
  def test_a_blank_batch_has_the_shapes_of_those_to_come(self):
    for core in (lambda: cores.TransformerXL(1, 4, 2, 2, memory_length=3),
                 lambda: cores.DeepLSTM(1, 4), lambda: cores.Memoryless(1, 4)):
      experiment = _experiment(core)
      agent = experiment.make_agent()
      blank = experiment.make_batch(agent)
      tf.nest.map_structure(
          lambda x, y: self.assertEqual((x.shape[1:], x.dtype), (y.shape[1:], y.dtype)),
          blank, unroll.batch_spec(experiment.unroll_signature(), 1))
      loss, _ = agent.loss(blank)
      self.assertTrue(np.isfinite(loss))

  def test_the_informed_return_is_that_of_the_task(self):
    self.assertEqual(_experiment().informed_return(10), 1.0)


if __name__ == '__main__':
  absltest.main()
