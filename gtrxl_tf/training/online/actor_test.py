"""Tests of actor.py: learner and actor compute the same from an unroll."""

# pylint: disable=protected-access

import itertools
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import dm_env
import numpy as np
import pytest
import tensorflow as tf
import tree

from gtrxl_tf.environments import t_maze
from gtrxl_tf.replay import replay_testing
from gtrxl_tf.settings import seeds
from gtrxl_tf.training.online import acting_testing
from gtrxl_tf.training.online import actor as actor_lib
from gtrxl_tf.training.online import unroll_stream

_CORES, _E = acting_testing.CORES, acting_testing.E
_experiment = acting_testing.experiment
_waiting_experiment = acting_testing.waiting_experiment


class ActorTest(acting_testing.ActingTestCase):

  def pad_if(self, padded):
    """Whether the actor's policy has a row more than there are environments."""
    self.enter_context(mock.patch.object(
        actor_lib, 'MIN_ROWS', _E + padded))

  @pytest.mark.long
  def test_continuous_actions_are_stored_as_drawn_and_clipped_for_the_task(self):
    self.start(_experiment(_CORES['trxl'], acting_testing.Reach))
    outside = 0
    for batch in itertools.islice(self.batches(), 3):
      self.assert_learner_agrees(batch)
      move = batch.action['move'].numpy()
      outside += np.sum(np.abs(move) > 1)
      # The task shows the action that it was given, so rows 0 .. T-1 hold the actions
      # before them.
      given = np.clip(5 + 5 * move, 0, 10)
      seen = batch.observation.numpy()[..., :2]
      acted = ~batch.is_first()[:, batch.memory_length:].numpy()
      np.testing.assert_allclose(seen[acted], given[acted], rtol=1e-5, atol=1e-5)
    self.assertGreater(outside, 3)

  @pytest.mark.medium
  def test_masked_arrays_of_integers_and_mixed_observations(self):
    self.pad_if(True)
    self.start(_experiment(_CORES['trxl'], acting_testing.Cards, torso=lambda: None,
                           normalize_observations=True, max_head_start=3))
    taken, steps = set(), set()
    for i, batch in enumerate(itertools.islice(self.batches(), 6)):
      if not i:
        self.publish(step=1)  # With other statistics of observations.
      steps.add(batch.target_step.numpy().item())
      self.assert_learner_agrees(batch)
      mask = batch.observation['action_mask'].numpy()
      acting = mask[:, :-1].any(axis=-1)
      masked = batch.policy.logits.numpy() < -1e8
      np.testing.assert_array_equal(masked[acting], ~mask[:, :-1][acting].astype(bool))
      self.assertFalse(masked[~acting].any())
      taken |= set(map(tuple, batch.action.numpy()[:, 1:][acting].tolist()))
    self.assertLessEqual(max(first for first, _ in taken), 2)
    self.assertGreaterEqual(min(min(pair) for pair in taken), 1)
    self.assertGreater(len(taken), 3)
    self.assertEqual(steps, {0, 1})

  @pytest.mark.medium
  def test_tasks_of_the_environments_are_written(self):
    self.start(_experiment(_CORES['memoryless'], acting_testing.maze_of_length,
                           tasks={'length': (3, 4, 5)}))
    for batch in itertools.islice(self.batches(), 2):
      np.testing.assert_array_equal(batch.task, [[0], [1], [2]])

  @parameterized.parameters(('trxl', False), ('lstm', True))
  @pytest.mark.medium
  def test_the_learner_computes_the_actors_logits(self, core, padded):
    self.check_logits(core, padded)

  @parameterized.parameters(('trxl', True), ('trxl_long_memory', False), ('lstm', False),
                            ('memoryless', False))
  @pytest.mark.long
  def test_the_learner_computes_the_logits_of_other_actors(self, core, padded):
    self.check_logits(core, padded)

  def check_logits(self, core, padded):
    self.pad_if(padded)
    self.start(_experiment(_CORES[core]))
    batches = self.batches()
    resets = 0
    for batch in itertools.islice(batches, 6):
      self.assert_learner_agrees(batch)
      resets += np.sum(batch.is_first()[:, batch.memory_length + 1:-1])
    self.assertGreater(resets, 6)
    # Also when its memory was computed with other weights than those that act.
    self.publish(step=1)
    for step in (1, 2):
      while batch.target_step.numpy().item() < step:
        batch = next(batches)
        self.assert_learner_agrees(batch)
      self.publish(step + 1)
      for batch in itertools.islice(batches, 3):
        self.assert_learner_agrees(batch)
    self.assertEqual(self.ledger.duplicate, 0)

  @replay_testing.needs_reverb
  @pytest.mark.long
  def test_an_actor_reconnects_to_a_restarted_server(self):
    self.start(_experiment(_CORES['trxl_long_memory']), reverb=True)
    batches = self.batches()
    for batch in itertools.islice(batches, 3):
      self.assert_learner_agrees(batch)
    batches.close()
    self.server.stop()
    self.start_server()
    for step in (1, 2):
      self.publish(step)
    for batch in itertools.islice(self.batches(), 6):
      self.assert_learner_agrees(batch)
    self.assertEqual(batch.target_step.numpy().item(), 2)

  @pytest.mark.medium
  def test_an_actor_waits_for_newer_weights_if_told(self):
    self.check_waiting('memoryless')

  @pytest.mark.long
  def test_an_actor_with_a_memory_waits_for_newer_weights_if_told(self):
    self.check_waiting('trxl')

  def check_waiting(self, core):
    self.start(_waiting_experiment(core, 1))
    self.assertEqual(self.steps_of_the_next(1), [0])
    for step in (1, 2):
      self.publish(step)
      self.assertEqual(self.steps_of_the_next(1), [step])
    # A learner that is started again may publish weights of an earlier step, or the same.
    for _ in range(2):
      self.publish(step=1)
      self.assertEqual(self.steps_of_the_next(1), [1])
    self.assertEqual(self.ledger.duplicate, 0)

  @pytest.mark.medium
  def test_an_actor_does_not_wait_forever_for_newer_weights(self):
    with mock.patch.object(unroll_stream, '_MAX_SECONDS_FOR_WEIGHTS', 0.2):
      self.start(_waiting_experiment('memoryless', 1))
      with self.assertLogs(level='WARNING') as logs:
        for batch in itertools.islice(self.batches(), 3):
          self.assert_learner_agrees(batch)
    self.assertRegex('\n'.join(logs.output), 'no newer weights for 0 s; acting with those '
                     'of learner step 0')

  @replay_testing.needs_reverb
  @pytest.mark.long
  def test_an_actor_that_waits_logs_what_it_waits_for(self):
    def said(line):
      deadline = time.time() + 30
      while time.time() < deadline:
        if any(line in x for x in logs.output):
          return
        time.sleep(0.1)
      self.fail(f'{line!r} is not in {logs.output}')

    with self.assertLogs('absl', level='WARNING') as logs:
      self.start(_experiment(_CORES['memoryless'], stall_seconds=1.0), reverb=True)
      said(f' s, with weights of learner step 0 from the server at localhost:{self.port}: '
           'it waits for the learner, which takes nothing from the queue')
      next(self.batches())  # The actor continues; then the server is gone.
      self.server.stop()
      said(f'the Reverb server at localhost:{self.port} does not answer')
    self.assertRegex(logs.output[0], r'actor: no unroll for \d s, with')

  @parameterized.parameters(None, 1)
  @pytest.mark.long
  def test_an_actor_stops_when_told_while_it_waits(self, limit):
    # Without a limit, it waits for the queue.
    self.start(_waiting_experiment('memoryless', limit) if limit
               else _experiment(_CORES['memoryless']))
    next(self.batches())
    time.sleep(0.3)
    self.stop.set()
    self.thread.join(timeout=60)
    self.assertFalse(self.thread.is_alive())

  @parameterized.parameters(
      (None, r'^environment 0, episode 1, step \d+: RuntimeError: the maze fell in$'),
      (np.nan, '^environment 0: reward = nan: expected finite'))
  @pytest.mark.medium
  def test_an_environments_error_is_not_taken_for_a_servers(self, reward, message):

    class Broken(t_maze.TMaze):

      def _step(self, action) -> dm_env.TimeStep:
        if reward is None:
          raise RuntimeError('the maze fell in')
        return super()._step(action)._replace(reward=reward)

    self.start_replay(_experiment(
        _CORES['memoryless'], lambda seed: Broken(corridor_length=3, seed=seed)))
    actor = acting_testing.make_actor(
        self.experiment, self.address, 0, should_stop=lambda: False)
    with self.assertRaisesRegex(actor_lib.ActingFailed, message):
      actor.run()

  @pytest.mark.medium
  def test_an_error_of_the_program_is_not_taken_for_a_lost_server(self):
    self.start_replay(_experiment(_CORES['memoryless']))
    deadline = time.time() + 30  # A bound, in case it tries again.
    actor = acting_testing.make_actor(self.experiment, self.address, 0,
                                      should_stop=lambda: time.time() > deadline)
    actor._warm_up()
    with mock.patch.object(actor, '_warm_up'), mock.patch.object(
        actor._rollout, 'step', side_effect=RuntimeError('a fault of the policy')):
      with self.assertRaisesRegex(RuntimeError, '^a fault of the policy$'):
        actor.run()
    with mock.patch.object(actor._stream, 'row', side_effect=RuntimeError('a fault')):
      with self.assertRaisesRegex(RuntimeError, '^a fault$'):
        actor.run()

  @pytest.mark.medium
  def test_every_start_of_every_actor_of_every_run_draws_its_own_numbers(self):
    drawn = []
    now = time.time_ns()
    for seed, index, start in (
        (0, 0, 0), (0, 1, 0), (0, 0, now), (0, 0, now + 1), (1, 0, 0), (0, 0, 0)):
      experiment = _experiment(_CORES['memoryless'], num_actors=2, seed=seed)
      actor = acting_testing.make_actor(
          experiment, replay_testing.memory(self, experiment), index,
          should_stop=lambda: False, start=start)
      for variable in actor._network.variables:
        variable.assign(tf.zeros_like(variable))  # All actions are equally likely.
      actor._rollout.read_variables()
      steps = [actor._rollout.step() for _ in range(12)]
      drawn.append((np.stack([done.action for _, done in steps]).tobytes(),
                    np.stack([seen.observation for seen, _ in steps]).tobytes()))
    for column in zip(*drawn):
      self.assertLen(set(column), 5)
      self.assertEqual(column[0], column[-1])


