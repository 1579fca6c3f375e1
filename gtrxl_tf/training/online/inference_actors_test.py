"""Tests of inference_actors.py, with a real replay."""

import threading
import time
from unittest import mock

from absl.testing import absltest
import numpy as np
import tree

from gtrxl_tf import environments
from gtrxl_tf.replay import connection
from gtrxl_tf.replay import replay_testing
from gtrxl_tf.replay import staleness
from gtrxl_tf.training.online import acting_testing
from gtrxl_tf.training.online import inference_actors
from gtrxl_tf.training.online import inference_call

_T, _E = acting_testing.T, acting_testing.E


class ActorsTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    experiment = acting_testing.experiment(
        acting_testing.CORES['memoryless'], queue_batches=100, num_actors=6)
    replay = connection.connect(
        replay_testing.memory(self, experiment), experiment.layout)
    ledger = staleness.Ledger(max_age=1000)
    ledger.learner_step = 100  # Newer weights are those of a killed learner.
    self.queue = replay.queue(1, ledger, lambda: False, 60)
    self.row = tree.map_structure(
        lambda x: np.zeros(x.shape, x.dtype.as_numpy_dtype), experiment.row_spec())
    self.seen = environments.BatchedTimeStep(
        *(getattr(self.row, name) for name in environments.BatchedTimeStep._fields))
    self.nothing = [np.zeros(_E, np.int32)]
    self.actors = inference_actors.Actors(experiment, replay, 2, self.nothing)
    self.addCleanup(self.actors.close, False, 0)
    self.actors.connected()
    self.actors.took_weights(0)

  def call(self, index, number, session=7):
    """Makes a call; returns what the answer says, and the actions."""
    one, says, actions = self.actors.claim(index, session, number)
    if one is None:
      return says, actions
    while self.actors.prepare(one, self.seen):
      pass
    self.actors.write(
        one, [np.full(_E, number, np.int32)], self.row.action, self.row.policy,
        self.row.record)
    one.called = None
    return inference_call.ACTED, one.actions

  def calls(self, index, numbers, **session):
    for number in numbers:
      says, actions = self.call(index, number, **session)
      self.assertEqual((says, actions[0][0]), (inference_call.ACTED, number))

  def assert_queued(self, steps):
    """Takes the queued unrolls; checks the learner steps whose weights acted."""
    deadline = time.time() + 30
    self.assertEqual([
        self.queue.next(lambda: time.time() > deadline).target_step.numpy().item()
        for _ in steps], steps)
    time.sleep(0.3)  # Another would be there by now.
    self.assertEqual(self.queue.length(), 0)

  def test_a_call_that_is_made_again_gets_the_same_answer(self):
    for number in range(_T + 1):
      for _ in range(3):
        self.calls(0, [number])
    self.assertEqual(self.actors.counts['calls'], _T + 1)
    self.assert_queued([0])

  def test_a_call_waits_for_the_one_before(self):
    one, _, _ = self.actors.claim(0, 7, 0)
    self.assertIsNotNone(one)
    self.assertEqual(self.call(0, 0)[0], b'the answer to its last call')

  def test_a_call_whose_answer_failed_keeps_no_weights(self):
    one, _, _ = self.actors.claim(0, 7, 0)
    self.actors.prepare(one, self.seen)
    self.actors.took_weights(10)
    with mock.patch.object(inference_actors, '_SILENT_SECONDS', 0):
      self.assertIsNone(self.actors.free_version())
      self.assertFalse(self.actors.has_failed_calls())
      with mock.patch.object(inference_actors, '_FAILED_SECONDS', 0):
        self.assertTrue(self.actors.has_failed_calls())
        self.assertEqual(self.actors.free_version(), 1)

  def test_sessions_are_not_mixed(self):
    self.assertEqual(self.call(0, 5)[0], inference_call.RESET)  # Of another server.
    self.calls(0, [0])
    for number in range(1, _T):  # Another process does not play at the same time.
      self.assertEqual(self.call(0, 0, session=8)[0],
                       b'another process, which plays actor 0')
      self.calls(0, [number])
    with mock.patch.object(inference_actors, '_SILENT_SECONDS', 0):
      self.calls(0, [0], session=8)  # It takes the place of one that is gone.
    self.calls(0, range(1, _T), session=8)
    self.assertEqual(self.call(0, _T, session=7)[0], inference_call.RESET)
    self.assert_queued([])
    self.calls(0, [_T], session=8)
    self.assert_queued([0])

  def test_there_is_room_for_as_many_actors_as_the_run_has(self):
    self.calls(0, [0])
    self.calls(5, [0])
    self.assertStartsWith(self.call(1, 0)[0], inference_call.REFUSED)

  def test_an_unroll_has_one_policy_and_weights_wait_for_the_oldest(self):
    self.calls(0, range(3))
    self.assertEqual(self.actors.free_version(), 0)  # That of the first is 1.
    self.actors.took_weights(10)
    self.calls(1, range(_T + 1))
    self.assert_queued([10])
    self.assertIsNone(self.actors.free_version())
    self.calls(0, range(3, _T - 1))
    self.assertIsNone(self.actors.free_version())
    self.calls(0, [_T - 1])  # Its last action; the next call completes it.
    self.assertEqual(self.actors.free_version(), 1)
    self.calls(0, [_T])
    self.assert_queued([0])
    self.calls(0, range(_T + 1, 2 * _T + 1))
    self.assert_queued([10])

  def test_an_actor_that_no_longer_calls_loses_its_unroll(self):
    self.calls(0, range(3))
    self.actors.took_weights(10)
    self.assertIsNone(self.actors.free_version())
    with mock.patch.object(inference_actors, '_SILENT_SECONDS', 0):
      self.assertEqual(self.actors.free_version(), 1)
    self.assertEqual(self.actors.counts['unrolls_given_up'], 1)
    self.actors.took_weights(20)
    self.calls(0, range(3, _T + 3))
    self.assert_queued([])
    self.calls(0, [_T + 3])
    self.assert_queued([20])

  def test_an_actor_whose_answer_took_long_is_not_silent(self):
    with mock.patch.object(inference_actors, '_SILENT_SECONDS', 1):
      one, _, _ = self.actors.claim(0, 7, 0)
      self.assertEqual(self.actors.prepare(one, self.seen), '')
      time.sleep(1.2)
      self.actors.write(one, self.nothing, self.row.action, self.row.policy,
                        self.row.record)
      one.called = None
      self.actors.took_weights(10)
      self.assertIsNone(self.actors.free_version())

  def test_actors_wait_for_weights_and_a_server_and_learn_of_the_end(self):
    self.actors.disconnected()
    self.assertEqual(self.call(0, 0)[0], inference_actors.NO_SERVER.encode())
    self.actors.connected()
    self.calls(0, range(2))
    self.actors.close(True, 0)
    self.assertEqual(self.call(0, 2)[0], inference_call.FINISHED)

  def test_at_the_end_all_actors_are_told_also_those_not_heard_yet(self):
    began = time.time()
    self.actors.close(True, 60, should_stop=lambda: True)
    waits = threading.Thread(target=self.actors.close, args=(True, 60))
    waits.start()
    for index in range(2):
      time.sleep(0.1)
      self.assertTrue(waits.is_alive())
      self.assertEqual(self.call(index, 9)[0], inference_call.FINISHED)
    waits.join()
    self.assertLess(time.time() - began, 30)


if __name__ == '__main__':
  absltest.main()
