"""Tests that the coordinator has the files of variables on another host."""

import os
import pathlib
import subprocess
import sys

from absl.testing import absltest
import portpicker
import pytest

_HOST = """
import sys
import tensorflow as tf
cluster = tf.train.ClusterSpec({'worker': ['localhost:' + sys.argv[1]]})
server = tf.distribute.Server(cluster, job_name='worker', task_index=0)
print('listens', flush=True)
server.join()
"""

_COORDINATOR = """
import pathlib, sys
import tensorflow as tf
from gtrxl_tf.training import checkpoints
tf.config.experimental_connect_to_host('localhost:' + sys.argv[1])
agent = tf.Module()
with tf.device('/job:worker'):
  agent.weight = tf.Variable([1.0, 2.0])
def make():
  return checkpoints.Checkpoints(pathlib.Path('run'), 1, kind='K', agent=agent,
                                 device='/job:localhost')
saved = make()
saved.restore()
saved.save(3)
agent.weight.assign([0.0, 0.0])
make().restore()
print(agent.weight.device, agent.weight.numpy().tolist())
"""


class SliceTest(absltest.TestCase):

  @pytest.mark.long
  def test_the_coordinator_writes_and_reads(self):
    # The paths are relative, and the two processes are in different folders.
    here, there = (pathlib.Path(self.create_tempdir().full_path) for _ in range(2))
    port = str(portpicker.pick_unused_port())
    environment = {**os.environ, 'PYTHONPATH': ':'.join(filter(None, sys.path))}
    with subprocess.Popen([sys.executable, '-c', _HOST, port], cwd=there,
                          env=environment, stdout=subprocess.PIPE, text=True) as host:
      try:
        self.assertEqual(host.stdout.readline(), 'listens\n')
        done = subprocess.run([sys.executable, '-c', _COORDINATOR, port], cwd=here,
                              env=environment, capture_output=True, text=True,
                              check=False)
      finally:
        host.kill()
    self.assertEqual(done.returncode, 0, done.stderr[-2000:])
    self.assertRegex(done.stdout, r'^/job:worker/.* \[1.0, 2.0\]\n$')
    self.assertIn('ckpt-3.index', os.listdir(here / 'run'))
    self.assertEmpty(os.listdir(there))


if __name__ == '__main__':
  absltest.main()
