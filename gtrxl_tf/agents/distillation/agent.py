"""Distillation of a learning algorithm from its learning histories."""

from typing import Any, Dict, NamedTuple, Tuple

import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf.agents.distillation import network as network_lib
from gtrxl_tf.losses import averages
from gtrxl_tf.networks import action_space


class HistoryBatch(NamedTuple):
  """A batch of parts of learning histories."""
  histories: network_lib.Histories  # With actions as the environment had them.
  valid: tf.Tensor  # Bool [B, T]: false where a row is padded.
  state: Any = ()   # The network's state before each row; () is the initial one.


@config.configurable
class DistillationAgent(tf.Module):
  """Imitates the actions of a learning algorithm.

  The loss is the cross-entropy of discrete actions plus the squared error of the mean
  of continuous ones ("Memory-Efficient Algorithm Distillation", equation 1).

  Gradients flow through all steps of a batch that the core lets them reach: with a
  `SegmentTransformer` whose `memory_gradient` is not stopped, through all segments.

  Args:
    network: the network that learns; its variables must exist.
    label_smoothing: fraction of the target that is spread over all actions (Table S3).
  """

  def __init__(self, network: network_lib.DistillationNetwork,
               label_smoothing: config.UnitInterval = 0.1):
    super().__init__(name='distillation')
    self.network = network
    self._label_smoothing = label_smoothing

  @property
  def learned_variables(self) -> Tuple[tf.Variable, ...]:
    """The variables that an optimizer changes."""
    return tuple(self.network.trainable_variables)

  def loss(self, batch: HistoryBatch) -> Tuple[tf.Tensor, Dict[str, Any]]:
    """The loss of a batch, and metrics. In a replica context, the replica's share.

    Values at steps that are not valid have no influence, but must be finite.

    Returns:
      The loss, and metrics. If the batch has states, the metrics contain `carried`: the
      nest of states after the last step.
    """
    space, network = self.network.action_space, self.network
    inputs = batch.histories._replace(
        action=space.from_environment(batch.histories.action))
    # Histories store discrete actions as bytes, which the losses do not accept.
    action = tf.nest.map_structure(
        lambda x: x[:, 1:] if x.dtype.is_floating else tf.cast(x[:, 1:], tf.int32),
        inputs.action)
    carries = bool(tf.nest.flatten(batch.state))
    state = batch.state if carries else network.core.empty_state(
        tf.shape(batch.valid)[0])
    policy, state = network(inputs, state, training=True)
    mean = averages.MaskedMean(batch.valid)
    metrics, losses = {}, []
    if space.num_discrete:
      surprise = -space.discrete_log_prob(policy, action)
      metrics['cross_entropy'] = mean(surprise)
      losses.append(mean(self._smooth(policy, action, surprise)))
    if 'mean' in space.constraints:
      metrics['squared_error'] = mean(space.squared_error(policy, action))
      losses.append(metrics['squared_error'])
    if space.is_discrete:
      hit = tf.equal(tf.cast(space.mode(policy), tf.int32), action)
      metrics['accuracy'] = mean(tf.cast(hit, tf.float32))
    loss = tf.add_n(losses)
    if carries:
      metrics['carried'] = state
    return loss, {'loss': loss, **metrics}

  def _smooth(self, policy: action_space.Policy, action: Any, surprise: tf.Tensor
              ) -> tf.Tensor:
    """The cross-entropy with smoothed targets.

    Args:
      policy: `[B, T, ...]`.
      action: the recorded actions.
      surprise: the cross-entropy without smoothing, `[B, T]`.
    """
    if not self._label_smoothing:
      return surprise
    space = self.network.action_space
    uniform = action_space.Policy(logits=tf.zeros_like(policy.logits),
                                  mean=policy.mean, scale=policy.scale)
    # The cross-entropy with uniform targets is their entropy plus the KL from them.
    of_uniform = (space.kl(uniform, policy)['categorical']
                  - space.discrete_log_prob(uniform, action))
    return ((1 - self._label_smoothing) * surprise
            + self._label_smoothing * of_uniform)

  def after_step(self, metrics: Dict[str, Any]) -> Dict[str, tf.Tensor]:
    """Returns the metrics; this agent has nothing to update."""
    return metrics

  def after_batch(self, batch: Any) -> None:
    """Does nothing; this agent updates nothing once a batch."""
