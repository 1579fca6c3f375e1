"""The loss of PPO (Schulman et al., 2017, arXiv 1707.06347): the clipped surrogate.

It does not include the value loss, which is a regression on the returns of returns.py.
"""

from typing import NamedTuple, Optional

import tensorflow as tf

from gtrxl_tf.losses import averages
from gtrxl_tf.losses import shapes

# exp of this is finite, even squared. A ratio this large is clipped anyway where the
# advantage is positive, but an infinite one would make the gradient NaN.
_LARGEST_LOG_RATIO = 40.
# Added to the standard deviation of advantages, so that it is not 0.
_DEVIATION_EPSILON = 1e-8


class PPOLoss(NamedTuple):
  """The terms of the loss, float32 scalars.

  On N replicas each is the replica's share: the sum over replicas is that of the global
  batch.
  """
  total_loss: tf.Tensor  # The sum of the two below.
  policy_loss: tf.Tensor  # -mean min(r A, clip(r, 1 - eps, 1 + eps) A).
  entropy_loss: tf.Tensor  # -entropy_cost mean H.
  clip_fraction: tf.Tensor  # The fraction of steps with |r - 1| > eps.


def ppo_loss(
    log_probs: tf.Tensor,
    acting_log_probs: tf.Tensor,
    advantages: tf.Tensor,
    entropies: tf.Tensor,
    valid_mask: Optional[tf.Tensor] = None,
    clip_ratio: float = 0.2,
    entropy_cost: float = 0.0,
    normalize_advantages: bool = False,
) -> PPOLoss:
  """Computes the clipped surrogate objective and the entropy bonus of a batch of steps.

  With r = pi(a|s) / pi_acting(a|s), the objective to maximize is (equation 7)

    L = mean min(r A, clip(r, 1 - eps, 1 + eps) A)

  and an entropy bonus is added to it (equation 9).

  In a replica context of N > 1 replicas the batch is the *global* batch: averages and
  the statistics of advantages are over all replicas, and each loss is the replica's
  share. Summed over replicas, losses and gradients equal those of one replica with the
  global batch. Optimizers sum gradients, so do not divide by N.

  No gradient flows through the advantages or the acting policy. Inputs of lower
  precision are cast to float32. Without valid steps all losses and gradients are zero.

  >>> import tensorflow as tf
  >>> from gtrxl_tf.losses import ppo
  >>> loss = ppo.ppo_loss(
  ...     log_probs=tf.math.log([0.6, 0.5]), acting_log_probs=tf.math.log([0.4, 0.5]),
  ...     advantages=tf.constant([1.0, -1.0]), entropies=tf.zeros([2]))
  >>> round(float(loss.policy_loss), 4), float(loss.clip_fraction)  # -(1.2 - 1) / 2
  (-0.1, 0.5)

  Args:
    log_probs: log pi(a|s) of the online policy, of any shape, for example [B, T].
    acting_log_probs: log pi(a|s) of the policy that acted, in the shape of log_probs.
    advantages: A, in the shape of log_probs.
    entropies: H, the entropy of the online policy, in the shape of log_probs.
    valid_mask: in the shape of log_probs, true where the step counts; None if all do.
      Values of the other inputs at steps that do not count, even NaN, have no
      influence, and their gradient there is zero.
    clip_ratio: eps, > 0. 0.2 in the paper.
    entropy_cost: factor of the entropy bonus.
    normalize_advantages: subtracts the mean of the batch's valid steps from advantages,
      and divides them by their standard deviation.

  Returns:
    A PPOLoss.
  """
  if not clip_ratio > 0:
    raise ValueError(f'clip_ratio: expected a number > 0, got {clip_ratio!r}')
  log_probs, entropies = (tf.cast(x, tf.float32) for x in (log_probs, entropies))
  acting_log_probs, advantages = (
      tf.stop_gradient(tf.cast(x, tf.float32)) for x in (acting_log_probs, advantages))
  shapes.check('acting_log_probs', acting_log_probs, log_probs.shape, 'log_probs')
  shapes.check('advantages', advantages, log_probs.shape, 'log_probs')
  shapes.check('entropies', entropies, log_probs.shape, 'log_probs')
  valid = averages.valid_steps(valid_mask, log_probs)
  mean = averages.MaskedMean(valid)

  # Selected first, so that no NaN at a masked step enters a product.
  advantages = tf.where(valid, advantages, 0.)
  log_ratios = (tf.where(valid, log_probs, 0.)
                - tf.where(valid, acting_log_probs, 0.))
  if normalize_advantages:
    for _ in range(2):  # If all are equal, one pass leaves the mean's rounding error.
      advantages -= averages.sum_over_replicas(mean(advantages))
    deviation = tf.sqrt(averages.sum_over_replicas(mean(tf.square(advantages))))
    advantages /= deviation + _DEVIATION_EPSILON

  ratios = tf.exp(tf.minimum(log_ratios, _LARGEST_LOG_RATIO))
  clipped = tf.clip_by_value(ratios, 1. - clip_ratio, 1. + clip_ratio)
  policy_loss = -mean(tf.minimum(ratios * advantages, clipped * advantages))
  entropy_loss = -entropy_cost * mean(entropies)
  return PPOLoss(
      total_loss=policy_loss + entropy_loss,
      policy_loss=policy_loss,
      entropy_loss=entropy_loss,
      clip_fraction=mean(tf.cast(tf.abs(ratios - 1.) > clip_ratio, tf.float32)))
