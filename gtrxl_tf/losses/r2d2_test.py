"""Compares R2D2's loss with a reference, and tests its properties."""

import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf.losses import cql
from gtrxl_tf.losses import r2d2

GOLDEN = pathlib.Path(__file__).parents[2] / 'testdata' / 'golden' / 'r2d2.npz'


def _batch(seed=0, batch_size=3, steps=7):
  random = np.random.RandomState(seed)
  shape = batch_size, steps + 1
  is_last = random.rand(*shape) < 0.2
  return {k: tf.constant(v) for k, v in dict(
      q_values=random.randn(*shape, 4).astype(np.float32),
      target_q_values=random.randn(*shape, 4).astype(np.float32),
      actions=random.randint(4, size=(batch_size, steps)),
      rewards=random.randn(*shape).astype(np.float32),
      discounts=(~is_last | (random.rand(*shape) < 0.5)).astype(np.float32),
      is_last=is_last, weights=random.rand(batch_size).astype(np.float32)).items()}


class GoldenTest(tf.test.TestCase, parameterized.TestCase):
  """Agreement with rlax, whose batches are [T, B] instead of [B, T]."""

  @parameterized.product(i=[0, 1, 2], jit_compile=[False, True])
  @pytest.mark.medium
  def test_loss_priorities_and_gradients(self, i, jit_compile):
    golden = np.load(GOLDEN)

    def read(name):
      x = golden[name]
      return x.swapaxes(0, 1) if x.ndim > 1 else x

    @tf.function(autograph=False, jit_compile=jit_compile)
    def evaluate(q_values):
      with tf.GradientTape() as tape:
        tape.watch(q_values)
        loss = r2d2.r2d2_loss(
            q_values, *(read(x) for x in (
                'target_q', 'actions', 'rewards', 'discounts', 'is_last', 'weights')),
            gamma=float(golden['gamma']), n_step=int(golden['n_steps'][i]),
            eta=float(golden['eta']))
      return loss, tape.gradient(loss.total_loss, q_values)

    loss, gradient = evaluate(tf.constant(read('q'), tf.float32))
    for name, found in (('loss', loss.total_loss), ('td_errors', loss.td_errors),
                        ('priorities', loss.priorities), ('grad_q', gradient)):
      self.assertAllClose(found, read(f'{name}{i}'), rtol=1e-5, atol=1e-5)

  def test_importance_weights(self):
    golden = np.load(GOLDEN)
    self.assertAllClose(r2d2.importance_weights(
        golden['probabilities'], np.full(6, golden['table_size']),
        float(golden['beta'])), golden['weights'], rtol=1e-5)


class RescalingTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(0.0, 1e-3, 0.1)
  def test_it_is_the_papers_function(self, epsilon):
    x = np.linspace(-100, 100, 41)
    self.assertAllClose(
        r2d2.rescale(tf.constant(x, tf.float32), epsilon),
        np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + epsilon * x, rtol=1e-6)

  @parameterized.parameters(0.0, 1e-3, 0.1)
  def test_the_inverse_inverts_in_float32(self, epsilon):
    x = tf.constant([-1e4, -30, -1, -1e-2, 0, 1e-3, 0.5, 2, 100, 1e5])
    self.assertAllClose(
        r2d2.inverse_rescale(r2d2.rescale(x, epsilon), epsilon), x, rtol=1e-5,
        atol=1e-6)


class NStepTargetsTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(1, 2, 5, 50)
  def test_they_equal_sums_over_each_step(self, n_step):
    batch = {k: v.numpy() for k, v in _batch(1).items()}
    rewards, discounts, is_last = (
        batch[k] for k in ('rewards', 'discounts', 'is_last'))
    values = batch['q_values'][..., 0]
    found = r2d2.n_step_targets(
        rewards, discounts, values, is_last, 0.9, n_step).numpy()
    for b, t in zip(*np.nonzero(~is_last[:, :-1])):
      total, factor = 0.0, 1.0
      for s in range(t + 1, min(t + n_step, rewards.shape[1] - 1) + 1):
        total += factor * rewards[b, s]
        factor *= 0.9 * discounts[b, s]
        if is_last[b, s]:
          break
      self.assertAlmostEqual(found[b, t], total + factor * values[b, s], places=5)


