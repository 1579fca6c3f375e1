"""Tests that a step outside of TensorFlow, through PJRT, is TensorFlow's step."""

import pathlib
import sys

from absl.testing import absltest
from absl.testing import parameterized
import pytest
import tensorflow as tf

from gtrxl_tf.training import learner as learner_lib
from gtrxl_tf.training import tiny_agents_testing
from tools import learner_hlo
from tools import xla_runner


class XlaRunnerTest(parameterized.TestCase):

  @parameterized.parameters(*tiny_agents_testing.AGENTS)
  @pytest.mark.long
  def test_it_takes_the_step_that_tensorflow_takes(self, name):
    tiny = tiny_agents_testing.AGENTS[name]
    agent, batch = tiny.make(), tiny.batch(0)
    learner = learner_lib.Learner(agent, tiny_agents_testing.ADAM(),
                                  tf.distribute.get_strategy(), clip_norm=0.1)
    module = pathlib.Path(self.create_tempdir().full_path) / 'module'
    module.write_bytes(learner_hlo.hlo(learner, batch, 'hlo_serialized'))
    learner_hlo.write_step(module, learner, batch)
    found = learner_hlo.report(sys.executable, xla_runner, module, 'cpu', '2')
    self.assertLess(found['differs by'], 1e-4)
    self.assertEqual(found['device'], 'cpu')
    self.assertGreater(found['step, ms'], 0)

  def test_an_error_says_what_is_wrong(self):
    module = pathlib.Path(self.create_tempdir().full_path) / 'module'
    module.write_bytes(b'')
    found = learner_hlo.report(sys.executable, xla_runner, module, 'cuda', '1')
    self.assertRegex(found['error'], '(?i)cuda')


if __name__ == '__main__':
  absltest.main()
