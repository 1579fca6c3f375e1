"""Tests of inference servers and environment hosts: both, replay and learner agree."""

# pylint: disable=protected-access

from concurrent import futures
import itertools
import socket
import threading
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import dm_env
import grpc
import numpy as np
import portpicker
import pytest

from gtrxl_tf.environments import t_maze
from gtrxl_tf.replay import connection
from gtrxl_tf.replay import mapped
from gtrxl_tf.replay import replay_testing
from gtrxl_tf.replay import staleness
from gtrxl_tf.settings import config
from gtrxl_tf.training.online import acting_testing
from gtrxl_tf.training.online import actor as actor_lib
from gtrxl_tf.training.online import batched_policy
from gtrxl_tf.training.online import environment_host
from gtrxl_tf.training.online import inference
from gtrxl_tf.training.online import inference_call
from gtrxl_tf.training.online import placement

_CORES, _E, _T = acting_testing.CORES, acting_testing.E, acting_testing.T
_NUM = 2  # Actors.


def _experiment(core='memoryless', environment=acting_testing.maze, **settings):
  return acting_testing.experiment(
      _CORES[core], environment, **{**dict(num_actors=_NUM, queue_batches=4), **settings})


class InferenceTest(acting_testing.ActingTestCase):
  """Tests of `ActingTestCase` where a server acts for the actors of a host."""

  def start_actor(self):
    self.rpc_port = portpicker.pick_unused_port()
    self.start_inference()
    self.host = self.make_host()
    self.thread = self.start_thread(self.host.run)

  def make_host(self, indices=range(_NUM), experiment=None):
    deadline = time.time() + 400
    return environment_host.EnvironmentHost(
        experiment or self.experiment, f'localhost:{self.rpc_port}', indices,
        lambda: self.stop.is_set() or time.time() > deadline)

  def start_inference(self):
    self.stop_inference = threading.Event()
    stop = self.stop_inference
    self.inference = inference.InferenceServer(
        self.experiment, self.address, self.rpc_port,
        lambda: stop.is_set() or self.stop.is_set())
    self.inference_thread = self.start_thread(self.inference.run)

  @pytest.mark.long
  def test_the_learner_computes_the_servers_logits(self):
    self.check_logits('trxl')

  @parameterized.parameters(
      ('trxl_long_memory',), ('lstm',), ('memoryless',), ('trxl', 'bfloat16', 3e-2))
  @pytest.mark.long
  def test_the_learner_computes_the_logits_of_others(self, *settings):
    self.check_logits(*settings)

  def check_logits(self, core, transfer_dtype='float32', tolerance=1e-5):
    self.tolerance = tolerance
    self.start(_experiment(core, transfer_dtype=transfer_dtype))
    writers, steps, resets = set(), [], 0
    for i, batch in enumerate(itertools.islice(self.batches(), 24)):
      self.assert_learner_agrees(batch)
      resets += np.sum(batch.is_first()[:, batch.memory_length + 1:-1])
      writers.add(batch.unroll_id.numpy().item() >> 32)
      steps.append(batch.target_step.numpy().item())
      if i % 4 == 3:
        self.publish(i)
    self.assertGreater(resets, 24)
    self.assertLen(writers, _NUM)
    self.assertGreater(len(set(steps)), 3)
    self.assertEqual(self.ledger.duplicate, 0)
    counts = self.inference._policy.counts
    self.assertGreater(counts['rows'], _E * counts['batches'])

  @pytest.mark.long
  def test_masks_continuous_actions_and_mixed_observations(self):
    self.start(_experiment(
        'trxl', acting_testing.Cards, torso=lambda: None, normalize_observations=True,
        max_head_start=3, tasks=None))
    for batch in itertools.islice(self.batches(), 4):
      self.assert_learner_agrees(batch)

  @pytest.mark.medium
  def test_each_actor_plays_its_tasks(self):
    self.start(_experiment(
        environment=acting_testing.maze_of_length, tasks={'length': (3, 4)}))
    tasks = {tuple(batch.task.numpy().ravel())
             for batch in itertools.islice(self.batches(), 8)}
    self.assertEqual(tasks, {(0, 1, 0), (1, 0, 1)})

  @pytest.mark.medium
  def test_actors_wait_for_newer_weights_if_told(self):
    self.start(acting_testing.waiting_experiment('lstm', 2, num_actors=_NUM))
    for step in range(3):
      if step:
        self.publish(step)
      self.assertEqual(self.steps_of_the_next(_NUM), [step] * _NUM)

  @pytest.mark.long
  def test_actors_begin_new_episodes_with_another_server(self):
    self.start(_experiment('trxl_long_memory'))
    batches = self.batches()
    for batch in itertools.islice(batches, 4):
      self.assert_learner_agrees(batch)
    self.stop_inference.set()
    self.inference_thread.join()
    self.start_inference()
    self.publish(step=1)
    while batch.target_step.numpy().item() < 1:
      batch = next(batches)
      self.assert_learner_agrees(batch)
    for batch in itertools.islice(batches, 6):
      self.assert_learner_agrees(batch)
    self.assertEqual(self.host._counts['reconnections'], 1)
    self.assertEqual(self.ledger.duplicate, 0)

  @replay_testing.needs_reverb
  @pytest.mark.long
  def test_a_server_reconnects_to_a_restarted_reverb_server(self):
    self.start(_experiment('trxl_long_memory'), reverb=True)
    batches = self.batches()
    for batch in itertools.islice(batches, 3):
      self.assert_learner_agrees(batch)
    batches.close()
    self.server.stop()
    self.start_server()
    for step in (1, 2):
      self.publish(step)
    for batch in self.batches():
      self.assert_learner_agrees(batch)
      if batch.target_step.numpy().item() == 2:
        break
    self.assertEqual(self.host._counts['reconnections'], 0)  # Its episodes went on.

  def refused(self, run):
    """Runs a host in this thread until it raises an error; returns the error."""
    with self.assertRaises((actor_lib.ActingFailed, config.ConfigError)) as raised:
      run()
    return str(raised.exception)

  @pytest.mark.medium
  def test_errors_say_what_is_wrong(self):
    self.start(_experiment())
    next(self.batches())
    host = self.make_host()
    other = grpc.server(futures.ThreadPoolExecutor(1))
    host._address = f"localhost:{other.add_insecure_port('localhost:0')}"
    other.start()
    self.addCleanup(other.stop, None)
    self.assertRegex(self.refused(host.run), (
        f'^no inference server, but something else answers at {host._address}: .+$'))
    self.assertEqual(
        self.refused(self.make_host([_NUM]).run),
        'actor 2 is one too many for the inference server, which acts for the 2 actors '
        '[0, 1]')

    class Broken(t_maze.TMaze):

      def _step(self, action) -> dm_env.TimeStep:
        raise RuntimeError('the maze fell in')

    broken = _experiment(environment=lambda seed: Broken(corridor_length=3, seed=seed))
    self.stop.set()  # Also the server, which has no room for other actors.
    self.thread.join()
    self.inference_thread.join()
    self.stop.clear()
    self.start_inference()
    self.assertRegex(self.refused(self.make_host(experiment=broken).run),
                     '^environment 0, episode 1, step 1: RuntimeError: the maze fell in')

  @pytest.mark.medium
  def test_a_host_with_other_settings_is_refused(self):
    experiment = _experiment()
    experiment.settings = {'TMaze.corridor_length': '3', 'Inference.max_batch': '3'}
    self.start(experiment)
    next(self.batches())
    other = _experiment()
    other.settings = {'TMaze.corridor_length': '4', 'Inference.max_batch': '6'}
    self.assertEqual(
        self.refused(self.make_host(experiment=other).run),
        f'the inference server at localhost:{self.rpc_port} has other settings: '
        'TMaze.corridor_length = 3 (here 4); expected the same in all parts of a run')


