"""The loss of V-MPO (Song et al., 2019, arXiv 1909.12238): E-step and M-step.

It does not include the value loss, which is a regression on the returns of returns.py.
"""

from typing import NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from gtrxl_tf.losses import averages
from gtrxl_tf.losses import shapes


class VMPOLoss(NamedTuple):
  """The terms of the loss, float32; all except `weights` are scalars.

  On N replicas each scalar is the replica's share: the sum over replicas is the loss of
  the global batch.
  """
  total_loss: tf.Tensor  # The sum of the four below.
  policy_loss: tf.Tensor  # -sum psi log pi.
  temperature_loss: tf.Tensor  # eta eps_eta + eta log mean exp(A / eta).
  kl_loss: tf.Tensor  # Sum over constraints of sg(alpha) mean KL.
  alpha_loss: tf.Tensor  # Sum over constraints of alpha (eps_alpha - sg(mean KL)).
  weights: tf.Tensor  # psi in the shape of the advantages; zero outside the top.


def vmpo_loss(
    log_probs: tf.Tensor,
    advantages: tf.Tensor,
    temperature: tf.Tensor,
    epsilon_temperature: float,
    kl_constraints: Sequence[Tuple[tf.Tensor, tf.Tensor, float]],
    valid_mask: Optional[tf.Tensor] = None,
    top_fraction: float = 0.5,
) -> VMPOLoss:
  """Computes policy, temperature, KL and alpha losses of one batch of steps.

  The E-step keeps the top fraction of the *valid* steps by advantage,
  n = max(1, floor(top_fraction * number of valid steps)), and weights them by
  psi = softmax(A / eta). Steps that tie with the n-th are kept too, both in psi and in
  the temperature loss: if all advantages are equal, all steps have the same weight. The
  constraints hold on average over all valid steps, not only over the top.

  In a replica context of N > 1 replicas the batch is the *global* batch: advantages
  and mask are gathered from all replicas; ranks, normalizers and averages are over all
  of them; and each loss is the replica's share. Summed over replicas, losses and
  gradients equal those of one replica with the global batch. Optimizers sum gradients,
  so do not divide by N.

  No gradient flows through the advantages, through eta in psi, through alpha in the KL
  loss, or through the KL in the alpha loss. Inputs of lower precision are cast to
  float32. Without valid steps all losses, weights and gradients are zero.

  >>> import tensorflow as tf
  >>> from gtrxl_tf.losses import vmpo
  >>> loss = vmpo.vmpo_loss(
  ...     log_probs=tf.math.log([0.5, 0.5, 0.25, 0.25]),
  ...     advantages=tf.constant([1.0, 1.0, -1.0, -2.0]), temperature=tf.constant(1.0),
  ...     epsilon_temperature=0.1, kl_constraints=[(tf.zeros([4]), 1.0, 0.01)])
  >>> loss.weights.numpy()
  array([0.5, 0.5, 0. , 0. ], dtype=float32)

  Args:
    log_probs: log pi(a|s) of the online policy, of any shape, for example [B, T].
    advantages: A, in the shape of log_probs.
    temperature: eta, a scalar > 0.
    epsilon_temperature: eps_eta, the bound on KL(psi || uniform).
    kl_constraints: for each trust region a tuple (kl, alpha, epsilon): the divergence
      KL(target || online) at each step, in the shape of log_probs; its multiplier, a
      scalar >= 0; its bound. A categorical policy has one, a Gaussian policy two (mean
      and scale), their product three.
    valid_mask: in the shape of log_probs, true where the step counts; None if all do.
      Values of the other inputs at steps that do not count, even NaN, have no
      influence, and their gradient there is zero.
    top_fraction: the fraction of valid steps that is kept, in (0, 1]. One half in the
      paper.

  Returns:
    A VMPOLoss.
  """
  if not 0 < top_fraction <= 1:
    raise ValueError(
        f'top_fraction: expected a number in (0, 1], got {top_fraction!r}')
  log_probs = tf.cast(log_probs, tf.float32)
  advantages = tf.stop_gradient(tf.cast(advantages, tf.float32))
  shapes.check('advantages', advantages, log_probs.shape, 'log_probs')
  temperature = _read(temperature)
  shapes.check('temperature', temperature, [])
  valid = averages.valid_steps(valid_mask, log_probs)

  # Selected first, so that no NaN at a masked step enters a product.
  advantages = tf.where(valid, advantages, 0.)
  log_probs = tf.where(valid, log_probs, 0.)
  all_advantages, all_valid, num_replicas = _gather(advantages, valid)
  num_valid = _count(all_valid)
  any_valid = num_valid > 0

  best, threshold = _best_and_threshold(all_advantages, all_valid, top_fraction)
  top = _top(advantages, valid, threshold)
  all_top = _top(all_advantages, all_valid, threshold)

  # exp((A - max A) / eta) cannot overflow, and is one at the best step.
  normalizer = tf.reduce_sum(
      _masked_exp(all_advantages - best, temperature, all_top))
  weights = tf.stop_gradient(tf.math.divide_no_nan(
      _masked_exp(advantages - best, temperature, top), normalizer))
  policy_loss = -tf.reduce_sum(weights * tf.where(top, log_probs, 0.))

  # Each replica computes the temperature's full loss and returns its share.
  mean_exp = tf.where(any_valid, normalizer / tf.maximum(_count(all_top), 1.), 1.)
  temperature_loss = tf.where(
      any_valid,
      temperature * (epsilon_temperature + tf.math.log(mean_exp)) + best,
      0.) / num_replicas

  kl_loss = alpha_loss = tf.constant(0.)
  share = tf.math.divide_no_nan(_count(valid), num_valid)
  for i, constraint in enumerate(kl_constraints):
    kl, alpha, epsilon = _check_constraint(i, constraint, log_probs.shape)
    mean_kl = tf.math.divide_no_nan(
        tf.reduce_sum(tf.where(valid, kl, 0.)), num_valid)
    kl_loss += tf.stop_gradient(alpha) * mean_kl
    alpha_loss += alpha * (share * epsilon - tf.stop_gradient(mean_kl))

  return VMPOLoss(
      total_loss=policy_loss + temperature_loss + kl_loss + alpha_loss,
      policy_loss=policy_loss,
      temperature_loss=temperature_loss,
      kl_loss=kl_loss,
      alpha_loss=alpha_loss,
      weights=weights)


