"""Tests of inference servers and environment hosts: RPC, Reverb and learner agree."""

# pylint: disable=protected-access

import itertools
import threading

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import portpicker
import pytest

from gtrxl_tf.training.online import acting_testing
from gtrxl_tf.training.online import environment_host
from gtrxl_tf.training.online import inference

_CORES, _T, _E = acting_testing.CORES, acting_testing.T, acting_testing.E
_experiment = acting_testing.experiment
_NUM = 2  # Actors.


class InferenceTest(acting_testing.ActingTestCase):
  """As `ActingTestCase`, but a server acts for a host of two actors."""

  def start(self, experiment=None, core='trxl', num_actors=_NUM, hosts=1, **settings):
    self.num_hosts = hosts
    super().start(experiment or _experiment(
        _CORES[core], num_actors=num_actors, queue_batches=2, **settings))

  def start_actor(self):
    self.rpc_port = portpicker.pick_unused_port()
    self.start_inference()
    num = self.experiment.num_actors // self.num_hosts
    self.hosts = [
        environment_host.EnvironmentHost(
            self.experiment, f'localhost:{self.rpc_port}',
            range(i * num, (i + 1) * num), self.stop.is_set)
        for i in range(self.num_hosts)]
    for host in self.hosts:
      self.thread = self.start_thread(host.run)

  def start_inference(self):
    stop = threading.Event()
    self.inference = inference.InferenceServer(
        self.experiment, f'localhost:{self.port}', self.rpc_port,
        lambda: stop.is_set() or self.stop.is_set())
    thread = self.start_thread(self.inference.run)

    def end():
      stop.set()
      thread.join()
    self.end_inference = end

  @parameterized.parameters(*_CORES)
  @pytest.mark.medium
  def test_the_learner_computes_the_servers_logits(self, core):
    self.start(core=core)
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


if __name__ == '__main__':
  absltest.main()
