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

from gtrxl_tf import machine
from gtrxl_tf.launch import prepare
from gtrxl_tf.launch import train
from gtrxl_tf.replay import mapped
from gtrxl_tf.replay import prioritized
from gtrxl_tf.replay import rings
from gtrxl_tf.settings import config
from gtrxl_tf.settings import gin_files

_GIN_FILE = str(gin_files.FOLDER / 'gtrxl/action_recall_cpu.gin')
_R2D2 = str(gin_files.FOLDER / 'gtrxl/agents/r2d2.gin')


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

  def assert_needs(self, experiment, needed):
    """Checks that a run starts with this number of free bytes, and with no less."""
    with mock.patch.object(machine, 'free_bytes', return_value=needed):
      prepare.check_batch(experiment)
    with mock.patch.object(machine, 'free_bytes', return_value=needed - 1):
      with self.assertRaisesRegex(
          config.ConfigError, 'a batch of [0-9,]+ and the unrolls of 2'):
        prepare.check_batch(experiment)

  @parameterized.parameters(600, 10**6)  # The table is not full, or full.
  def test_the_memory_of_rings_and_of_a_replay_table_counts(self, run):
    bindings = [
        'ActorCritic.core = @Memoryless()', 'OnlineExperiment.unroll_length = 12',
        'OnlineExperiment.environments_per_actor = 1', 'OnlineExperiment.num_actors = 2',
        'Replay.overlap = 4', 'R2D2Agent.burn_in = 0', 'Replay.min_unrolls = 64',
        'Replay.capacity = 100', f'OnlineExperiment.environment_steps = {run}']
    experiment = prepare.prepare([_GIN_FILE, _R2D2], bindings, check=False)
    # The bytes of a row of 13, of a row of 12, and of the rest of an unroll.
    unroll = 13 * 36 + 12 * 24 + 20
    shared = mapped.size(rings.specs(experiment.layout))
    # Each ring has the queue's rows, 64 unrolls of 8 new actions, and some more.
    self.assertGreater(shared, 2 * 64 * 8 * 76)
    signature = experiment.unroll_signature()
    table = mapped.size(prioritized.specs(experiment.replay, signature))
    self.assertBetween(table, 100 * unroll, 1.1 * 100 * unroll + 10_000)
    self.assert_needs(
        experiment, 64 * unroll + shared + int(min(1, run / 800) * table))


if __name__ == '__main__':
  absltest.main()
