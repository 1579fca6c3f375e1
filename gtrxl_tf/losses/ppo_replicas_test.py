"""Tests of PPO's loss on replicas, separate from ppo_test.py since they split the CPU.
"""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import devices_testing
from gtrxl_tf.losses import ppo

devices_testing.split_cpu(4)


def _batch(**replaced):
  random = np.random.RandomState(0)
  acting = -random.gamma(2., size=[8, 5])
  batch = dict(
      log_probs=acting + 0.3 * random.randn(8, 5), acting_log_probs=acting,
      # Replicas have different means and scales.
      advantages=random.randn(8, 5) * np.arange(8)[:, None] + np.arange(8)[:, None],
      entropies=random.rand(8, 5))
  return {**{k: v.astype(np.float32) for k, v in batch.items()},
          'valid_mask': np.ones([8, 5], bool), **replaced}


def _evaluate(strategy, batch, normalize):
  """Returns losses summed over replicas, and the gradients of all rows."""
  def replica(batch):
    log_probs = batch.pop('log_probs')
    with tf.GradientTape() as tape:
      tape.watch(log_probs)
      loss = ppo.ppo_loss(log_probs, entropy_cost=0.1,
                          normalize_advantages=normalize, **batch)
    return loss._asdict(), tape.gradient(loss.total_loss, log_probs)

  @tf.function
  def step():
    def share(context):
      return {k: tf.constant(np.split(v, context.num_replicas_in_sync)[
          context.replica_id_in_sync_group]) for k, v in batch.items()}
    return strategy.run(
        replica, [strategy.experimental_distribute_values_from_function(share)])

  losses, gradients = step()
  return ({k: strategy.reduce('SUM', v, axis=None) for k, v in losses.items()},
          tf.concat(strategy.experimental_local_results(gradients), axis=0))


class ReplicasTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.product(num_replicas=[2, 4], normalize=[False, True],
                         masked=['no', 'some', 'all'])
  @pytest.mark.medium
  def test_n_replicas_equal_one_with_the_global_batch(
      self, num_replicas, normalize, masked):
    valid = np.random.RandomState(2).rand(8, 5) < {'no': 2, 'some': 0.6, 'all': 0}[
        masked]
    valid[-2:] &= masked == 'no'  # The last of four has none.
    batch = _batch(valid_mask=valid)
    batch['advantages'][~valid] = np.nan
    got = _evaluate(devices_testing.mirrored(self, num_replicas), batch, normalize)
    want = _evaluate(tf.distribute.get_strategy(), batch, normalize)
    tf.nest.map_structure(
        lambda x, y: self.assertAllClose(x, y, rtol=1e-5, atol=1e-6), got, want)
    self.assertEqual(bool(np.any(want[1])), masked != 'all')


if __name__ == '__main__':
  absltest.main()
