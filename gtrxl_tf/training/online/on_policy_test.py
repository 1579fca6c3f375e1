"""Actors and a learner that take turns, through shared memory and a server."""

import functools
import os
import threading
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import portpicker
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.agents import ppo
from gtrxl_tf.agents import vmpo
from gtrxl_tf.environments import t_maze
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import torsos
from gtrxl_tf.replay import connection
from gtrxl_tf.replay import replay_testing
from gtrxl_tf.replay import server as server_lib
from gtrxl_tf.replay import shared_memory
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import trainer as training_lib
from gtrxl_tf.training.online import actor as actor_lib
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import trainer as trainer_lib
from gtrxl_tf.training.online import unroll_stream

_T, _E, _BATCHES = 4, 2, 24


class OnPolicyTest(parameterized.TestCase):

  def ages(self, items, num_actors, between_steps=lambda: None, shares=True,
           **settings):
    """Trains, and returns the ages of all unrolls that were trained on.

    Args:
      items: unrolls of a batch, each of all environments of an actor.
      num_actors: actors, in threads of this process.
      between_steps: called before each learner step.
      shares: whether the processes share memory, and use no server.
      **settings: of the experiment.
    """
    experiment = experiment_lib.OnlineExperiment(**{**dict(
        environment=lambda seed: t_maze.TMaze(3, seed=seed),
        network=lambda action_spec: actor_critic.ActorCritic(
            action_spec, torsos.VectorTorso((4,)), cores.Memoryless(1, 4), head_units=4),
        agent=ppo.PPOAgent, unroll_length=_T, batch_size=items * _E,
        environments_per_actor=_E, num_actors=num_actors, batches_per_weights=1,
        # About a fifth of the rows are the first ones of episodes.
        environment_steps=round(0.8 * _BATCHES * items * _T * _E)), **settings})
    if shares:
      descriptor = shared_memory.create(experiment.layout)
      self.addCleanup(os.close, descriptor)
      address = shared_memory.address(descriptor)
    else:
      replay_testing.require_reverb(self)
      port = portpicker.pick_unused_port()
      address = f'localhost:{port}'
      server = server_lib.serve(port, experiment.layout)
      self.addCleanup(server.stop)
    deadline = time.time() + 240
    stop = threading.Event()
    actors = [
        actor_lib.Actor(experiment, connection.connect(address, experiment.layout), i,
                        stop.is_set) for i in range(num_actors)]
    threads = [threading.Thread(target=actor.run) for actor in actors]
    for thread in threads:
      thread.start()
    trainer = trainer_lib.OnlineTrainer(
        experiment, training_lib.Process(
            run_folder.RunFolder(self.create_tempdir().full_path),
            tf.distribute.get_strategy(), lambda: time.time() > deadline, address))
    ages, next_batch = [], trainer._queue.next

    def recorded(*args):
      batch = next_batch(*args)
      ages.extend((trainer.step - batch.target_step.numpy().flatten()).tolist())
      between_steps()
      return batch

    with mock.patch.object(trainer._queue, 'next', recorded):
      self.assertTrue(trainer.train())
    stop.set()
    for thread in threads:
      thread.join()
    self.assertLen(ages, trainer.step * items)
    self.assertGreater(trainer.step, _BATCHES // 2)
    self.refused = trainer._ledger.refused
    return ages

  @parameterized.parameters((1, 1, True), (4, 2, True), (2, 2, False))
  @pytest.mark.medium
  def test_every_unroll_was_acted_by_the_weights_that_are_trained(
      self, items, num_actors, shares):
    self.assertEqual(set(self.ages(items, num_actors, shares=shares)), {0})
    self.assertEqual(self.refused, 0)

  @pytest.mark.medium
  def test_actors_share_the_batches_of_a_target_network(self):
    agent = functools.partial(vmpo.VMPOAgent, target_update_period=3)
    ages = self.ages(2, 3, agent=agent, batches_per_weights=3)
    self.assertEqual(set(ages), {0, 1, 2})
    self.assertEqual(self.refused, 0)

  @pytest.mark.long
  def test_unrolls_of_actors_that_waited_too_long_are_refused(self):
    with mock.patch.object(unroll_stream, '_MAX_SECONDS_FOR_WEIGHTS', 0.05):
      ages = self.ages(2, 2, between_steps=lambda: time.sleep(0.2))
    self.assertEqual(set(ages), {0})
    self.assertGreater(self.refused, 0)


if __name__ == '__main__':
  absltest.main()
