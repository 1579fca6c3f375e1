"""Tests of trainer.py: a learner on a real queue with known rows."""

# pylint: disable=protected-access

import errno
import functools
import math
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import portpicker
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import devices_testing
from gtrxl_tf.agents import vmpo
from gtrxl_tf.environments import t_maze
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import torsos
from gtrxl_tf.replay import connection
from gtrxl_tf.replay import replay_testing
from gtrxl_tf.replay import server as server_lib
from gtrxl_tf.replay import server_lost
from gtrxl_tf.settings import config
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import devices
from gtrxl_tf.training import learner
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import optimizers
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import trainer as training_lib
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import trainer

devices_testing.split_cpu(3)

_T, _E, _ITEMS = 4, 2, 2
_STEPS_A_BATCH = _ITEMS * _T * _E


def _network(action_spec):
  return actor_critic.ActorCritic(
      action_spec, torsos.VectorTorso((4,)),
      cores.TransformerXL(1, 4, 2, 2, memory_length=3), head_units=4)


class OnlineTrainingTest(parameterized.TestCase):

  def start(self, with_server=False):
    """Makes a replay, and a writer of rows that are the same in every test."""
    experiment = self.experiment(1)
    self.row_spec = experiment.row_spec()
    if with_server:
      replay_testing.require_reverb(self)
      port = portpicker.pick_unused_port()
      self.server = server_lib.serve(port, experiment.layout)
      self.addCleanup(self.server.stop)
      self.address = f'localhost:{port}'
    else:
      self.address = replay_testing.memory(self, experiment)
    self.replay = connection.connect(self.address, experiment.layout)
    self.writer = self.replay.writer(0)
    self.addCleanup(self.writer.close)
    self.writer.open()
    self.random = np.random.RandomState(0)

  def experiment(self, num_batches, target_update_period=2, **settings):
    return experiment_lib.OnlineExperiment(**{**dict(
        environment=lambda seed: t_maze.TMaze(3, seed=seed), network=_network,
        agent=functools.partial(
            vmpo.VMPOAgent, target_update_period=target_update_period),
        queue_batches=50,
        environment_steps=num_batches * _STEPS_A_BATCH, unroll_length=_T,
        batch_size=_ITEMS * _E, environments_per_actor=_E,
        optimizer=optimizers.Adam(1e-2), max_age=100,
        checkpoints=checkpoints.Settings(period=3), log_period=2), **settings})

  def feed(self, num_batches, **columns):
    """Writes the rows of `num_batches` batches: random, except `columns`."""
    items = 0
    while items < num_batches * _ITEMS:
      def draw(spec):
        if spec.dtype.is_integer:
          return self.random.randint(4, size=spec.shape).astype(
              spec.dtype.as_numpy_dtype)
        return self.random.randn(*spec.shape).astype(np.float32)
      row = tf.nest.map_structure(draw, self.row_spec)._replace(
          step_type=np.ones(_E, np.int32), discount=np.ones(_E, np.float32),
          episode_return=np.full(_E, np.nan, np.float32),
          episode_success=np.full(_E, np.nan, np.float32),
          task=np.zeros(_E, np.int32), target_step=np.int64(0))
      items += self.writer.append(row._replace(**columns))
    self.assertTrue(self.writer.wait(10000))

  def training(self, experiment, folder=None, should_stop=lambda: False,
               strategy=None):
    deadline = time.time() + 240  # A bound, in case something goes wrong.
    self.folder = folder or run_folder.RunFolder(self.create_tempdir().full_path)
    return trainer.OnlineTrainer(
        experiment, training_lib.Process(
            self.folder, strategy or tf.distribute.get_strategy(),
            lambda: should_stop() or time.time() > deadline, self.address))

  def test_several_workers_do_not_share_batches_that_actors_wait_for(self):
    self.address = None  # It needs no replay.
    with mock.patch.object(devices, 'num_workers', return_value=2):
      with self.assertRaisesRegex(
          config.ConfigError,
          '^2 workers: expected one with OnlineExperiment.batches_per_weights'):
        self.training(self.experiment(4, batches_per_weights=2))

  def train_in_parts(self, *ends, strategy=None, **settings):
    """Trains from the start, with a new learner for each part, up to `ends` batches."""
    self.start()
    fed, folder = 0, None
    for end in ends:
      self.feed(end - fed)
      self.assertTrue(self.training(
          self.experiment(end, **settings), folder, strategy=strategy).train())
      fed, folder = end, self.folder
    return folder

  def checkpoint(self, folder):
    """The values in a run's newest checkpoint, except the time that it took."""
    reader = tf.train.load_checkpoint(
        tf.train.latest_checkpoint(str(folder.checkpoints)))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()
            if name.endswith('VARIABLE_VALUE')
            and not name.startswith(('seconds', 'save_counter'))}

  def saved_steps(self, folder):
    state = tf.train.get_checkpoint_state(str(folder.checkpoints))
    paths = state.all_model_checkpoint_paths if state else ()
    return [int(path.split('-')[-1]) for path in paths]

  @pytest.mark.medium
  def test_an_interrupted_run_equals_one_that_was_not(self):
    num_epochs, num_minibatches = 3, 2
    uses = dict(num_epochs=num_epochs, num_minibatches=num_minibatches)
    whole = self.checkpoint(self.train_in_parts(7, **uses))
    resumed = self.checkpoint(self.train_in_parts(4, 7, **uses))
    gradient_steps = whole.pop('optimizer/iter/.ATTRIBUTES/VARIABLE_VALUE')
    self.assertEqual(gradient_steps, 7 * num_epochs * num_minibatches)
    self.assertEqual(
        resumed.pop('optimizer/iter/.ATTRIBUTES/VARIABLE_VALUE'), gradient_steps)
    self.assertEqual(list(whole), list(resumed))
    self.assertEqual(whole['environment_steps/.ATTRIBUTES/VARIABLE_VALUE'],
                     7 * _STEPS_A_BATCH)
    for name, value in whole.items():
      np.testing.assert_array_equal(value, resumed[name], name)
    # Online and target network, their duals, Adam's moments and step.
    self.assertGreater(len(whole), 4 * len(self.experiment(1).acting_network.variables))

  def rates(self, training):
    """Trains to the end or until it should stop; returns each step's learning rate."""
    rates, step = [], training._learner.step

    def recorded(batch):
      rates.append(float(training._learner._optimizer._decayed_lr(tf.float32)))
      return step(batch)

    with mock.patch.object(training._learner, 'step', recorded):
      training.train()
    return rates

  def falling(self, num_batches):
    return self.experiment(num_batches, optimizer=optimizers.Adam(1e-2, 0.0))

  @pytest.mark.medium
  def test_a_schedule_ends_with_the_run_whatever_the_length_of_episodes(self):
    self.start()
    # Every other row begins an episode, so that a batch has half as many steps.
    self.feed(6, step_type=np.array([0, 1], np.int32))
    rates = self.rates(self.training(self.falling(3)))
    np.testing.assert_allclose(rates, 1e-2 * (1 - np.arange(6) / 6), rtol=1e-5)
    # A run that is extended goes on at its share of the longer run.
    self.feed(6, step_type=np.array([0, 1], np.int32))
    rates = self.rates(self.training(self.falling(6), self.folder))
    np.testing.assert_allclose(rates, 1e-2 * (1 - np.arange(6, 12) / 12), rtol=1e-5)

  @parameterized.parameters(1, 2)
  @pytest.mark.medium
  def test_the_step_is_traced_before_the_first_batch_comes(self, num_minibatches):
    self.start()
    self.feed(2)
    training = self.training(self.experiment(2, num_minibatches=num_minibatches))
    count = training._learner._step.experimental_get_tracing_count
    traces, wait = [], training._queue.next

    def count_and_wait(batches):
      traces.append(count())
      return wait(batches)

    with mock.patch.object(training._queue, 'next', count_and_wait):
      self.assertTrue(training.train())
    self.assertGreater(traces[0], 0)
    self.assertEqual([*traces, count()], 3 * traces[:1])

  @pytest.mark.medium
  def test_a_batch_that_is_used_more_than_once_counts_as_one(self):
    folder = self.train_in_parts(6, num_epochs=3, num_minibatches=2)
    self.assertEqual(self.saved_steps(folder), [3, 6])
    rows = metrics_csv.read_metrics(folder.metrics)
    self.assertEqual([row['learner_step'] for row in rows], [2, 4, 6])
    self.assertEqual([row['unrolls'] for row in rows], [4, 8, 12])
    self.assertEqual([row['unrolls_duplicate'] for row in rows], [0, 0, 0])
    self.assertEqual(rows[-1]['oldest_unroll'], 6)  # Batches, of the first weights.
    variables = self.experiment(1).acting_network.variables
    channel = self.replay.weights(variables)
    self.assertEqual(channel.receive(), 6)

  @pytest.mark.long
  def test_replicas_share_the_queue_and_learn_what_one_learns(self):
    optimizer = optimizers.Adam(1e-2, 0.1)
    one = self.checkpoint(self.train_in_parts(3, optimizer=optimizer))
    two = self.checkpoint(self.train_in_parts(
        3, optimizer=optimizer, strategy=devices_testing.mirrored(self, 2)))
    self.assertEqual(list(one), list(two))
    for name, value in one.items():
      # One step agrees to 1e-5 (learner_test.py); these are three of Adam's.
      np.testing.assert_allclose(value, two[name], atol=1e-4, err_msg=name)

  def test_a_batch_that_replicas_cannot_share_is_refused(self):
    strategy = devices_testing.mirrored(self, 3)
    self.start()
    with self.assertRaisesRegex(
        config.ConfigError, '^OnlineExperiment.batch_size = 4: .* the 3 replicas'):
      self.training(self.experiment(1), strategy=strategy)

  def test_minibatches_that_a_replica_cannot_have_are_refused(self):
    with self.assertRaisesRegex(
        config.ConfigError, '^OnlineExperiment.batch_size = 4: .*num_minibatches = 3'):
      self.experiment(1, num_minibatches=3)
    self.start()
    with self.assertRaisesRegex(
        config.ConfigError, '^OnlineExperiment.num_minibatches = 4: .* 2 unrolls'):
      self.training(self.experiment(1, num_minibatches=4),
                    strategy=devices_testing.mirrored(self, 2))

  @pytest.mark.medium
  def test_a_server_with_other_settings_is_refused(self):
    self.start(with_server=True)
    with self.assertRaisesRegex(
        config.ConfigError, '^what this process exchanges does not fit the server at .*has '
        r'shape \(6, 2.*expected'):
      self.training(self.experiment(1, unroll_length=_T + 1)).train()

  @pytest.mark.long
  def test_a_learner_that_waits_for_a_dead_server_can_be_told_to_stop(self):
    self.start(with_server=True)
    self.feed(1)
    died = []

    def should_stop():
      if not died and metrics_csv.read_metrics(self.folder.metrics):
        self.server.stop()
        died.append(time.time())
      return bool(died) and time.time() > died[0] + 2

    training = self.training(
        self.experiment(100, log_period=1), should_stop=should_stop)
    self.assertFalse(training.train())
    self.assertLess(time.time(), died[0] + 15)
    self.assertEqual(self.saved_steps(self.folder), [1])

  @pytest.mark.medium
  def test_the_last_checkpoint_is_tried_until_there_is_room(self):
    self.start()
    self.feed(2)
    save, errors = tf.train.CheckpointManager.save, 2 * [OSError(errno.ENOSPC, 'full')]

    def save_where_there_is_room(*args, **kwargs):
      if errors:
        raise errors.pop()
      return save(*args, **kwargs)

    with mock.patch.object(
        tf.train.CheckpointManager, 'save', save_where_there_is_room), mock.patch.object(
            training_lib, '_SAVE_AGAIN_SECONDS', 0.1), self.assertLogs(
                'absl', 'ERROR') as logs:
      self.assertTrue(self.training(self.experiment(2)).train())
    self.assertLen(logs.output, 2)
    self.assertRegex(logs.output[0], 'checkpoint 2 was not saved .*full; the newest is '
                     'none; trying again every 0 s')
    self.assertEqual(self.saved_steps(self.folder), [2])

  @pytest.mark.medium
  def test_a_learner_whose_server_gets_other_settings_saves_first(self):
    self.start(with_server=True)
    self.feed(2)

    def connect_again():
      if training.step == 2:
        training._queue.abandon()
      return False

    training = self.training(self.experiment(9), should_stop=connect_again)
    with mock.patch.object(training._replay, 'check', side_effect=[
        None, config.ConfigError('other settings')]), self.assertRaisesRegex(
            config.ConfigError, '^other settings$'):
      training.train()
    self.assertEqual(self.saved_steps(self.folder), [2])

  @pytest.mark.medium
  def test_a_stop_between_two_counts_saves_the_steps_of_both(self):
    self.start()
    self.feed(2)
    training = self.training(
        self.experiment(9, log_period=9), should_stop=lambda: training.step == 2)
    training._meets = True  # As one of several workers, which count when they meet.
    self.assertFalse(training.train())
    self.assertEqual(self.saved_steps(self.folder), [2])
    self.assertEqual(training._steps, 0)
    resumed = self.training(self.experiment(9), self.folder)
    self.assertEqual(resumed._steps, 2 * _STEPS_A_BATCH)
    self.assertEqual(resumed._steps, resumed._counted)

  @pytest.mark.long
  def test_only_the_newest_checkpoints_are_kept(self):
    self.start()
    self.feed(5)
    self.training(self.experiment(
        5, checkpoints=checkpoints.Settings(1, kept=2))).train()
    self.assertEqual(self.saved_steps(self.folder), [4, 5])

  @pytest.mark.long
  def test_metrics_continue_from_the_newest_checkpoint(self):
    folder = self.train_in_parts(5, 8)
    rows = metrics_csv.read_metrics(folder.metrics)
    steps = [2, 4, 5, 6, 8]  # Every second, and the last of each part.
    self.assertEqual([row['learner_step'] for row in rows], steps)
    self.assertEqual([row['environment_steps'] for row in rows],
                     [step * _STEPS_A_BATCH for step in steps])
    self.assertEqual([row['unrolls'] for row in rows], [2 * step for step in steps])
    for one, next_one in zip(rows, rows[1:]):
      self.assertGreater(next_one['seconds'], one['seconds'])
    for row in rows:
      self.assertEqual((row['unrolls_stale'], row['unrolls_duplicate']), (0, 0))
      self.assertLessEqual(row['oldest_unroll'], row['oldest_allowed'])
      self.assertTrue(math.isnan(row['return']))
      self.assertTrue(math.isfinite(row['loss']))
    self.assertNotEmpty(list(folder.summaries.glob('events*')))

  @pytest.mark.long
  def test_actors_get_the_target_network_at_its_start_and_at_every_update(self):
    self.start()
    initial = [v.numpy() for v in self.experiment(1).make_agent().target.variables]
    variables = self.experiment(1).make_agent().target.variables
    channel = self.replay.weights(variables)
    self.feed(1)
    self.training(self.experiment(1)).train()
    self.assertEqual(channel.receive(), 0)
    for variable, value in zip(variables, initial):
      np.testing.assert_array_equal(variable, value)
    self.feed(2)
    self.training(self.experiment(3), self.folder).train()
    self.assertEqual(channel.receive(), 2)
    changes = [np.abs(v - w).max() for v, w in zip(variables, initial)]
    self.assertGreater(min(changes), 0)
    # A restarted learner publishes the weights that acted when it saved.
    self.feed(1)
    self.training(self.experiment(4), self.folder).train()
    self.assertEqual(channel.receive(), 4)
    saved = self.checkpoint(self.folder)
    for variable in variables:
      self.assertTrue(any(np.array_equal(variable, value) for name, value
                          in saved.items() if name.startswith('agent/target')))

  @pytest.mark.medium
  def test_a_server_that_comes_back_is_told_of_the_end(self):
    self.start()
    stop = []
    training = self.training(self.experiment(1), should_stop=lambda: bool(stop))
    with mock.patch.object(training, '_publish') as publish:
      publish.side_effect = [server_lost.ServerLost('gone'), None]
      self.assertTrue(training._announce_end())
      self.assertEqual(publish.call_count, 2)
      def gone(**_):
        stop.append(True)
        raise server_lost.ServerLost('gone')
      publish.side_effect = gone
      self.assertFalse(training._announce_end())

  @pytest.mark.medium
  def test_each_worker_waits_until_its_inference_server_has_told_its_actors(self):
    self.start()
    training = self.training(self.experiment(1))
    with mock.patch.multiple(
        training, _is_chief=False, _inference=mock.MagicMock(), train=lambda: True):
      self.assertTrue(training.run())
      training._inference.join.assert_called_once_with()
    self.assertFalse(self.folder.done.exists())

  @pytest.mark.medium
  def test_a_checkpoint_between_two_logs_has_the_steps_of_all_workers(self):
    self.start()
    self.feed(3)
    experiment = self.experiment(3)
    self.assertEqual((experiment.log_period, experiment.checkpoints.period), (2, 3))
    training = self.training(experiment)
    training._meets = True  # As one of several workers, which count when they meet.
    self.assertTrue(training.train())
    self.assertEqual(
        self.checkpoint(self.folder)['environment_steps/.ATTRIBUTES/VARIABLE_VALUE'],
        3 * _STEPS_A_BATCH)

  @pytest.mark.long
  def test_a_learner_that_takes_no_step_logs_once_what_it_waits_for(self):
    self.start(with_server=True)

    def stalls(log_line, stall_seconds=3):
      def reported():
        return [line for line in logs.output if 'no usable unroll for' in line]
      with self.assertLogs(level='WARNING') as logs:
        training = self.training(
            self.experiment(100, stall_seconds=stall_seconds, max_age=2),
            should_stop=lambda: (
                reported() and training._watchdog.seconds > stall_seconds + 2))
        training.train()
      lines = reported()
      self.assertLen(lines, 1)
      self.assertRegex(lines[0], log_line)

    stalls(r'learner: no usable unroll for \d s, at learner step 0: it waits for actors, '
           'which send nothing; 0 unrolls in the queue, 0 refused since the last step, weights of '
           'step 0 published$')
    time.sleep(2)  # The previous learner's stream ends.
    self.feed(2, target_step=np.int64(7))
    stalls('waits for actors, whose unrolls are too old or not newer than seen; '
           '0 unrolls in the queue, 4 refused since the last step', stall_seconds=5)
    self.server.stop()
    stalls('waits for the server at .*, which does not answer')

  # Whether its metrics are to be logged, or the run is at its end and saved.
  @parameterized.parameters(dict(log_period=1), dict(log_period=100))
  @pytest.mark.medium
  def test_a_loss_that_is_not_finite_stops_the_run(self, **settings):
    self.start()
    self.feed(3)
    self.feed(1, reward=np.full(_E, np.nan, np.float32))
    training = self.training(self.experiment(4, target_update_period=50, **settings))
    with self.assertRaisesRegex(learner.Diverged, 'step 4: .*loss = nan.*ckpt-3$'):
      training.run()
    self.assertIn('at learner step 4', self.folder.diverged.read_text(encoding='utf-8'))
    self.assertFalse(self.folder.done.exists())
    self.assertEqual(self.saved_steps(self.folder)[-1], 3)
    for value in self.checkpoint(self.folder).values():
      self.assertTrue(np.isfinite(value).all())


if __name__ == '__main__':
  absltest.main()
