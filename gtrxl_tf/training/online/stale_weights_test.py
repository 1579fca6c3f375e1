"""Tests that a run survives a server with other weights than the learner's, or none.

The server has its own process, which is killed and starts again with nothing. The
learner is real. The actor is a thread that never pauses and acts with whatever weights
the server holds, so that the queue is never empty.
"""

import functools
import multiprocessing
import pathlib
import threading
import time

from absl.testing import absltest
import numpy as np
import portpicker
import pytest
import reverb
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.agents import vmpo
from gtrxl_tf.environments import t_maze
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import torsos
from gtrxl_tf.replay import reverb_writer
from gtrxl_tf.replay import server as server_lib
from gtrxl_tf.replay import server_lost
from gtrxl_tf.replay import weights
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import trainer as training_lib
from gtrxl_tf.training.online import experiment
from gtrxl_tf.training.online import trainer

_T, _E, _ITEMS = 4, 2, 2
_MAX_AGE = 12
_DEADLINE_SECONDS = 240


def _network(action_spec):
  return actor_critic.ActorCritic(
      action_spec, torsos.VectorTorso((4,)), cores.Memoryless(1, 4), head_units=4)


def _serve(port, row_spec, shapes, ready):
  server = server_lib.serve(
      port, row_spec, _T, 0, _ITEMS, [tf.Variable(tf.zeros(x)) for x in shapes])
  ready.set()
  server.wait()


class StaleWeightsTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.deadline = time.time() + _DEADLINE_SECONDS
    self.experiment = experiment.OnlineExperiment(
        environment=lambda seed: t_maze.TMaze(3, seed=seed), network=_network,
        agent=functools.partial(vmpo.VMPOAgent, target_update_period=5),
        environment_steps=1_000_000, unroll_length=_T, batch_size=_ITEMS * _E,
        environments_per_actor=_E, max_age=_MAX_AGE,
        checkpoints=checkpoints.Settings(period=10_000),
        stall_seconds=90)
    self.temporary = pathlib.Path(self.create_tempdir().full_path)
    self.folder = run_folder.RunFolder(self.temporary / 'run')
    self.port = portpicker.pick_unused_port()
    self.address = f'localhost:{self.port}'
    self.start_server()
    self.stop_acting = threading.Event()
    actor = threading.Thread(target=self.act)
    actor.start()
    self.addCleanup(actor.join)
    self.addCleanup(self.stop_acting.set)

  def start_server(self):
    context = multiprocessing.get_context('spawn')
    ready = context.Event()
    shapes = [v.shape.as_list() for v in self.experiment.acting_network.variables]
    self.server = context.Process(target=_serve, daemon=True, args=(
        self.port, self.experiment.row_spec(), shapes, ready))
    self.server.start()
    self.addCleanup(self.server.join)
    self.addCleanup(self.server.kill)
    self.assertTrue(ready.wait(240))

  def restart_server(self):
    self.server.kill()
    self.server.join()
    self.start_server()

  def act(self):
    spec = self.experiment.row_spec()
    row = tf.nest.map_structure(
        lambda x: np.zeros(x.shape, x.dtype.as_numpy_dtype), spec)._replace(
            step_type=np.ones(_E, np.int32),
            episode_return=np.full(_E, np.nan, np.float32),
            episode_success=np.full(_E, np.nan, np.float32))
    writer = reverb_writer.ReverbWriter(reverb.Client(self.address), spec, _T, 0)
    variables = [tf.Variable(v) for v in self.experiment.acting_network.variables]
    while not self.stop_acting.is_set():
      try:
        channel = weights.WeightsChannel(self.address, variables)
        target_step = None
        while target_step is None and not self.stop_acting.is_set():
          target_step = channel.receive()
        writer.open()
        while not self.stop_acting.is_set():
          step = channel.receive()
          target_step = target_step if step is None else step
          while not writer.append(row._replace(target_step=np.int64(target_step))):
            pass
          while not writer.wait(100) and not self.stop_acting.is_set():
            pass
      except server_lost.ServerLost:
        time.sleep(0.05)
    writer.close()

  def train(self, script):
    """Trains while `script(steps)` runs in a thread, until it ends or time is up.

    `steps()` returns the learner's step. Returns the step at which training ended.
    """
    finished = threading.Event()
    training = trainer.OnlineTrainer(
        self.experiment, training_lib.Process(
            self.folder, tf.distribute.get_strategy(),
            lambda: finished.is_set() or time.time() > self.deadline, self.address))

    def run():
      script(lambda: training.step)
      finished.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    training.train()
    return training.step

  def wait_for(self, steps, goal):
    while steps() < goal and time.time() < self.deadline:
      time.sleep(0.01)

  @pytest.mark.long
  def test_a_server_without_weights_gets_the_newest_again(self):
    goal = None

    def script(steps):
      nonlocal goal
      self.wait_for(steps, 10)
      self.restart_server()
      goal = steps() + 50
      self.wait_for(steps, goal)

    self.assertGreaterEqual(self.train(script), goal)

  @pytest.mark.long
  def test_a_server_with_newer_weights_gets_the_older_ones_of_the_learner(self):
    self.train(lambda steps: self.wait_for(steps, 10))  # Saves when it ends.
    saved = run_folder.RunFolder(self.temporary / 'copy')
    self.folder.root.rename(saved.root)
    self.train(lambda steps: self.wait_for(steps, 10 + 3 * _MAX_AGE))
    self.folder = saved
    goal = None

    def script(steps):
      nonlocal goal
      goal = steps() + 50
      self.wait_for(steps, goal)

    self.assertGreaterEqual(self.train(script), goal)


if __name__ == '__main__':
  absltest.main()
