"""Tests of V-MPO on replicas, separate from vmpo_test.py since they split the CPU."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import devices_testing
from gtrxl_tf.losses import distributions
from gtrxl_tf.losses import vmpo

BATCH_SIZE, NUM_STEPS, NUM_FEATURES, NUM_ACTIONS = 8, 5, 3, 4

devices_testing.split_cpu(4)


def _batch():
  random = np.random.RandomState(0)
  shape = [BATCH_SIZE, NUM_STEPS]
  # Steps in later rows are better, so replicas hold different shares of the top.
  advantages = random.randn(*shape) + np.arange(BATCH_SIZE)[:, None] / 4
  return {
      'features': random.randn(*shape, NUM_FEATURES).astype(np.float32),
      'actions': random.randint(NUM_ACTIONS, size=shape),
      'target_logits': random.randn(*shape, NUM_ACTIONS).astype(np.float32),
      'advantages': advantages.astype(np.float32),
      'valid': np.ones(shape, bool),
  }


def _update(strategy, batch):
  """Takes one SGD step at rate one; returns summed losses, weights and variables."""
  with strategy.scope():
    variables = kernel, temperature, alpha = [
        tf.Variable(value, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
        for value in (
            np.random.RandomState(1).randn(NUM_FEATURES, NUM_ACTIONS).astype(np.float32),
            0.7, 3.)]

  def replica_step(batch):
    with tf.GradientTape() as tape:
      logits = tf.einsum('btf,fa->bta', batch['features'], kernel)
      loss = vmpo.vmpo_loss(
          distributions.categorical_log_prob(logits, batch['actions']),
          batch['advantages'], temperature, 0.1,
          [(distributions.categorical_kl(batch['target_logits'], logits), alpha, 0.01)],
          batch['valid'])
    gradients = tape.gradient(loss.total_loss, variables)
    gradients = tf.distribute.get_replica_context().all_reduce('SUM', gradients)
    for variable, gradient in zip(variables, gradients):
      variable.assign_sub(gradient)
    return loss._asdict()

  @tf.function
  def step():
    def share(context):
      num = context.num_replicas_in_sync
      i = context.replica_id_in_sync_group
      return {k: np.split(v, num)[i] for k, v in batch.items()}
    batches = strategy.experimental_distribute_values_from_function(share)
    return strategy.run(replica_step, [batches])

  losses = step()
  weights = tf.concat(
      strategy.experimental_local_results(losses.pop('weights')), axis=0)
  losses = {k: strategy.reduce('SUM', v, axis=None) for k, v in losses.items()}
  return losses, weights, [v.numpy() for v in variables]


class ReplicasTest(tf.test.TestCase, parameterized.TestCase):

  def _check(self, num_replicas, batch):
    want = _update(tf.distribute.get_strategy(), batch)
    got = _update(devices_testing.mirrored(self, num_replicas), batch)
    tf.nest.map_structure(
        lambda x, y: self.assertAllClose(x, y, rtol=1e-6, atol=1e-6), got, want)
    return got

  @parameterized.parameters(1, 2, 4)
  @pytest.mark.medium
  def test_n_replicas_equal_one_with_the_global_batch(self, num_replicas):
    _, weights, _ = self._check(num_replicas, _batch())
    self.assertAllClose(tf.reduce_sum(weights), 1)

  @parameterized.parameters(1, 2, 4)
  @pytest.mark.medium
  def test_steps_are_ranked_over_all_replicas(self, num_replicas):
    batch = _batch()
    batch['advantages'][BATCH_SIZE // 2:] += 100
    _, weights, _ = self._check(num_replicas, batch)
    self.assertAllEqual(weights[:BATCH_SIZE // 2], np.zeros([4, NUM_STEPS]))

  @parameterized.parameters(1, 2, 4)
  @pytest.mark.long
  def test_replicas_may_hold_different_numbers_of_valid_steps(self, num_replicas):
    batch = _batch()
    batch['valid'] = np.random.RandomState(2).rand(BATCH_SIZE, NUM_STEPS) < 0.6
    batch['valid'][-BATCH_SIZE // 4:] = False  # The last of four has none.
    batch['advantages'][~batch['valid']] = np.nan
    self._check(num_replicas, batch)

  @parameterized.parameters(2, 4)
  @pytest.mark.medium
  def test_without_valid_steps_nothing_changes(self, num_replicas):
    batch = _batch()
    batch['valid'][:] = False
    losses, _, (_, temperature, alpha) = self._check(num_replicas, batch)
    self.assertAllEqual(list(losses.values()), [0.] * len(losses))
    self.assertAllEqual([temperature, alpha], np.float32([0.7, 3.]))


if __name__ == '__main__':
  absltest.main()
