"""Tests that two worker processes take the step that one process takes."""

import json
import os
import pathlib
import socket
import subprocess
import sys

from absl.testing import absltest
import numpy as np
import tensorflow as tf

from gtrxl_tf.training import tiny_agents_testing

# Far more than it takes, also where others are at work.
_SECONDS = 180


def _free_addresses(number):
  sockets = [socket.socket() for _ in range(number)]
  for x in sockets:
    x.bind(('127.0.0.1', 0))
  addresses = [f'127.0.0.1:{x.getsockname()[1]}' for x in sockets]
  for x in sockets:
    x.close()
  return addresses


class MultiworkerTest(tf.test.TestCase):

  def test_two_workers_take_the_step_of_one(self):
    folder = pathlib.Path(self.get_temp_dir())
    cluster = {'worker': _free_addresses(2)}
    files = [folder / f'{i}.npz' for i in range(2)]
    workers = []
    for i, file in enumerate(files):
      task = {'type': 'worker', 'index': i}
      workers.append(subprocess.Popen(
          [sys.executable, '-m', 'gtrxl_tf.training.multiworker_testing', 'vmpo',
           str(file)],
          env=dict(os.environ,
                   TF_CONFIG=json.dumps({'cluster': cluster, 'task': task})),
          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
      self.addCleanup(workers[-1].kill)
    expected = tiny_agents_testing.train('vmpo', tf.distribute.get_strategy())
    for worker in workers:
      said, _ = worker.communicate(timeout=_SECONDS)
      self.assertEqual(worker.returncode, 0, said)
    for i, file in enumerate(files):
      with np.load(file) as found:
        found = dict(found)
      self.assertEqual(found.pop('chief'), i == 0)
      self.assertTrue(found.pop('any_chief'))  # One asked for it, and both heard.
      self.assertAllClose(found, expected, atol=1e-5, rtol=1e-5)


if __name__ == '__main__':
  absltest.main()
