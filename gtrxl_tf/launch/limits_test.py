"""Tests of limits.py: what does not fit in memory is refused before it is made."""

import contextlib
import io
import pathlib
import resource
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import gin
import tensorflow as tf

from gtrxl_tf import machine
from gtrxl_tf.launch import limits
from gtrxl_tf.launch import prepare
from gtrxl_tf.launch import train
from gtrxl_tf.settings import config
from gtrxl_tf.settings import gin_files

_GIN_FILE = str(gin_files.FOLDER / 'gtrxl/action_recall_cpu.gin')


class LimitsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    gin.clear_config()
    self.addCleanup(gin.clear_config)

  @parameterized.parameters(
      ('TransformerXL.mlp_dim = 1_000_000_000', 'the network\'s variables need at least '
       '[0-9,.]+ GiB, with .*kernel.* of shape .*1000000000.*this machine has [0-9,.]+ GiB'),
      ('TransformerXL.model_dim = 10_000_000_000_000', 'variables need at least'),
      ('TransformerXL.memory_length = 100_000_000', 'expected an integer >= 1 and <= 100000$'),
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

  def test_variables_are_counted_together(self):
    with mock.patch.object(machine, 'free_bytes', return_value=2000.):
      with limits.checked_variables():
        tf.keras.layers.Dense(4).build([None, 25])  # 416 bytes.
        tf.keras.layers.Dense(4).build([None, 25])
        with self.assertRaisesRegex(config.ConfigError, 'need at least'):
          tf.keras.layers.Dense(4).build([None, 25])
      tf.keras.layers.Dense(4).build([None, 25])

  def test_unrolls_that_do_not_fit_are_not_made(self):
    with self.assertRaisesRegex(
        config.ConfigError, r'^an unroll of 100,000,000,000 steps with a memory of [0-9]+ '
        r'needs at least [0-9,.]+ GiB; this machine has .* GiB left: expected a smaller '
        'memory_length or unroll_length$'):
      prepare.prepare([_GIN_FILE], ['OnlineExperiment.unroll_length = 100_000_000_000'])

  @parameterized.parameters(
      ('num_actors = 1_000_000', 'OnlineExperiment.num_actors = 1000000: these processes '
       'need at least 31,250.0 GiB; this machine has '),
      ('batch_size = 1_000_000_000_000', 'a batch of 1,000,000,000,000 unrolls of .* '
       'steps has .* GiB of data, and a full queue .* GiB; this machine has '))
  def test_runs_that_do_not_fit_are_not_started(self, setting, expected):
    root = self.create_tempdir().full_path + '/run'
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
      code = train.train([_GIN_FILE], [f'OnlineExperiment.{setting}'], root)
    self.assertEqual(code, 2)
    self.assertRegex(said.getvalue(), f'^Not started: {expected}.*\n$')
    self.assertFalse(pathlib.Path(root).exists())

  def test_the_memory_of_a_batch_and_the_queue_count(self):
    experiment = prepare.prepare(
        [_GIN_FILE], ['OnlineExperiment.batch_size = 32_000'], check=False)
    unrolls = tf.nest.flatten(experiment.unroll_signature())
    needed = 2 * experiment.items_per_batch * sum(
        spec.shape.num_elements() * spec.dtype.size for spec in unrolls)
    with mock.patch.object(machine, 'free_bytes', return_value=needed):
      limits.check_run(experiment)
    with mock.patch.object(machine, 'free_bytes', return_value=needed - 1):
      with self.assertRaisesRegex(
          config.ConfigError, 'has (.*) GiB of data, and a full queue .* GiB; this machine'):
        limits.check_run(experiment)

  def test_what_fits_is_started(self):
    experiment = prepare.prepare(
        [_GIN_FILE], ['OnlineExperiment.num_actors = 64'], check=False)
    with mock.patch.object(machine, 'free_bytes', return_value=2.**32):
      limits.check_run(experiment)


if __name__ == '__main__':
  absltest.main()
