"""Vector quantization and the loss of TAP's model of trajectories.

Jiang et al. (2023), "Efficient Planning in a Compact Latent Action Space" (TAP), with
the codebook of van den Oord et al. (2017), "Neural Discrete Representation Learning".
"""

from typing import NamedTuple, Tuple

import tensorflow as tf

from gtrxl_tf.losses import averages
from gtrxl_tf.losses import shapes

# A code that no feature has been near for about 1,400 steps, or for fewer if its count
# was small, stays where it is: its average would soon be 0 / 0.
_MIN_COUNT = 1e-6


def nearest_codes(features: tf.Tensor, codebook: tf.Tensor) -> tf.Tensor:
  """Returns the index of the code nearest to each feature.

  Args:
    features: `[..., C]`.
    codebook: `[K, C]`.

  Returns:
    `[...]`, int32.
  """
  features, codebook = tf.cast(features, tf.float32), tf.cast(codebook, tf.float32)
  # Without the squares of features, which are the same for all codes.
  distances = (tf.reduce_sum(tf.square(codebook), axis=-1)
               - 2 * tf.tensordot(features, codebook, [[-1], [-1]]))
  return tf.argmin(distances, axis=-1, output_type=tf.int32)


def straight_through(features: tf.Tensor, codes: tf.Tensor) -> tf.Tensor:
  """Returns the codes `[..., C]`, whose gradient goes to the features `[..., C]`."""
  return features + tf.stop_gradient(codes - features)


def code_sums(features: tf.Tensor, indices: tf.Tensor, num_codes: int
              ) -> Tuple[tf.Tensor, tf.Tensor]:
  """Counts how often each code was the nearest, `[K]`, and sums its features, `[K, C]`.

  Args:
    features: `[B, M, C]`.
    indices: `[B, M]`.
    num_codes: K.
  """
  features = tf.stop_gradient(tf.cast(features, tf.float32))
  one_hot = tf.one_hot(indices, num_codes)
  return (tf.reduce_sum(one_hot, axis=[0, 1]),
          tf.einsum('bmk,bmc->kc', one_hot, features))


def moved_codes(codebook: tf.Tensor, counts: tf.Tensor, sums: tf.Tensor,
                new_counts: tf.Tensor, new_sums: tf.Tensor, decay: float
                ) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Moves codes to the moving averages of their features (appendix A.1 of VQ-VAE).

  Args:
    codebook: `[K, C]`.
    counts: `[K]`, the moving average of `new_counts`.
    sums: `[K, C]`, the moving average of `new_sums`.
    new_counts: the counts of a batch, see `code_sums`.
    new_sums: the sums of a batch.
    decay: decay of the averages.

  Returns:
    The new codebook, counts and sums.
  """
  counts = decay * counts + (1 - decay) * new_counts
  sums = decay * sums + (1 - decay) * new_sums
  used = (counts > _MIN_COUNT)[:, tf.newaxis]
  means = tf.math.divide_no_nan(sums, counts[:, tf.newaxis])
  return tf.where(used, means, codebook), counts, sums


class TAPLoss(NamedTuple):
  """The terms of the loss, scalars; on N replicas each is this replica's share."""
  total_loss: tf.Tensor      # Their sum.
  reconstruction: tf.Tensor  # Mean weighted squared error of the steps.
  ended: tf.Tensor           # Cross-entropy of whether the episode is over.
  commitment: tf.Tensor      # Mean squared distance of features to their codes.
  prior: tf.Tensor           # Cross-entropy of the codes.


def tap_loss(predicted: tf.Tensor, steps: tf.Tensor, weights: tf.Tensor,
             ended_logits: tf.Tensor, valid: tf.Tensor, features: tf.Tensor,
             codes: tf.Tensor, prior_logits: tf.Tensor, indices: tf.Tensor) -> TAPLoss:
  """Computes the losses of the autoencoder and of the prior.

  Args:
    predicted: `[B, T, X]`, the decoder's steps.
    steps: `[B, T, X]`, the recorded ones.
    weights: `[X]`, the weight of each number's squared error.
    ended_logits: `[B, T]`, logits of whether the episode is over.
    valid: bool `[B, T]`, False where the episode is over. Values of `steps` there have
      no influence, but must be finite.
    features: `[B, M, C]`, the encoder's.
    codes: `[B, M, C]`, the codes nearest to the features; no gradient reaches them.
    prior_logits: `[B, M, K]`, the prior's for each code, from the codes before it.
    indices: `[B, M]`, the indices of the codes.
  """
  features = tf.cast(features, tf.float32)
  for name, x, expected, source in (
      ('steps', steps, predicted.shape, 'predicted'),
      ('weights', weights, predicted.shape[-1:], 'predicted'),
      ('ended_logits', ended_logits, predicted.shape[:2], 'predicted'),
      ('valid', valid, predicted.shape[:2], 'predicted'),
      ('codes', codes, features.shape, 'features'),
      ('indices', indices, features.shape[:2], 'features')):
    shapes.check(name, x, expected, source)
  errors = tf.reduce_mean(weights * tf.square(predicted - steps), axis=-1)
  everywhere, all_codes = (
      averages.MaskedMean(tf.ones_like(x, tf.bool)) for x in (valid, indices))
  terms = dict(
      reconstruction=averages.MaskedMean(valid)(errors),
      ended=everywhere(tf.nn.sigmoid_cross_entropy_with_logits(
          tf.cast(~valid, tf.float32), ended_logits)),
      commitment=all_codes(tf.reduce_mean(
          tf.square(features - tf.stop_gradient(codes)), axis=-1)),
      prior=all_codes(tf.nn.sparse_softmax_cross_entropy_with_logits(
          indices, prior_logits)))
  return TAPLoss(tf.add_n(list(terms.values())), **terms)
