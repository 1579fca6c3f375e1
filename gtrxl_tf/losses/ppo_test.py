"""Compares PPO's loss with a reference, and tests its properties."""

import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf.losses import distributions
from gtrxl_tf.losses import ppo

GOLDEN = pathlib.Path(__file__).parents[2] / 'testdata' / 'golden' / 'ppo.npz'


def _batch(seed=0, **replaced):
  random = np.random.RandomState(seed)
  shape = [6, 8]
  acting = -random.gamma(2., size=shape)
  inputs = dict(
      log_probs=acting + 0.3 * random.randn(*shape), acting_log_probs=acting,
      advantages=random.randn(*shape), entropies=random.rand(*shape))
  return {**{k: v.astype(np.float32) for k, v in inputs.items()}, **replaced}


def _evaluate(inputs, valid_mask=None, **settings):
  """The loss of a `_batch`, and the gradient of total_loss in each of its inputs."""
  inputs = {k: tf.convert_to_tensor(v) for k, v in inputs.items()}
  with tf.GradientTape() as tape:
    tape.watch(inputs)
    loss = ppo.ppo_loss(
        valid_mask=valid_mask, **{'entropy_cost': 0.1, **settings}, **inputs)
  return loss, tape.gradient(
      loss.total_loss, inputs, unconnected_gradients=tf.UnconnectedGradients.ZERO)


class GoldenTest(tf.test.TestCase, parameterized.TestCase):
  """Agreement with rlax, whose batches are [T, B] instead of [B, T]."""

  @parameterized.product(
      kind=['discrete', 'continuous'], case=['all', 'valid', 'normalized'],
      jit_compile=[False, True])
  @pytest.mark.medium
  def test_loss_and_gradients(self, kind, case, jit_compile):
    golden = np.load(GOLDEN)

    def read(name):
      x = golden[f'{kind}/{name}']
      return tf.constant(x.swapaxes(0, 1) if x.ndim else x)

    names = ('logits',) if kind == 'discrete' else ('mean', 'scale')
    log_prob = (distributions.categorical_log_prob if kind == 'discrete'
                else distributions.gaussian_log_prob)
    acting = [read(f'acting_{name}') for name in names]
    actions, advantages = read('actions'), read('advantages')
    valid = None if case == 'all' else read('valid')

    @tf.function(autograph=False, jit_compile=jit_compile)
    def evaluate(online):
      with tf.GradientTape() as tape:
        tape.watch(online)
        if kind == 'discrete':
          log_p = tf.nn.log_softmax(online[0])
          entropies = -tf.reduce_sum(tf.exp(log_p) * log_p, axis=-1)
        else:
          entropies = tf.reduce_sum(
              tf.math.log(online[1]) + 0.5 * np.log(2 * np.pi * np.e), axis=-1)
        loss = ppo.ppo_loss(
            log_prob(*online, actions), log_prob(*acting, actions), advantages,
            entropies, valid, float(golden['clip_ratio']),
            float(golden['entropy_cost']), case == 'normalized')
      return loss, tape.gradient(loss.total_loss, online)

    loss, gradients = evaluate([read(f'online_{name}') for name in names])
    for name in ('policy_loss', 'entropy_loss', 'clip_fraction'):
      self.assertAllClose(
          getattr(loss, name), read(f'{case}/{name}'), rtol=1e-5, atol=1e-6)
    self.assertBetween(loss.clip_fraction, 0.1, 0.9)
    self.assertAllClose(loss.total_loss, loss.policy_loss + loss.entropy_loss)
    for name, gradient in zip(names, gradients):
      self.assertAllClose(gradient, read(f'{case}/grad_{name}'), rtol=1e-4, atol=1e-6)


class SurrogateTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(
      (1.5, 1.0, -1.2, 0.0), (1.5, -1.0, 1.5, 1.5), (0.5, 1.0, -0.5, -0.5),
      (0.5, -1.0, 0.8, 0.0), (1.1, 2.0, -2.2, -2.2), (1.0, 0.0, 0.0, 0.0))
  def test_no_gain_from_leaving_the_clipped_range(
      self, ratio, advantage, loss, gradient):
    got, gradients = _evaluate(dict(
        log_probs=np.float32([np.log(ratio)]), acting_log_probs=np.zeros(1, np.float32),
        advantages=np.float32([advantage]), entropies=np.ones(1, np.float32)))
    self.assertAllClose(got.policy_loss, loss)
    self.assertAllClose(gradients['log_probs'], [gradient])
    self.assertAllClose(gradients['entropies'], [-0.1])
    self.assertEqual(got.clip_fraction, abs(ratio - 1) > 0.2)

  def test_on_policy_the_gradient_is_the_policy_gradient(self):
    batch = _batch()
    batch['log_probs'] = batch['acting_log_probs']
    loss, gradients = _evaluate(batch)
    self.assertAllClose(gradients['log_probs'], -batch['advantages'] / 48)
    self.assertEqual(loss.clip_fraction, 0)

  def test_no_gradient_through_advantages_and_the_acting_policy(self):
    _, gradients = _evaluate(_batch(), normalize_advantages=True)
    for name in ('advantages', 'acting_log_probs'):
      self.assertAllEqual(gradients[name], np.zeros([6, 8]))

  @parameterized.parameters(-1., 0., 1.)
  def test_any_ratio_gives_a_finite_loss(self, advantage):
    for log_prob in (-1e4, 1e4):
      loss, gradients = _evaluate(_batch(
          log_probs=np.full([6, 8], log_prob, np.float32),
          advantages=np.full([6, 8], advantage, np.float32)))
      for x in tf.nest.flatten((loss, gradients)):
        self.assertAllEqual(tf.math.is_finite(x), tf.ones_like(x, tf.bool))

  @parameterized.parameters(1e-3, 1., 1e4)
  def test_normalized_advantages_have_no_offset_and_no_scale(self, scale):
    batch, valid = _batch(), np.random.RandomState(1).rand(6, 8) < 0.7
    moved = {**batch, 'advantages': scale * (batch['advantages'] + 3)}
    for x, y in zip(
        tf.nest.flatten(_evaluate(batch, valid, normalize_advantages=True)),
        tf.nest.flatten(_evaluate(moved, valid, normalize_advantages=True))):
      self.assertAllClose(x, y, rtol=1e-3, atol=1e-4)

  @parameterized.parameters((7, 0.1), (48, 2.), (100, 0.1), (1000, 1000.1), (2048, 0.3))
  def test_equal_advantages_are_normalized_to_zero(self, count, advantage):
    zeros = np.zeros(count, np.float32)
    loss, gradients = _evaluate(dict(
        log_probs=zeros, acting_log_probs=zeros, advantages=zeros + np.float32(advantage),
        entropies=zeros), normalize_advantages=True)
    self.assertAllClose(loss.policy_loss, 0, atol=1e-6)
    self.assertAllClose(gradients['log_probs'], zeros, atol=1e-6)


class MaskTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.product(
      garbage=[1e30, np.nan, np.inf, -np.inf], normalize=[False, True],
      jit_compile=[False, True])
  @pytest.mark.medium
  def test_values_at_masked_steps_have_no_influence(
      self, garbage, normalize, jit_compile):
    valid = np.random.RandomState(1).rand(6, 8) < 0.6
    batch = tf.nest.map_structure(tf.constant, _batch())
    spoilt = {k: tf.where(valid, v, garbage) for k, v in batch.items()}
    evaluate = tf.function(
        lambda batch: _evaluate(batch, valid, normalize_advantages=normalize),
        autograph=False, jit_compile=jit_compile)
    want, got = evaluate(batch), evaluate(spoilt)
    tf.nest.map_structure(self.assertAllEqual, got, want)
    for gradient in got[1].values():
      self.assertAllEqual(gradient[~valid], np.zeros((~valid).sum()))

  @parameterized.parameters(False, True)
  def test_no_valid_step_gives_zeros(self, normalize):
    batch = {k: np.full_like(v, np.nan) for k, v in _batch().items()}
    result = _evaluate(batch, np.zeros([6, 8], bool), normalize_advantages=normalize)
    for tensor in tf.nest.flatten(result):
      self.assertAllEqual(tensor, tf.zeros_like(tensor))

  def test_mask_may_be_numbers(self):
    valid = np.random.RandomState(1).rand(6, 8) < 0.6
    tf.nest.map_structure(
        self.assertAllEqual, _evaluate(_batch(), valid.astype(np.float32)),
        _evaluate(_batch(), valid))

  def test_nan_at_a_valid_step_appears_in_the_loss(self):
    for name in ('log_probs', 'acting_log_probs', 'advantages'):
      batch = _batch()
      batch[name][0, 0] = np.nan
      self.assertTrue(np.isnan(_evaluate(batch)[0].total_loss), name)


class BadInputTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(0, -0.5, float('nan'))
  def test_clip_ratio(self, ratio):
    with self.assertRaisesRegex(ValueError, f'^clip_ratio: .* got {ratio}$'):
      _evaluate(_batch(), clip_ratio=ratio)

  @parameterized.parameters('acting_log_probs', 'advantages', 'entropies')
  def test_shapes(self, name):
    with self.assertRaisesRegex(ValueError, f'^{name}: expected the shape '):
      _evaluate(_batch(**{name: np.zeros([8, 6], np.float32)}))
    with self.assertRaisesRegex(ValueError, '^valid_mask'):
      _evaluate(_batch(), np.ones([6], bool))


if __name__ == '__main__':
  absltest.main()
