"""Tests that two worker processes take the step that one process takes."""

import pathlib
import types
from unittest import mock

from absl.testing import absltest
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences
from gtrxl_tf.training import tiny_agents_testing
from gtrxl_tf.training import trainer
from gtrxl_tf.training.offline import multiworker_testing

# Far more than it takes, even on a busy machine.
_SECONDS = 240


class MultiworkerTest(tf.test.TestCase):

  def test_refuses_workers_with_other_settings(self):
    settings = [{'AdamW.learning_rate': '3e-4', 'OfflineExperiment.dataset': "'a'"},
                {'AdamW.learning_rate': '1e-3', 'OfflineExperiment.dataset': "'b'"}]
    experiment = types.SimpleNamespace(settings=settings[0])
    with mock.patch.object(
        trainer.devices, 'texts_of_workers',
        return_value=[differences.to_json(x) for x in settings]):
      with self.assertRaisesRegex(
          config.ConfigError, 'worker 1 has other settings than the first: '
          r'AdamW\.learning_rate [^,]*; expected the same in all workers'):
        trainer._check_workers(experiment, None)

  @pytest.mark.long
  def test_two_workers_take_the_step_of_one(self):
    files = [str(pathlib.Path(self.get_temp_dir()) / f'{i}.npz') for i in range(2)]
    workers = multiworker_testing.start([['agent', 'vmpo', file] for file in files])
    for worker in workers:
      self.addCleanup(worker.kill)
    expected = tiny_agents_testing.train('vmpo', tf.distribute.get_strategy())
    for worker in workers:
      said, _ = worker.communicate(timeout=_SECONDS)
      self.assertEqual(worker.returncode, 0, said)
    for i, file in enumerate(files):
      with np.load(file) as found:
        found = dict(found)
      self.assertEqual(found.pop('chief'), i == 0)
      self.assertTrue(found.pop('any_chief'))  # One asked to stop; both did.
      self.assertEqual(found.pop('texts').tolist(), ['né0', 91 * 'né1'])
      self.assertAllClose(found, expected, atol=1e-5, rtol=1e-5)


if __name__ == '__main__':
  absltest.main()
