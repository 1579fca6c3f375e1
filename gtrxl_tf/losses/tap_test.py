"""Compares TAP's loss and quantization with numpy."""

import numpy as np
import tensorflow as tf

from gtrxl_tf.losses import tap

_B, _T, _X, _M, _K, _C = 3, 6, 4, 2, 5, 3


def _normal(seed, *shape):
  return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def _mean(x, mask):
  return np.sum(x[mask], dtype=np.float64) / mask.sum()


class QuantizationTest(tf.test.TestCase):

  def test_the_gradient_of_the_nearest_code_goes_straight_to_the_feature(self):
    features = tf.Variable(_normal(0, _B, _M, _C))
    codebook = tf.Variable(_normal(1, _K, _C))
    with tf.GradientTape() as tape:
      indices = tap.nearest_codes(features, codebook)
      codes = tf.gather(tf.convert_to_tensor(codebook), indices)
      quantized = tap.straight_through(features, codes)
      loss = tf.reduce_sum(tf.sin(quantized))
    found = np.square(features.numpy()[:, :, np.newaxis] - codebook.numpy()).sum(-1)
    self.assertAllEqual(indices, found.argmin(-1))
    expected = codebook.numpy()[found.argmin(-1)]
    self.assertAllClose(quantized, expected)
    to_features, to_codes = tape.gradient(loss, [features, codebook])
    self.assertAllClose(to_features, np.cos(expected))
    self.assertIsNone(to_codes)

  def test_codes_are_moving_averages_of_their_features(self):
    codebook = expected = _normal(0, _K, _C)
    counts, sums = np.ones(_K, np.float32), codebook
    expected_counts, expected_sums = counts.copy(), sums.copy()
    for seed in range(4):
      features = _normal(seed, _B, _M, _C)
      indices = np.random.RandomState(seed).randint(_K - 1, size=[_B, _M])
      new_counts, new_sums = np.zeros(_K), np.zeros([_K, _C])
      for index, feature in zip(indices.ravel(), features.reshape([-1, _C])):
        new_counts[index] += 1
        new_sums[index] += feature
      expected_counts = 0.9 * expected_counts + 0.1 * new_counts
      expected_sums = 0.9 * expected_sums + 0.1 * new_sums
      expected = expected_sums / expected_counts[:, np.newaxis]
      codebook, counts, sums = tap.moved_codes(
          codebook, counts, sums,
          *tap.code_sums(tf.constant(features), tf.constant(indices), _K), 0.9)
    self.assertAllClose(codebook, expected)
    self.assertAllClose(counts, expected_counts)

  def test_a_code_that_is_never_near_stays_finite(self):
    codebook, counts, sums = _normal(0, 1, _C), tf.ones([1]), _normal(0, 1, _C)
    start = codebook
    for _ in range(60):
      codebook, counts, sums = tap.moved_codes(
          codebook, counts, sums, tf.zeros([1]), tf.zeros([1, _C]), 0.1)
    self.assertAllClose(codebook, start)


class LossTest(tf.test.TestCase):

  def test_agrees_with_numpy(self):
    predicted, steps = _normal(0, _B, _T, _X), _normal(1, _B, _T, _X)
    weights = np.float32([1, 5, 1, 1])
    ended, logits = _normal(2, _B, _T), _normal(3, _B, _M, _K)
    features, codes = _normal(4, _B, _M, _C), _normal(5, _B, _M, _C)
    indices = np.random.RandomState(6).randint(_K, size=[_B, _M])
    valid = np.arange(_T) < np.array([[6], [4], [1]])
    losses = tap.tap_loss(
        tf.constant(predicted), np.where(valid[..., np.newaxis], steps, np.nan), weights,
        tf.constant(ended), tf.constant(valid), features, codes, logits,
        tf.constant(indices))
    errors = (weights * (predicted - steps) ** 2).mean(-1)
    probability = 1 / (1 + np.exp(-ended))
    chosen = np.take_along_axis(logits, indices[..., np.newaxis], -1)[..., 0]
    expected = [
        _mean(errors, valid),
        -np.mean(np.where(valid, np.log(1 - probability), np.log(probability))),
        np.mean((features - codes) ** 2),
        np.mean(np.log(np.exp(logits).sum(-1)) - chosen)]
    self.assertAllClose(losses[1:], expected, rtol=1e-5)
    self.assertAllClose(losses.total_loss, sum(expected), rtol=1e-5)
    with self.assertRaisesRegex(ValueError, 'steps: expected the shape .* of predicted'):
      tap.tap_loss(predicted, steps[:, :1], weights, ended, valid, features, codes,
                   logits, indices)


if __name__ == '__main__':
  tf.test.main()