def _check_constraint(index: int, constraint, shape: tf.TensorShape):
  """Returns a constraint's divergence and multiplier as float32, and its bound."""
  name = f'kl_constraints[{index}]'
  if not isinstance(constraint, (tuple, list)) or len(constraint) != 3:
    raise ValueError(f'{name}: expected a tuple (kl, alpha, epsilon), got {constraint}')
  kl, alpha, epsilon = constraint
  kl, alpha = tf.cast(kl, tf.float32), _read(alpha)
  shapes.check(f'{name}, kl', kl, shape, 'log_probs')
  shapes.check(f'{name}, alpha', alpha, [])
  return kl, alpha, epsilon


def _read(scalar) -> tf.Tensor:
  """Returns a number, tensor or variable as float32; NaN if it is not finite.

  Grappler (TensorFlow 2.15) can lose the control edges that delay an optimizer's update
  until a variable has been read: in about one of several hundred steps psi or the KL
  loss used the variables after the update. Therefore a variable is read only here
  (tf.cast returns a float32 variable as it is, to be read at each use), and its
  gradient depends on a test of the value read, so that no update can come first.
  """
  value = tf.cast(tf.convert_to_tensor(scalar), tf.float32)
  return tf.where(tf.math.is_finite(value), value, float('nan'))


def _gather(advantages: tf.Tensor, valid: tf.Tensor):
  """Returns the flat advantages and masks of all replicas, and their number."""
  advantages, valid = tf.reshape(advantages, [-1]), tf.reshape(valid, [-1])
  context = tf.distribute.get_replica_context()  # None where replicas are merged.
  num_replicas = context.num_replicas_in_sync if context else 1
  if num_replicas == 1:
    return advantages, valid, 1
  # One collective for both. The mask is a separate column instead of -inf among the
  # advantages, since TPUs gather by multiplying with zeros and adding.
  rows = tf.stack([advantages, tf.cast(valid, tf.float32)], axis=-1)
  gathered = context.all_gather(rows, axis=0)
  if rows.shape[0] is not None:  # MirroredStrategy loses the static shape.
    gathered = tf.ensure_shape(gathered, [num_replicas * rows.shape[0], 2])
  return gathered[:, 0], gathered[:, 1] > 0, num_replicas


def _best_and_threshold(advantages: tf.Tensor, valid: tf.Tensor, fraction: float):
  """Returns the highest advantage and the lowest one in the top, for inputs [N].

  Both are -inf if no step is valid.
  """
  ranked = tf.sort(tf.where(valid, advantages, -float('inf')), direction='DESCENDING')
  # The number of valid steps is known only when the graph runs. Shapes stay static
  # because the threshold is looked up. A gather looks it up, since XLA compiles a slice
  # again for each index.
  # Without 1e-6, a product such as 0.65 * 380 would be a little below 247.
  count = _count(valid)
  num_top = tf.maximum(
      tf.cast(tf.minimum(fraction * (1 + 1e-6) * count, count), tf.int32), 1)
  return ranked[0], tf.gather(ranked, num_top - 1)


def _top(advantages: tf.Tensor, valid: tf.Tensor, threshold: tf.Tensor) -> tf.Tensor:
  # NaNs are kept, so that they appear in the loss.
  return valid & ((advantages >= threshold) | tf.math.is_nan(advantages))


def _masked_exp(x: tf.Tensor, temperature: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
  """Returns exp(x / temperature) where the mask is true, else 0, also for gradients."""
  return tf.where(mask, tf.exp(tf.where(mask, x, 0.) / temperature), 0.)


def _count(mask: tf.Tensor) -> tf.Tensor:
  return tf.reduce_sum(tf.cast(mask, tf.float32))