class CallsTest(absltest.TestCase):
  """Tests of a server's record of its actors, without threads."""

  def setUp(self):
    super().setUp()
    self.experiment = _experiment(queue_batches=100)
    address = replay_testing.memory(self, self.experiment)
    self.replay = connection.connect(address, self.experiment.layout)
    ledger = staleness.Ledger(max_age=1000)
    ledger.learner_step = 100  # Newer weights are those of a killed learner.
    self.queue = self.replay.queue(1, ledger)
    self.server = inference.InferenceServer(self.experiment, address, 1, lambda: False)
    self.channel, self.received = (
        self.replay.weights(self.experiment.acting_network.variables) for _ in range(2))
    self.sockets = {}
    self.take_weights(0)

  def take_weights(self, step):
    """Publishes weights of a learner step; returns whether the server takes them."""
    self.channel.publish(step)
    self.server._next_look = 0
    self.server._take_weights(self.received)
    return self.server._target_step == step

  def connect(self, index):
    """Makes a connection; returns why not."""
    ours, theirs = socket.socketpair()
    self.addCleanup(ours.close)
    self.addCleanup(theirs.close)
    sizes = [mapped.size(specs(self.experiment)) for specs in (
        inference_call.question, inference_call.answer)]
    refusal = ''.join(self.server._claim(index, sizes, theirs))
    if not refusal:
      self.sockets[index] = ours, theirs
    return refusal

  def call(self, index, times=1):
    """Makes calls and gets their answers."""
    if index not in self.sockets:
      self.assertEqual(self.connect(index), '')
    specs = inference_call.question(self.experiment)
    for _ in range(times):
      self.server._take(index, self.sockets[index][1], bytearray(mapped.size(specs)))
      while self.server._waiting():
        self.server._act()
      inference_call.receive(self.sockets[index][0], mapped.size(
          inference_call.answer(self.experiment)))

  def assert_queued(self, steps):
    """Takes the queued unrolls; checks the learner steps whose weights acted."""
    self.assertEqual(
        [self.queue.next(lambda: True).target_step.numpy().item() for _ in steps], steps)
    self.assertEqual(self.queue.length(), 0)

  def test_an_actor_has_one_process(self):
    self.call(0)
    self.assertEqual(self.connect(0), 'another process plays actor 0')
    with mock.patch.object(inference, '_SILENT_SECONDS', 0):
      self.assertEqual(self.connect(0), '')  # It takes the place of one that is gone.
    self.call(0, _T)
    self.assert_queued([])  # The unroll of the other is lost.
    self.call(0)
    self.assert_queued([0])
    self.call(1)
    self.assertStartsWith(self.connect(2), 'actor 2 is one too many for the inference ')
    self.assertIn('expected [', self.server._claim(0, [1, 2], None)[0])

  def test_an_unroll_has_one_policy_and_weights_wait_for_the_oldest(self):
    self.call(0, 3)
    self.assertTrue(self.take_weights(10))
    self.call(1, _T + 1)
    self.assert_queued([10])
    self.assertFalse(self.take_weights(20))
    self.call(0, _T - 3)  # Its last action; the next call completes it.
    self.assertTrue(self.take_weights(30))
    self.call(0)
    self.assert_queued([0])
    self.call(0, _T)
    self.assert_queued([30])

  def test_an_actor_that_no_longer_calls_loses_its_unroll(self):
    self.call(0, 3)
    self.assertTrue(self.take_weights(10))
    self.assertFalse(self.take_weights(20))
    with mock.patch.object(inference, '_SILENT_SECONDS', 0):
      self.assertTrue(self.take_weights(30))
    self.assertEqual(self.server._counts['unrolls_given_up'], 1)
    self.call(0, _T)
    self.assert_queued([])
    self.call(0)
    self.assert_queued([30])


