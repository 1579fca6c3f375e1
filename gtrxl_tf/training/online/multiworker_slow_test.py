"""Tests of a learner with two workers, and a queue that repeats unrolls."""

import json
import pathlib

from absl.testing import absltest
import numpy as np
import portpicker
import reverb
import tensorflow as tf

from gtrxl_tf.replay import reverb_replay
from gtrxl_tf.replay import server as server_lib
from gtrxl_tf.training.offline import multiworker_testing as offline_testing
from gtrxl_tf.training.online import multiworker_testing

_SECONDS = 240


class MultiworkerSlowTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.create_tempdir().full_path) / 'run'
    self.experiment = multiworker_testing.experiment(1)
    self.row = tf.nest.map_structure(
        lambda spec: np.zeros(spec.shape, spec.dtype.as_numpy_dtype),
        self.experiment.row_spec())
    nothing = np.full(multiworker_testing.NUM_ENVIRONMENTS, np.nan, np.float32)
    self.row = self.row._replace(
        step_type=np.ones(multiworker_testing.NUM_ENVIRONMENTS, np.int32),
        episode_return=nothing, episode_success=nothing)

  def train(self, num_batches, writers):
    """Trains on one unroll of each of the writers; returns what the workers print."""
    port = portpicker.pick_unused_port()
    layout = self.experiment.layout._replace(queue_size=100)
    server = server_lib.serve(port, layout)
    for identity in writers:
      writer = reverb_replay.Writer(
          reverb.Client(f'localhost:{port}'), layout, identity)
      writer.open()
      while not writer.append(self.row):
        pass
      self.assertTrue(writer.wait(10000))
      writer.close()
    workers = offline_testing.start(
        2 * [[f'localhost:{port}', str(self.folder), str(num_batches)]],
        'gtrxl_tf.training.online.multiworker_testing')
    for worker in workers:
      self.addCleanup(worker.kill)
    said = [worker.communicate(timeout=_SECONDS)[0] for worker in workers]
    self.assertEqual([worker.returncode for worker in workers], [0, 0], said)
    server.stop()
    # gRPC may say something after it.
    return [json.loads([line for line in text.splitlines() if line.startswith('{')][-1])
            for text in said]

  def test_no_worker_trains_on_what_another_was_trained_on(self):
    # More than they train on, because each worker has one in flight.
    first = self.train(4, writers=range(12))
    self.assertEqual([x['done'] for x in first], [True, True], first)
    self.assertEqual([x['unrolls'] for x in first], [4, 4])
    self.assertEqual([x['duplicate'] for x in first], [0, 0])
    trained = [identity for x in first for identity in x['writers']]
    self.assertLen(set(trained), 8)

    # A server restored from an old checkpoint has them again.
    second = self.train(8, writers=[*trained, *range(20, 32)])
    self.assertEqual([x['unrolls'] for x in second], [8, 8], second)
    self.assertEqual(sum(x['duplicate'] for x in second), 8)
    again = {identity for x in second for identity in x['writers']}
    self.assertLen(again, 8)
    self.assertEmpty(again.intersection(trained))


if __name__ == '__main__':
  absltest.main()
