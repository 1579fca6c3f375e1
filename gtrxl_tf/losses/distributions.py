"""Log-probabilities of policies, and the KL divergences that V-MPO bounds.

All results are computed in float32 for any input type: the trust regions of V-MPO are
as narrow as 5e-6, which half precision cannot resolve.
"""

import math

import tensorflow as tf

from gtrxl_tf.losses import shapes


def categorical_log_prob(logits: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
  """Returns log pi(a|s) of a categorical policy.

  Args:
    logits: [..., A], unnormalized.
    actions: [...] integers in [0, A).

  Returns:
    [...] float32.
  """
  logits = tf.cast(logits, tf.float32)
  actions = shapes.indices(actions)
  shapes.check('actions', actions, logits.shape[:-1], 'logits without its last axis')
  return -tf.nn.sparse_softmax_cross_entropy_with_logits(actions, logits)


def categorical_kl(target_logits: tf.Tensor, online_logits: tf.Tensor) -> tf.Tensor:
  """Returns KL(target || online) of two categorical policies.

  An action with target probability zero (a logit of -inf) contributes nothing.

  Args:
    target_logits: [..., A], unnormalized.
    online_logits: [..., A], unnormalized.

  Returns:
    [...] float32.
  """
  target = tf.nn.log_softmax(tf.cast(target_logits, tf.float32))
  online = tf.nn.log_softmax(tf.cast(online_logits, tf.float32))
  shapes.check('online_logits', online, target.shape, 'target_logits')
  probs = tf.exp(target)
  # Selection before multiplication, since 0 * (-inf) would be NaN.
  log_ratio = tf.where(probs > 0., target - online, 0.)
  return tf.reduce_sum(probs * log_ratio, axis=-1)


def gaussian_log_prob(
    mean: tf.Tensor, scale: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
  """Returns log pi(a|s) of a Gaussian policy with a diagonal covariance.

  Args:
    mean: [..., A].
    scale: [..., A] standard deviations, > 0.
    actions: [..., A] as sampled, before clipping to the task's bounds.

  Returns:
    [...] float32, summed over the A dimensions.
  """
  mean, scale, actions = (tf.cast(x, tf.float32) for x in (mean, scale, actions))
  shapes.check('scale', scale, mean.shape, 'mean')
  shapes.check('actions', actions, mean.shape, 'mean')
  return -tf.reduce_sum(
      0.5 * tf.square((actions - mean) / scale) + tf.math.log(scale)
      + 0.5 * math.log(2 * math.pi), axis=-1)


def gaussian_kl_mean(
    target_mean: tf.Tensor, target_scale: tf.Tensor, online_mean: tf.Tensor
) -> tf.Tensor:
  """Returns the mean component of KL(target || online).

  It is the divergence for an online policy with the target's scale,
  1/2 (mu - mu_t)' Sigma_t^-1 (mu - mu_t), and the first of the two decoupled
  constraints of continuous V-MPO (Abdolmaleki et al., 2018).

  Args:
    target_mean: [..., A].
    target_scale: [..., A] standard deviations, > 0.
    online_mean: [..., A].

  Returns:
    [...] float32, summed over the A dimensions: one multiplier constrains them all.
  """
  target_mean, target_scale, online_mean = (
      tf.cast(x, tf.float32) for x in (target_mean, target_scale, online_mean))
  shapes.check('target_scale', target_scale, target_mean.shape, 'target_mean')
  shapes.check('online_mean', online_mean, target_mean.shape, 'target_mean')
  return 0.5 * tf.reduce_sum(
      tf.square((online_mean - target_mean) / target_scale), axis=-1)


def gaussian_kl_scale(target_scale: tf.Tensor, online_scale: tf.Tensor) -> tf.Tensor:
  """Returns the scale component of KL(target || online).

  It is the divergence for an online policy with the target's mean,
  1/2 (tr(Sigma^-1 Sigma_t) - A + ln |Sigma| / |Sigma_t|), and the second of the
  decoupled constraints.

  Args:
    target_scale: [..., A] standard deviations, > 0.
    online_scale: [..., A] standard deviations, > 0.

  Returns:
    [...] float32, summed over the A dimensions: one multiplier constrains them all.
  """
  target_scale = tf.cast(target_scale, tf.float32)
  online_scale = tf.cast(online_scale, tf.float32)
  shapes.check('online_scale', online_scale, target_scale.shape, 'target_scale')
  # Written in the ratio minus one, the terms cancel only to first order, so that
  # divergences near 1e-6 keep their precision. A ratio of 1e-8, minus one, would be -1.
  excess = (target_scale - online_scale) / online_scale
  far = excess < -0.5
  log_ratio = tf.where(far, tf.math.log(target_scale) - tf.math.log(online_scale),
                       tf.math.log1p(tf.where(far, 0., excess)))
  return tf.reduce_sum(excess + 0.5 * tf.square(excess) - log_ratio, axis=-1)
