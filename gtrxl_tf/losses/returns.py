"""Returns of an unroll: the targets of the value function."""

import tensorflow as tf

from gtrxl_tf.losses import shapes


def n_step_returns(
    rewards: tf.Tensor,
    discounts: tf.Tensor,
    values: tf.Tensor,
    is_last: tf.Tensor,
    gamma: float,
    td_lambda: float = 1.0,
) -> tf.Tensor:
  """Computes returns to the end of the unroll, or of the episode if it ends earlier.

  With a `td_lambda` of 1 these are the value targets of V-MPO (Song et al., 2019).
  Every step uses all remaining rewards, and the value of the last observation in place
  of later ones:

    G_t = r_{t+1} + gamma d_{t+1} V_{t+1}   if t + 1 = T or is_last_{t+1}
    G_t = r_{t+1} + gamma d_{t+1} ((1 - lambda) V_{t+1} + lambda G_{t+1})   otherwise

  A smaller `td_lambda` makes them the lambda-returns of TD(lambda), and `G_t - V_t` the
  generalized advantage estimate (Schulman et al., 2016, equation 16).

  Time steps are those of dm_env: r_t and d_t came with observation t, after the action
  at t - 1. A termination (LAST with discount 0) therefore has no value after it, and a
  time limit (LAST with discount 1) has the value of its last observation.

  No action is taken at a LAST step. The return there is meaningless and must be left
  out of any loss; it has no influence on other returns, even if it is NaN.

  >>> import tensorflow as tf
  >>> from gtrxl_tf.losses import returns
  >>> returns.n_step_returns(
  ...     rewards=tf.constant([[0.0, 1.0, 2.0]]), discounts=tf.ones([1, 3]),
  ...     values=tf.constant([[5.0, 5.0, 8.0]]), is_last=tf.zeros([1, 3], tf.bool),
  ...     gamma=0.5).numpy()
  array([[4., 6.]], dtype=float32)

  Args:
    rewards: [B, T + 1, ...]; those at t = 0 are ignored. Further axes, for example the
      cells of an image, have separate returns with the same discounts.
    discounts: [B, T + 1] of the environment, in [0, 1]; those at t = 0 are ignored.
    values: [B, T + 1, ...] in the shape of the rewards: the online network's value of
      each observation, in the units of the rewards.
    is_last: [B, T + 1] bool, true at an episode's last observation.
    gamma: the agent's discount per step, in [0, 1].
    td_lambda: lambda, in [0, 1]: the weight of later rewards against the next value.

  Returns:
    [B, T, ...] float32. No gradient flows through the returns.
  """
  for name, number in (('gamma', gamma), ('td_lambda', td_lambda)):
    if not 0 <= number <= 1:
      raise ValueError(f'{name}: expected a number in [0, 1], got {number!r}')
  rewards, discounts, values = (
      tf.stop_gradient(tf.cast(x, tf.float32)) for x in (rewards, discounts, values))
  is_last = tf.cast(is_last, tf.bool)
  if (rewards.shape.rank or 0) < 2 or (rewards.shape[1] or 0) < 2:
    raise ValueError('rewards: expected the shape [B, T + 1, ...] with a static '
                     f'T >= 1, got {rewards.shape}')
  shapes.check('discounts', discounts, rewards.shape[:2], 'rewards')
  shapes.check('values', values, rewards.shape, 'rewards')
  shapes.check('is_last', is_last, rewards.shape[:2], 'rewards')
  num_steps = rewards.shape[1] - 1

  ends = is_last[:, 1:] | (tf.range(num_steps) == num_steps - 1)
  discounts = gamma * discounts[:, 1:]
  for _ in rewards.shape[2:]:
    ends, discounts = ends[..., tf.newaxis], discounts[..., tf.newaxis]
  # G_t = first_t + carry_t G_{t+1}.
  share = tf.where(ends, 1., 1. - td_lambda)  # The share of the next value.
  first = rewards[:, 1:] + tf.math.multiply_no_nan(discounts * values[:, 1:], share)
  carry = tf.where(ends, 0., td_lambda * discounts)
  later, returns = tf.zeros_like(first[:, 0]), []
  for one, weight in zip(
      *(reversed(tf.unstack(x, num_steps, axis=1)) for x in (first, carry))):
    # A weight of zero, at an episode's end, lets no NaN through.
    later = one + tf.math.multiply_no_nan(later, weight)
    returns.append(later)
  return tf.stack(returns[::-1], axis=1)
