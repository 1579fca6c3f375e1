"""The loss of conservative Q-learning, CQL(H), for discrete actions.

Kumar et al. (2020), "Conservative Q-Learning for Offline Reinforcement Learning",
arXiv 2006.04779. For continuous actions TF-Agents has an implementation.
"""

from typing import NamedTuple

import tensorflow as tf

from gtrxl_tf.losses import averages
from gtrxl_tf.losses import shapes


class CQLLoss(NamedTuple):
  """The terms of the loss, scalars; on N replicas each is this replica's share."""
  total_loss: tf.Tensor         # td_loss + alpha conservative_loss.
  td_loss: tf.Tensor            # Half the mean squared Bellman error.
  conservative_loss: tf.Tensor  # Mean of log sum_a exp Q(s, a) - Q(s, a_data).


def cql_loss(q_values: tf.Tensor, actions: tf.Tensor, targets: tf.Tensor, alpha: float,
             mask: tf.Tensor) -> CQLLoss:
  """Computes equation 4, which lowers the Q values of actions that are not in the data.

  Args:
    q_values: [..., A] Q(s, a) of every action.
    actions: [...] integers in [0, A), the actions in the data.
    targets: [...] targets of Q(s, a_data); no gradient flows through them.
    alpha: weight of the conservative term, >= 0.
    mask: [...] bool, the steps to learn from.

  Returns:
    A CQLLoss. Values at steps outside the mask have no influence, but must be finite.
  """
  q_values = tf.cast(q_values, tf.float32)
  actions = tf.convert_to_tensor(actions)
  targets = tf.stop_gradient(tf.cast(targets, tf.float32))
  mask = tf.cast(mask, tf.bool)
  expected = q_values.shape[:-1], 'q_values without its last axis'
  shapes.check('actions', actions, *expected)
  shapes.check('targets', targets, *expected)
  shapes.check('mask', mask, *expected)
  q_data = taken_values(q_values, tf.where(mask, shapes.indices(actions), 0))
  mean = averages.MaskedMean(mask)
  td_loss = mean(0.5 * tf.square(q_data - targets))
  conservative_loss = mean(tf.reduce_logsumexp(q_values, axis=-1) - q_data)
  return CQLLoss(td_loss + alpha * conservative_loss, td_loss, conservative_loss)


def double_q_targets(rewards: tf.Tensor, discounts: tf.Tensor, q_values: tf.Tensor,
                     target_q_values: tf.Tensor, gamma: float) -> tf.Tensor:
  """Computes targets of Q(s_t, a_t) by double Q-learning (van Hasselt et al., 2016).

    r_t + gamma d_t Q_target(s_{t+1}, argmax_a Q(s_{t+1}, a))

  Rows are consecutive steps; r_t and d_t follow the action a_t. The value after the
  last step of a row is set to 0, see `target_mask`.

  Args:
    rewards: [B, T].
    discounts: [B, T] of the environment, 0 where the episode terminated.
    q_values: [B, T, A] of the network that learns.
    target_q_values: [B, T, A] of the target network.
    gamma: the agent's discount per step, in [0, 1].

  Returns:
    [B, T] float32.
  """
  if not 0 <= gamma <= 1:
    raise ValueError(f'gamma: expected a number in [0, 1], got {gamma!r}')
  rewards, discounts, q_values, target_q_values = (
      tf.cast(x, tf.float32) for x in (rewards, discounts, q_values, target_q_values))
  shapes.check('discounts', discounts, rewards.shape, 'rewards')
  shapes.check('q_values', q_values, [*rewards.shape, None], 'rewards')
  shapes.check('target_q_values', target_q_values, q_values.shape, 'q_values')
  best = tf.argmax(q_values[:, 1:], axis=-1)
  values = taken_values(target_q_values[:, 1:], best)
  return rewards + gamma * discounts * tf.pad(values, [[0, 0], [0, 1]])


def target_mask(valid: tf.Tensor, discounts: tf.Tensor) -> tf.Tensor:
  """Returns which steps have a target: those with a next step, and terminations.

  The last step of a row has a target only if the episode terminated there. A time limit
  is therefore never mistaken for a termination, although no observation after it was
  recorded.

  Args:
    valid: [B, T] bool, False where a row is padded.
    discounts: [B, T] of the environment, 0 where the episode terminated.

  Returns:
    [B, T] bool.
  """
  valid, discounts = tf.cast(valid, tf.bool), tf.cast(discounts, tf.float32)
  shapes.check('discounts', discounts, valid.shape, 'valid')
  followed = tf.pad(valid[:, 1:], [[0, 0], [0, 1]])
  return valid & (followed | tf.equal(discounts, 0))


def taken_values(q_values: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
  """Returns the Q values [...] of the actions [...] from Q values [..., A]."""
  actions, q_values = shapes.indices(actions), tf.convert_to_tensor(q_values)
  shapes.check('actions', actions, q_values.shape[:-1], 'q_values')
  return tf.gather(q_values, actions, axis=-1, batch_dims=actions.shape.rank)