class LossTest(tf.test.TestCase, parameterized.TestCase):

  def test_what_is_no_step_has_no_influence(self):
    batch = _batch()
    loss = r2d2.r2d2_loss(**batch)
    at_last = batch['is_last']
    first = tf.pad(at_last[:, :-1], [[0, 0], [1, 0]], constant_values=True)
    other = r2d2.r2d2_loss(**{
        **batch, 'rewards': tf.where(first, float('nan'), batch['rewards']),
        'actions': tf.where(at_last[:, :-1], 3 - batch['actions'], batch['actions'])})
    for x, y in zip(loss, other):
      self.assertAllEqual(x, y)

  def test_the_value_after_a_termination_may_be_anything(self):
    batch = _batch()
    ended = (batch['is_last'] & (batch['discounts'] == 0))[..., tf.newaxis]
    self.assertTrue(tf.reduce_any(ended))
    other = r2d2.r2d2_loss(**{**batch, 'target_q_values': tf.where(
        ended, float('inf'), batch['target_q_values'])})
    self.assertAllClose(r2d2.r2d2_loss(**batch), other)

  def test_the_online_network_chooses_and_the_target_network_values(self):
    q = tf.constant([[[0., 0.], [1., 2.]]])
    loss = r2d2.r2d2_loss(
        q, tf.constant([[[0., 0.], [9., 4.]]]), tf.constant([[0]]), tf.zeros([1, 2]),
        tf.ones([1, 2]), tf.zeros([1, 2], tf.bool), tf.ones([1]), gamma=1.0)
    self.assertAllClose(loss.td_errors, [[4.]])

  def test_gradients_flow_through_the_taken_values_alone(self):
    batch = _batch()
    q_values = batch.pop('q_values')
    with tf.GradientTape() as tape:
      tape.watch([q_values, batch['target_q_values']])
      loss = r2d2.r2d2_loss(q_values, **batch)
    gradient, of_target = tape.gradient(
        loss.total_loss, [q_values, batch['target_q_values']])
    self.assertIsNone(of_target)
    taken = tf.one_hot(batch['actions'], 4) * tf.cast(
        ~batch['is_last'][:, :-1], tf.float32)[..., tf.newaxis]
    self.assertAllEqual(gradient != 0, tf.pad(taken != 0, [[0, 0], [0, 1], [0, 0]]))

  def test_priorities_of_a_sequence_without_steps_are_zero(self):
    errors, valid = [[1., -3.], [2., 2.]], [[True, True], [False, False]]
    for convert in tf.constant, np.array:
      found = r2d2.priorities(convert(errors), convert(valid), 0.75)
      self.assertAllClose(found, [2.75, 0.])

  @parameterized.parameters(
      (dict(gamma=1.5), r'gamma: expected a number in \[0, 1\], got 1.5'),
      (dict(n_step=0), 'n_step: expected an integer >= 1, got 0'),
      (dict(eta=-1.0), r'eta: expected a number in \[0, 1\], got -1.0'),
      (dict(weights=tf.ones([2])), r'weights: expected the shape \(3,\)'),
      (dict(actions=tf.zeros([3, 8], tf.int32)), r'actions: expected the shape \(3, 7\)'))
  def test_bad_arguments_are_refused(self, changed, message):
    with self.assertRaisesRegex(ValueError, message):
      r2d2.r2d2_loss(**{**_batch(), **changed})

  def test_arguments_that_would_broadcast_are_refused(self):
    with self.assertRaisesRegex(ValueError, 'table_sizes'):
      r2d2.importance_weights(tf.ones([3, 1]), tf.ones([3]), 0.5)
    with self.assertRaisesRegex(ValueError, r'valid: expected the shape \(1, 4\)'):
      r2d2.priorities(tf.ones([1, 4]), tf.ones([1, 1], tf.bool))
    with self.assertRaisesRegex(ValueError, 'actions'):
      cql.taken_values(tf.zeros([2, 3, 4]), tf.zeros([2], tf.int32))


if __name__ == '__main__':
  absltest.main()