class SlowTest(absltest.TestCase):

  def test_the_first_unrolls_of_a_slow_environment_are_counted(self):
    actor, now = mock.Mock(_counts={'unrolls': 0}), 0.0
    actor._experiment = mock.Mock(
        environments_per_actor=200, unroll_length=19, overlap=0)
    actor._writer = mock.Mock(starts_unroll=False)
    for unrolls in range(2):
      actor._counts['unrolls'] = unrolls
      complete = iter([False] * 19 + [True])

      def step():
        nonlocal now
        now += 7.0
        return next(complete)

      actor._step = step
      with mock.patch.object(actor_lib.time, 'monotonic', lambda: now), mock.patch.object(
          actor_lib.logging, 'warning') as warning:
        actor_lib.Actor._unroll(actor)
      said = [call.args[0] % call.args[1:] for call in warning.call_args_list]
      self.assertEqual(said, [] if unrolls else [
          f'actor: {done} of 4,000 observations of its first unrolls, 28.6 a second'
          for done in ('1,000', '1,800', '3,600')])


class RolloutTest(parameterized.TestCase):

  @parameterized.product(core=['trxl', 'lstm'], num=[1, 2])
  @pytest.mark.medium
  def test_it_acts_as_the_policy_does(self, core, num):
    experiment = _experiment(_CORES[core])
    # Greedy, because XLA draws other samples from a seed.
    policy = experiment.make_policy(
        experiment.acting_network, greedy=True, with_record=True)
    rollout = actor_lib.make_rollout(
        policy, experiment.make_environments(num, seeds.Stream.ACTING),
        tf.constant([7, 0]))
    rollout.warm_up()  # Changes nothing.
    state = policy.get_initial_state(num)
    for step in range(12):  # Moves the cache's windows several times.
      seen, done = rollout.step()
      expected = policy.action(dm_env.TimeStep(*tree.map_structure(tf.constant, (
          seen.step_type, seen.reward, seen.discount, seen.observation))),
                               state, seed=tf.constant([7, step]))
      state = expected.state
      np.testing.assert_array_equal(done.action, expected.action)
      found, seed = rollout.policy_state
      np.testing.assert_array_equal(seed, [7, step + 1])
      tree.map_structure(
          lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5, rtol=1e-5),
          (done.info, tree.map_structure(lambda x: x[:num], found)),
          ((state.previous_action, expected.info), state))


if __name__ == '__main__':
  absltest.main()