class BatchSizesTest(parameterized.TestCase):

  @parameterized.parameters(
      (32, 256, [32, 64, 128, 256]), (32, 100, [32, 64, 96]), (3, 9, [3, 6, 9]),
      (1, 5, [2, 5]), (1, 1, [2]), (8, 8, [8]))
  def test_they_are_multiples_of_a_request_up_to_the_most(self, rows, most, expected):
    self.assertEqual(batched_policy._batch_sizes(rows, most), expected)


class PlacementTest(absltest.TestCase):

  def test_processes_and_servers_share_the_actors(self):
    settings = placement.Inference(num_servers=2, actors_per_process=3)
    self.assertEqual(settings.num_processes(10), 4)
    self.assertEqual(
        [list(settings.actors_of(i, 10)) for i in range(4)],
        [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]])
    self.assertEqual(settings.actors_per_server(10), 6)
    self.assertEqual(placement.Inference().actors_per_server(1), 1)
    self.assertEqual(_experiment(inference=settings).description, (
        '1 learner, 2 actor(s) of 3 environments, for which 2 inference server(s) act'))
    with self.assertRaisesRegex(config.ConfigError, '^--index=4: expected less than 4, '):
      settings.actors_of(4, 10)

  def test_a_batch_has_room_for_the_environments_of_an_actor(self):
    with self.assertRaisesRegex(config.ConfigError, (
        'Inference.max_batch = 2: expected at least .*environments_per_actor = 3')):
      _experiment(inference=placement.Inference(max_batch=_E - 1))


if __name__ == '__main__':
  absltest.main()
