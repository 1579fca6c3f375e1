"""Compares distributions with a reference, and tests them at their limits."""

import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from gtrxl_tf.losses import distributions

GOLDEN = pathlib.Path(__file__).parents[2] / 'testdata' / 'golden' / 'vmpo.npz'


class CategoricalTest(tf.test.TestCase):

  def test_kl_equals_the_reference(self):
    golden = np.load(GOLDEN)
    kl = distributions.categorical_kl(
        golden['discrete/target_logits'], golden['discrete/online_logits'])
    self.assertAllClose(kl, golden['discrete/kl'], rtol=1e-5, atol=1e-7)

  def test_kl_is_zero_between_equal_policies_of_different_logits(self):
    logits = np.random.RandomState(0).randn(3, 4).astype(np.float32)
    self.assertAllEqual(distributions.categorical_kl(logits, logits), np.zeros(3))
    self.assertAllClose(
        distributions.categorical_kl(logits, logits + 7), np.zeros(3), atol=1e-6)

  def test_kl_puts_the_target_first(self):
    kl = distributions.categorical_kl(np.log([.5, .5]), np.log([.9, .1]))
    self.assertAllClose(kl, .5 * np.log(.5 / .9) + .5 * np.log(.5 / .1))

  def test_actions_of_probability_zero_contribute_nothing(self):
    target = tf.constant([[0., 1., -np.inf]])
    online = tf.constant([[2., 1., -np.inf]])
    with tf.GradientTape() as tape:
      tape.watch(online)
      kl = distributions.categorical_kl(target, online)
    self.assertAllClose(kl, distributions.categorical_kl([[0., 1.]], [[2., 1.]]))
    self.assertAllClose(
        tape.gradient(kl, online),
        tf.nn.softmax(online) - tf.nn.softmax(target))

  def test_extreme_logits_stay_finite(self):
    kl = distributions.categorical_kl([[1e4, 0.]], [[0., 1e4]])
    self.assertAllClose(kl, [1e4])

  def test_log_prob_is_that_of_the_action(self):
    probs = np.array([[.2, .3, .5], [.7, .2, .1]])
    for dtype in (np.uint8, np.int16, np.int32, np.int64):
      self.assertAllClose(
          distributions.categorical_log_prob(np.log(probs) + 3., np.array([2, 0], dtype)),
          np.log([.5, .7]))

  def test_half_precision_is_computed_in_float32(self):
    logits = tf.constant([[0.1, 0.2], [3., 4.]], tf.bfloat16)
    wide = tf.cast(logits, tf.float32)
    for got, want in [
        (distributions.categorical_log_prob(logits, [0, 1]),
         distributions.categorical_log_prob(wide, [0, 1])),
        (distributions.categorical_kl(logits, logits[::-1]),
         distributions.categorical_kl(wide, wide[::-1]))]:
      self.assertEqual(got.dtype, tf.float32)
      self.assertAllEqual(got, want)

  def test_shapes_that_differ_are_refused(self):
    logits = tf.zeros([2, 3, 4])
    with self.assertRaisesRegex(ValueError, '^actions'):
      distributions.categorical_log_prob(logits, [0, 1])
    with self.assertRaisesRegex(ValueError, '^online_logits'):
      distributions.categorical_kl(logits, logits[:1])


class GaussianTest(tf.test.TestCase, parameterized.TestCase):

  def setUp(self):
    super().setUp()
    golden = np.load(GOLDEN)
    self.golden = {k.split('/')[1]: golden[k]
                   for k in golden if k.startswith('continuous/')}

  def test_kls_equal_the_reference(self):
    kl_mean = distributions.gaussian_kl_mean(
        self.golden['target_mean'], self.golden['target_scale'],
        self.golden['online_mean'])
    kl_scale = distributions.gaussian_kl_scale(
        self.golden['target_scale'], self.golden['online_scale'])
    self.assertAllClose(kl_mean, self.golden['kl_mean'], rtol=1e-5, atol=1e-6)
    self.assertAllClose(kl_scale, self.golden['kl_scale'], rtol=1e-5, atol=1e-6)

  def test_log_prob_equals_the_log_of_the_density(self):
    mean, scale, actions = (
        self.golden[k].astype(np.float64)
        for k in ('online_mean', 'online_scale', 'actions'))
    density = np.exp(-((actions - mean) / scale) ** 2 / 2) / (
        scale * np.sqrt(2 * np.pi))
    self.assertAllClose(
        distributions.gaussian_log_prob(mean, scale, actions),
        np.log(density).sum(-1), rtol=1e-5, atol=1e-5)

  def test_a_tiny_kl_of_the_scale_is_precise(self):
    target, online = np.float32(0.3), np.float32(0.3003)
    ratio = np.float64(target) / np.float64(online)
    want = (ratio ** 2 - 1) / 2 - np.log(ratio)  # About 1e-6.
    self.assertAllClose(
        distributions.gaussian_kl_scale([target], [online]), want, rtol=1e-3, atol=0)

  @parameterized.parameters((0.3, 0.6001), (0.3, 0.5999), (1e-4, 1e4), (1e4, 1e-4))
  def test_the_kl_of_very_different_scales(self, target, online):
    ratio = target / online
    want = (ratio ** 2 - 1) / 2 - np.log(ratio)
    variable = tf.Variable([online])
    with tf.GradientTape() as tape:
      kl = distributions.gaussian_kl_scale([target], variable)
    self.assertAllClose(kl, want, rtol=1e-5)
    self.assertAllClose(
        tape.gradient(kl, variable), [(1 - ratio ** 2) / online], rtol=1e-3)

  def test_shapes_that_differ_are_refused(self):
    x, y = tf.ones([2, 3]), tf.ones([2, 4])
    with self.assertRaisesRegex(ValueError, '^scale'):
      distributions.gaussian_log_prob(x, y, x)
    with self.assertRaisesRegex(ValueError, '^actions'):
      distributions.gaussian_log_prob(x, x, y)
    with self.assertRaisesRegex(ValueError, '^online_mean'):
      distributions.gaussian_kl_mean(x, x, y)
    with self.assertRaisesRegex(ValueError, '^online_scale'):
      distributions.gaussian_kl_scale(x, y)


if __name__ == '__main__':
  absltest.main()
