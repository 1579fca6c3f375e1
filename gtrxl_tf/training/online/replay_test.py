"""R2D2 on a real server: from actors to the table and its priorities."""

# pylint: disable=protected-access

import functools
import math
import threading
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.agents import ppo
from gtrxl_tf.agents import r2d2
from gtrxl_tf.environments import t_maze
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import torsos
from gtrxl_tf.replay import connection
from gtrxl_tf.replay import prioritized
from gtrxl_tf.replay import replay_testing
from gtrxl_tf.serving import exported
from gtrxl_tf.settings import config
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import optimizers
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import trainer as training_lib
from gtrxl_tf.training.online import actor as actor_lib
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import inference
from gtrxl_tf.training.online import placement
from gtrxl_tf.training.online import trainer as trainer_lib

_T, _E, _ITEMS, _NEW = 6, 2, 4, 1  # New items for each batch of four.


def _experiment(num_batches=8, replay=None, agent=None, **settings):
  replay = replay or prioritized.Replay(
      min_unrolls=3 * _E, unrolls_per_step=_NEW * _E, overlap=2)
  agent = agent or functools.partial(
      r2d2.R2D2Agent, burn_in=2, target_update_period=2, publish_period=1)
  return experiment_lib.OnlineExperiment(**{**dict(
      environment=lambda seed: t_maze.TMaze(3, seed=seed),
      network=lambda action_spec: actor_critic.ActorCritic(
          action_spec, torsos.VectorTorso((4,)),
          cores.TransformerXL(1, 4, 2, 2, memory_length=3), head_units=4),
      agent=agent, replay=replay, exploration=r2d2.EpsilonGreedy(),
      unroll_length=_T, batch_size=_ITEMS * _E, environments_per_actor=_E,
      environment_steps=num_batches * _NEW * _E * (_T - replay.overlap),
      optimizer=optimizers.Adam(1e-2), log_period=1,
      checkpoints=checkpoints.Settings(period=3)), **settings})


