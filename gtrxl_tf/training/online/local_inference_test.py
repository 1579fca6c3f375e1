"""Tests of `LocalInference`: a learner that acts, on another device of its process."""

# pylint: disable=protected-access

import socket
import threading
import time
from unittest import mock

from absl.testing import absltest
import portpicker
import pytest
import tensorflow as tf

from gtrxl_tf import devices_testing
from gtrxl_tf.replay import memory_replay
from gtrxl_tf.replay import replay_testing
from gtrxl_tf.settings import config
from gtrxl_tf.training import devices
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import trainer as trainer_lib
from gtrxl_tf.training.online import acting_testing
from gtrxl_tf.training.online import environment_host
from gtrxl_tf.training.online import trainer as online_trainer

devices_testing.split_cpu(2)

_BATCHES = 24


class LocalInferenceTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    if len(tf.config.list_logical_devices('CPU')) < 2:
      self.skipTest('TensorFlow had started before the CPU could be split.')
    num = 2 * acting_testing.E
    self.experiment = acting_testing.experiment(
        acting_testing.CORES['trxl'], num_actors=2, batch_size=num,
        environment_steps=round(0.8 * _BATCHES * num * acting_testing.T))
    self.rpc_port = portpicker.pick_unused_port()
    self.deadline = time.time() + 400
    self.folder = run_folder.RunFolder(self.create_tempdir().full_path)
    self.trainer = online_trainer.OnlineTrainer(
        self.experiment, trainer_lib.Process(
            self.folder, devices.make_strategy('mirrored', acts='CPU:1'),
            lambda: time.time() > self.deadline,
            replay_testing.memory(self, self.experiment),
            inference=trainer_lib.InferenceAddress(self.rpc_port, device='CPU:1')))

  @pytest.mark.long
  def test_one_device_acts_and_the_other_learns(self):
    host = environment_host.EnvironmentHost(
        self.experiment, f'localhost:{self.rpc_port}', range(2),
        lambda: time.time() > self.deadline)
    thread = threading.Thread(target=host.run)
    thread.start()
    published, publish = {}, memory_replay.Weights.publish

    def record(channel, step, finished=False):
      published[step] = [
          v.numpy() for v in self.trainer._agent.acting_network.variables]
      return publish(channel, step, finished)

    with mock.patch.object(memory_replay.Weights, 'publish', record):
      self.assertTrue(self.trainer.run())
    thread.join()
    self.assertTrue(host._finished)
    self.assertTrue(self.folder.done.exists())
    ledger = self.trainer._ledger
    self.assertLessEqual(ledger.oldest, ledger.max_age)
    self.assertEqual(ledger.duplicate, 0)
    server = self.trainer._inference._server
    acts = {x.device for policy in server._policy._policies for x in policy.variables}
    learns = {x.device for x in self.trainer._agent.online.trainable_variables}
    self.assertRegex(str(acts), 'CPU:1')
    self.assertNotRegex(str(learns), 'CPU:1')
    self.assertLen(acts, 1)
    # It had the learner's weights, not always the last ones: old unrolls may still act.
    step = server._target_step
    self.assertGreater(step, _BATCHES // 2)
    for mine, theirs in zip(
        server._policy._policies[server._loaded % 2].variables, published[step]):
      tf.debugging.assert_equal(mine.numpy(), theirs)

  @pytest.mark.long
  def test_an_error_of_the_server_ends_the_learner(self):
    with socket.socket() as taken:
      taken.bind(('', self.rpc_port))
      taken.listen()
      with self.assertRaisesRegex(config.ConfigError, 'cannot be listened on'):
        self.trainer.run()


if __name__ == '__main__':
  absltest.main()
