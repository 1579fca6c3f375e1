"""Tests that weights and records travel through Reverb in 16 bits."""

import itertools

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import nests
from gtrxl_tf.training import tiny_agents_testing
from gtrxl_tf.training.online import acting_testing

_CORES = acting_testing.CORES


class TransferDtypeTest(acting_testing.ActingTestCase):

  @parameterized.parameters('trxl', 'lstm')
  @pytest.mark.long
  def test_acting_equals_learning(self, core):
    self.start(acting_testing.experiment(_CORES[core], transfer_dtype='bfloat16'),
               reverb=True)
    for i, batch in enumerate(itertools.islice(self.batches(), 12)):
      self.assertEqual({x.dtype for x in tf.nest.flatten(batch.record)}, {tf.uint16})
      self.tolerance = 3e-2
      self.assert_learner_agrees(batch)
      # By the weights as they arrive, only the records differ from what acted.
      step, self.tolerance = batch.target_step.numpy().item(), 5e-3
      exact = self.weights[step]
      self.weights[step] = nests.from_half(nests.to_half(list(map(tf.constant, exact))))
      self.assert_learner_agrees(batch)
      self.weights[step] = exact
      if i % 4 == 3:
        self.publish(i)


class LossTest(parameterized.TestCase):

  @parameterized.parameters('vmpo', 'ppo', 'r2d2')
  @pytest.mark.medium
  def test_losses_take_records_of_16_bits(self, name):
    made = tiny_agents_testing.AGENTS[name]
    agent, batch = made.make(), made.batch(0)
    unrolls = batch.unroll if name == 'r2d2' else batch
    halved = unrolls._replace(record=nests.to_half(unrolls.record))
    expected = agent.loss(batch)[0]
    found = agent.loss(batch._replace(unroll=halved) if name == 'r2d2' else halved)[0]
    self.assertNotEqual(float(found), float(expected))
    np.testing.assert_allclose(found, expected, rtol=2e-3)


if __name__ == '__main__':
  absltest.main()