class ReplayTest(parameterized.TestCase, tf.test.TestCase):

  def start(self):
    """Makes the memory, which has nothing."""
    self.address = replay_testing.memory(self, _experiment())

  def play(self, experiment):
    """Starts an actor in a thread; returns a function that stops it."""
    stop = threading.Event()
    replay = connection.connect(self.address, experiment.layout)
    actor = actor_lib.Actor(experiment, replay, 0, stop.is_set)
    thread = threading.Thread(target=actor.run)
    thread.start()

    def end():
      stop.set()
      thread.join()

    self.addCleanup(end)
    return end

  def training(self, experiment, folder, should_stop=lambda: False):
    deadline = time.time() + 240  # A bound, in case something goes wrong.
    return trainer_lib.OnlineTrainer(experiment, training_lib.Process(
        folder, tf.distribute.get_strategy(),
        lambda: should_stop() or time.time() > deadline, self.address))

  def folder(self):
    return run_folder.RunFolder(self.create_tempdir().full_path)

  @pytest.mark.long
  def test_a_run_trains_updates_priorities_and_exports_a_policy(self):
    self.start()
    # The number of steps is no multiple of this period, as a rule.
    experiment, folder = _experiment(agent=functools.partial(
        r2d2.R2D2Agent, burn_in=2, target_update_period=2, publish_period=5)), self.folder()
    sizes = []
    sample = prioritized.Table.sample
    self.enter_context(mock.patch.object(
        prioritized.Table, 'sample', lambda self, num: sizes.append(self.size) or sample(self, num)))
    end = self.play(experiment)
    trainer = self.training(experiment, folder)
    self.assertTrue(trainer.run())
    end()
    channel = connection.connect(self.address, experiment.layout).weights(
        experiment.acting_network.variables)
    self.assertEqual((channel.receive(), channel.finished), (trainer.step, True))
    priorities = trainer._table._priorities
    self.assertNotEmpty(priorities[(priorities != 1.0) & (priorities != 0.0)])
    self.assertEqual(sizes[0], 3 * _E)
    rows = metrics_csv.read_metrics(folder.metrics)
    last = rows[-1]
    self.assertEqual(last['learner_step'], trainer.step)
    # One step follows each new item of the queue, but for those before the table had
    # enough.
    self.assertEqual(last['unrolls'], trainer.step + 2)
    self.assertEqual((last['unrolls_stale'], last['unrolls_duplicate']), (0, 0))
    self.assertEqual(last['oldest_allowed'], math.inf)
    self.assertGreater(last['oldest_unroll'], 2)
    self.assertGreaterEqual(last['environment_steps'], experiment.environment_steps)
    self.assertFalse(math.isnan(last['return']))
    policy = exported.load(folder.policy)
    ours = experiment.make_policy(trainer._network_that_acts())
    environment = experiment.make_evaluation_environments(4)
    seen, states = environment.reset(), [x.get_initial_state(4) for x in (policy, ours)]
    for _ in range(5):
      time_step = actor_lib.dm_env.TimeStep(
          *(tf.constant(getattr(seen, name)) for name in (
              'step_type', 'reward', 'discount', 'observation')))
      done = [x.action(time_step, state) for x, state in zip((policy, ours), states)]
      self.assertAllEqual(done[0].action, done[1].action)  # Neither explores.
      states = [x.state for x in done]
      seen = environment.step(done[0].action.numpy())

  @pytest.mark.long
  def test_an_interrupted_run_goes_on_where_it_was(self):
    self.start()
    experiment, folder = _experiment(), self.folder()
    self.play(experiment)
    trainer = self.training(experiment, folder, lambda: trainer.step >= 3)
    self.assertFalse(trainer.train())
    step, steps, unrolls = trainer.step, trainer._steps, trainer._ledger.unrolls
    period, priorities = int(trainer._agent._steps), trainer._table._priorities.tolist()
    trainer = self.training(experiment, folder)
    self.assertEqual(trainer._table._priorities.tolist(), priorities)
    self.assertEqual(trainer._table.size, _E * unrolls)
    self.assertEqual(
        (trainer.step, trainer._steps, trainer._ledger.unrolls,
         int(trainer._agent._steps)), (step, steps, unrolls, period))
    self.assertTrue(trainer.train())
    self.assertEqual(trainer._ledger.duplicate, 0)

  @parameterized.parameters(
      (dict(batches_per_weights=1), 'OnlineExperiment.batches_per_weights = 1: expected '
       'None with OnlineExperiment.replay'),
      (dict(max_age=5), 'OnlineExperiment.max_age = 5: expected None'),
      (dict(inference=placement.Inference()),
       'OnlineExperiment.inference = @Inference.*: expected None'),
      (dict(num_minibatches=2), 'num_minibatches = 2: expected 1'),
      (dict(replay=prioritized.Replay(unrolls_per_step=3)),
       'Replay.unrolls_per_step = 3: expected a multiple of'),
      (dict(replay=prioritized.Replay(overlap=6), environment_steps=100),
       'Replay.overlap = 6: expected less than OnlineExperiment.unroll_length = 6'),
      (dict(environment_steps=23), 'OnlineExperiment.environment_steps = 23: expected at '
       'least 24, the steps of Replay.min_unrolls = 6'))
  def test_settings_that_do_not_fit_are_refused(self, settings, message):
    with self.assertRaisesRegex(config.ConfigError, message):
      _experiment(**settings)

  @parameterized.parameters(
      (dict(exploration=None), r'exploration = None: expected @EpsilonGreedy\(\)'),
      (dict(agent=ppo.PPOAgent), 'OnlineExperiment.replay = Replay: expected None with '
       'the agent PPO'))
  @pytest.mark.medium
  def test_an_agent_samples_from_the_table_it_was_made_for(self, settings, message):
    with self.assertRaisesRegex(config.ConfigError, message):
      _experiment(**settings).make_agent()

  def test_an_inference_server_is_refused(self):
    with self.assertRaisesRegex(config.ConfigError, 'has no rates of exploration'):
      inference.InferenceServer(_experiment(), 'localhost:1', 2, lambda: True)

  @pytest.mark.medium
  def test_actors_of_a_run_explore_at_different_rates(self):
    experiment = _experiment(num_actors=2)
    rates = [experiment.make_policy(
        experiment.acting_network, actor=i)._rates for i in range(2)]
    self.assertAllClose(np.concatenate(rates), r2d2.EpsilonGreedy().rates(0, 4, 4))
    # An actor that is started by hand may have any index.
    late = experiment.make_policy(experiment.acting_network, actor=2**20 + 1)._rates
    self.assertAllClose(late, rates[1])
    experiment.check()


if __name__ == '__main__':
  absltest.main()
