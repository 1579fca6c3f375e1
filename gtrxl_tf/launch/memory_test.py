"""Tests of prepare.py: what does not fit in memory is refused before it is made."""

import contextlib
import io
import pathlib
import resource
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import gin
import pytest
import tensorflow as tf

from gtrxl_tf import machine
from gtrxl_tf.launch import prepare
from gtrxl_tf.launch import train
from gtrxl_tf.replay import mapped
from gtrxl_tf.replay import memory_replay
from gtrxl_tf.settings import config
from gtrxl_tf.settings import gin_files

_GIN_FILE = str(gin_files.FOLDER / 'gtrxl/action_recall_cpu.gin')


class LimitsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    gin.clear_config()
    self.addCleanup(gin.clear_config)

  @parameterized.parameters(
      ('TransformerXL.model_dim = 10_000_000_000_000', ''),
      ('TransformerXL.memory_length = 100_000_000', 'expected an integer >= 1 and <= 100000$'),
      ('OnlineExperiment.unroll_length = 1_000_000', 'expected an integer >= 1 and <= 100000$'),
      ('TransformerXL.num_layers = 1_000_000', '^TransformerXL.num_layers = 1000000: '
       'expected an integer >= 1 and <= 1000$'),
      ('TransformerXL.model_dim = 10**30', 'not gin'),
      ('TransformerXL.mlp_dim = 1' + 30 * '0', ''))
  def test_layers_that_do_not_fit_are_not_made(self, setting, expected):
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with self.assertRaisesRegex(config.ConfigError, expected) as caught:
      prepare.prepare([_GIN_FILE], [setting])
    self.assertNotIn('\n', str(caught.exception))
    self.assertLess(time.process_time() - start, 30)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    self.assertLess(grown, 2**20)  # 1 GiB; ru_maxrss is in KiB.

  @pytest.mark.medium
  def test_a_run_whose_batch_does_not_fit_is_not_started(self):
    root = self.create_tempdir().full_path + '/run'
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
      code = train.train(
          [_GIN_FILE], ['OnlineExperiment.batch_size = 1_000_000_000_000'], root)
    self.assertEqual(code, 2)
    self.assertRegex(
        said.getvalue(), '^Not started: a batch of 1,000,000,000,000 and the unrolls of 1 '
        r'actor\(s\) need at least .* GiB; this machine has .* GiB left: .*batch_size.*\n$')
    self.assertFalse(pathlib.Path(root).exists())

  def test_the_memory_of_rings_counts(self):
    experiment = prepare.prepare([_GIN_FILE], [
        'OnlineExperiment.num_actors = 2', 'OnlineExperiment.batch_size = 64'], check=False)
    batch = sum(spec.shape.num_elements() * spec.dtype.size
                for spec in tf.nest.flatten(experiment.unroll_signature()))
    needed = experiment.items_per_batch * batch + mapped.size(
        memory_replay.specs(experiment.layout))
    with mock.patch.object(machine, 'free_bytes', return_value=needed):
      prepare.check_batch(experiment)
    with mock.patch.object(machine, 'free_bytes', return_value=needed - 1):
      with self.assertRaisesRegex(config.ConfigError, 'batch_size'):
        prepare.check_batch(experiment)


if __name__ == '__main__':
  absltest.main()
