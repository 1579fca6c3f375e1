"""The loss of agents that imitate recorded actions, and how their policies sample."""

from typing import Any, Dict, Tuple

import tensorflow as tf

from gtrxl_tf.losses import averages
from gtrxl_tf.networks import action_space


def loss(space: action_space.ActionSpace, policy: action_space.Policy, action: Any,
         valid: tf.Tensor, label_smoothing: float = 0.0
         ) -> Tuple[tf.Tensor, Dict[str, tf.Tensor]]:
  """Computes the loss of imitation.

  It is the cross-entropy of discrete actions plus the squared error of continuous ones.

  Args:
    space: the action space.
    policy: the policy at every step, `[B, T, ...]`.
    action: the recorded actions, samples of `space`, `[B, T, ...]`.
    valid: bool `[B, T]`. Other steps have no influence, but must be finite.
    label_smoothing: fraction of the target that is spread over all discrete actions.

  Returns:
    The loss, and metrics that include it; on a replica, that replica's share of both.
  """
  mean = averages.MaskedMean(valid)
  metrics, losses = {}, []
  if space.num_discrete:
    surprise = -space.discrete_log_prob(policy, action)
    metrics['cross_entropy'] = mean(surprise)
    if label_smoothing:
      surprise = ((1 - label_smoothing) * surprise
                  + label_smoothing * _cross_entropy_with_uniform(space, policy, action))
    losses.append(mean(surprise))
  if 'mean' in space.constraints:
    metrics['squared_error'] = mean(space.squared_error(policy, action))
    losses.append(metrics['squared_error'])
  if space.is_discrete:
    hit = tf.equal(tf.cast(space.mode(policy), action.dtype), action)
    metrics['accuracy'] = mean(tf.cast(hit, tf.float32))
  total = tf.add_n(losses)
  return total, {'loss': total, **metrics}


def sample(space: action_space.ActionSpace, policy: action_space.Policy, seed: Any) -> Any:
  """Draws discrete actions; takes the mean of continuous ones.

  `loss` trains no standard deviation, so noise of that scale would mean nothing.

  Args:
    space: the action space.
    policy: `[B, ...]`.
    seed: see `ActionSpace.sample`.
  """
  no_noise = tf.nest.map_structure(tf.zeros_like, policy.scale)
  return space.sample(policy._replace(scale=no_noise), seed)


def _cross_entropy_with_uniform(
    space: action_space.ActionSpace, policy: action_space.Policy, action: Any
    ) -> tf.Tensor:
  """Computes the cross-entropy `[B, T]` with uniform targets, for any actions."""
  uniform = action_space.Policy(logits=tf.zeros_like(policy.logits),
                                mean=policy.mean, scale=policy.scale)
  # It is the targets' entropy plus the KL from them.
  return (space.kl(uniform, policy)['categorical']
          - space.discrete_log_prob(uniform, action))
