"""The loss and the priorities of R2D2 (Kapturowski et al., 2019, ICLR).

"Recurrent Experience Replay in Distributed Reinforcement Learning", section 2.3.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from gtrxl_tf.losses import averages
from gtrxl_tf.losses import cql
from gtrxl_tf.losses import shapes


class R2D2Loss(NamedTuple):
  """The loss, the TD errors and the new priorities, float32."""
  total_loss: tf.Tensor  # A scalar; on N replicas this replica's share.
  td_errors: tf.Tensor   # [B, T]: target minus value, 0 where no action is taken.
  priorities: tf.Tensor  # [B]: those of the sequences, for the replay table.


def r2d2_loss(
    q_values: tf.Tensor,
    target_q_values: tf.Tensor,
    actions: tf.Tensor,
    rewards: tf.Tensor,
    discounts: tf.Tensor,
    is_last: tf.Tensor,
    weights: tf.Tensor,
    gamma: float = 0.997,
    n_step: int = 5,
    eta: float = 0.9,
    epsilon: float = 1e-3,
) -> R2D2Loss:
  """Computes the loss of n-step double Q-learning with value rescaling for sequences.

  The target of Q(s_t, a_t) is

    h(sum_{k<n} gamma^k r_{t+k+1} + gamma^n h^{-1}(Q_target(s_{t+n}, a*)))

  with a* = argmax_a Q(s_{t+n}, a) of the online network, and h as in `rescale`. See
  `n_step_targets` for the ends of episodes and sequences. The loss is half the mean
  squared error over the steps of all sequences, each times its sequence's weight. The
  paper does not say whether it is a mean or a sum.

  Steps are dm_env's: the reward at t came with observation t. No action is taken at an
  episode's last step, which has no loss. Sequences come without their burn-in.

  >>> import tensorflow as tf
  >>> from gtrxl_tf.losses import r2d2
  >>> loss = r2d2.r2d2_loss(
  ...     q_values=tf.zeros([1, 3, 2]), target_q_values=tf.zeros([1, 3, 2]),
  ...     actions=tf.zeros([1, 2], tf.int32), rewards=tf.constant([[0.0, 0.0, 3.0]]),
  ...     discounts=tf.ones([1, 3]), is_last=tf.zeros([1, 3], tf.bool),
  ...     weights=tf.ones([1]), gamma=0.5, n_step=1, eta=0.5, epsilon=0.0)
  >>> loss.td_errors.numpy()  # h(3) = sqrt(3 + 1) - 1
  array([[0., 1.]], dtype=float32)
  >>> loss.priorities.numpy()
  array([0.75], dtype=float32)

  Args:
    q_values: [B, T + 1, A] of the network that learns.
    target_q_values: [B, T + 1, A] of the target network.
    actions: [B, T] integers in [0, A): a_0 to a_{T-1}.
    rewards: [B, T + 1]; those at t = 0 are ignored.
    discounts: [B, T + 1] of the environment, in [0, 1]; those at t = 0 are ignored.
    is_last: [B, T + 1] bool, true at an episode's last observation.
    weights: [B], see `importance_weights`.
    gamma: the agent's discount per step, in [0, 1].
    n_step: n.
    eta: see `priorities`.
    epsilon: see `rescale`.

  Returns:
    An R2D2Loss. Gradients flow through `q_values` at the actions taken only, and only
    from `total_loss`.
  """
  q_values, target_q_values, rewards, weights = (
      tf.cast(x, tf.float32) for x in (q_values, target_q_values, rewards, weights))
  actions, is_last = tf.convert_to_tensor(actions), tf.cast(is_last, tf.bool)
  shapes.check('target_q_values', target_q_values, q_values.shape, 'q_values')
  shapes.check('rewards', rewards, q_values.shape[:2], 'q_values')
  if rewards.shape[1] is None:
    raise ValueError(f'rewards: expected a static T + 1, got {rewards.shape}')
  shapes.check('actions', actions, [rewards.shape[0], rewards.shape[1] - 1], 'rewards')
  shapes.check('weights', weights, rewards.shape[:1], 'rewards')
  best = tf.argmax(q_values, axis=-1)
  values = inverse_rescale(cql.taken_values(target_q_values, best), epsilon)
  targets = rescale(
      n_step_targets(rewards, discounts, values, is_last, gamma, n_step), epsilon)
  valid = ~is_last[:, :-1]
  actions = tf.where(valid, tf.cast(actions, tf.int32), 0)  # Last steps have no action.
  td_errors = tf.where(
      valid, tf.stop_gradient(targets) - cql.taken_values(q_values[:, :-1], actions), 0.)
  total_loss = averages.MaskedMean(valid)(
      0.5 * weights[:, tf.newaxis] * tf.square(td_errors))
  td_errors = tf.stop_gradient(td_errors)
  return R2D2Loss(total_loss, td_errors, priorities(td_errors, valid, eta))


def rescale(x: tf.Tensor, epsilon: float = 1e-3) -> tf.Tensor:
  """Computes h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x.

  Rescaled values take the place of clipped rewards.
  """
  x = _floats(x)
  size = tf.abs(x)
  # The same function, without a difference of two nearly equal numbers.
  return tf.sign(x) * size / (tf.sqrt(size + 1) + 1) + epsilon * x


def inverse_rescale(x: tf.Tensor, epsilon: float = 1e-3) -> tf.Tensor:
  """Computes the inverse of `rescale` (Pohlen et al., 2018, proposition A.2).

  sign(x) (((sqrt(1 + 4 epsilon (|x| + 1 + epsilon)) - 1) / (2 epsilon))^2 - 1).
  """
  x = _floats(x)
  size = tf.abs(x)
  # The same function, with small errors in float32, and defined if epsilon is 0.
  root = tf.sqrt(1 + 4 * epsilon * (size + 1 + epsilon))
  inner = 2 * (size + 1 + epsilon) / (root + 1)
  return tf.sign(x) * (tf.square(inner) - 1)


def _floats(x: Any) -> tf.Tensor:
  x = tf.convert_to_tensor(x)
  return tf.cast(x, tf.float32) if x.dtype.is_integer else x


def n_step_targets(rewards: tf.Tensor, discounts: tf.Tensor, values: tf.Tensor,
                   is_last: tf.Tensor, gamma: float, n_step: int) -> tf.Tensor:
  """Computes the sums of n discounted rewards and of the value after them.

  Where the sequence or the episode ends earlier, there are fewer rewards, and the value
  is that of the last observation. The environment's discount there is 0 if the episode
  terminated, and 1 at a time limit. What follows in the next episode has no influence.

  Args:
    rewards: [B, T + 1]; those at t = 0 are ignored.
    discounts: [B, T + 1] of the environment, in [0, 1]; those at t = 0 are ignored.
    values: [B, T + 1] of each observation, in the units of the rewards.
    is_last: [B, T + 1] bool, true at an episode's last observation.
    gamma: the agent's discount per step, in [0, 1].
    n_step: n, at least 1.

  Returns:
    [B, T] float32; meaningless where `is_last`.
  """
  if not 0 <= gamma <= 1:
    raise ValueError(f'gamma: expected a number in [0, 1], got {gamma!r}')
  if n_step < 1:
    raise ValueError(f'n_step: expected an integer >= 1, got {n_step!r}')
  rewards, discounts, values = (
      tf.cast(x, tf.float32) for x in (rewards, discounts, values))
  is_last = tf.cast(is_last, tf.bool)
  for name, x in ('discounts', discounts), ('values', values), ('is_last', is_last):
    shapes.check(name, x, rewards.shape, 'rewards')
  ends = is_last[:, 1:]
  discounts = gamma * discounts[:, 1:]
  sums = values  # Returns over no step.
  for _ in range(n_step):
    later = tf.where(ends, values[:, 1:], sums[:, 1:])
    sums = tf.concat([
        rewards[:, 1:] + tf.math.multiply_no_nan(later, discounts), values[:, -1:]],
                     axis=1)
  return sums[:, :-1]


def priorities(td_errors: tf.Tensor, valid: tf.Tensor, eta: float = 0.9) -> tf.Tensor:
  """Computes eta max |delta| + (1 - eta) mean |delta| of each sequence (section 2.3).

  Args:
    td_errors: [B, T], delta.
    valid: [B, T] bool, the steps that count.
    eta: in [0, 1].

  Returns:
    [B]; 0 for a sequence without valid steps.
  """
  if not 0 <= eta <= 1:
    raise ValueError(f'eta: expected a number in [0, 1], got {eta!r}')
  td_errors, valid = tf.cast(td_errors, tf.float32), tf.cast(valid, tf.bool)
  shapes.check('valid', valid, td_errors.shape, 'td_errors')
  sizes = tf.where(valid, tf.abs(td_errors), 0.)
  mean = tf.math.divide_no_nan(
      tf.reduce_sum(sizes, axis=1),
      tf.reduce_sum(tf.cast(valid, tf.float32), axis=1))
  return eta * tf.reduce_max(sizes, axis=1) + (1 - eta) * mean


def importance_weights(probabilities: tf.Tensor, table_sizes: tf.Tensor, beta: float
                       ) -> tf.Tensor:
  """Computes (N P(i))^-beta, divided by the greatest of the batch.

  The source is "Prioritized Experience Replay" (Schaul et al., 2016), section 3.4.

  Args:
    probabilities: [B], P: the probability with which each item was sampled.
    table_sizes: [B], N: the size of the table at that time.
    beta: the exponent, in [0, 1].

  Returns:
    [B] float32, at most 1.
  """
  probabilities, table_sizes = (
      tf.cast(x, tf.float32) for x in (probabilities, table_sizes))
  shapes.check('table_sizes', table_sizes, probabilities.shape, 'probabilities')
  log_weights = -beta * tf.math.log(probabilities * table_sizes)
  return tf.exp(log_weights - tf.reduce_max(log_weights))
