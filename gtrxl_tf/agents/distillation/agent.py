"""The loss of policies that distill an algorithm from its learning histories."""

from typing import Any, Dict, NamedTuple, Tuple

import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf.agents.distillation import network as network_lib
from gtrxl_tf.losses import averages
from gtrxl_tf.networks import action_space


class HistoryBatch(NamedTuple):
  """Parts of learning histories, to learn from."""
  histories: network_lib.Histories  # With actions as the environment had them.
  valid: tf.Tensor  # Bools [B, T]: False where a row is only filled up.
  state: Any = ()   # The network's, that rows bring along; by default none do.


@config.configurable
class DistillationAgent(tf.Module):
  """Learns to do what the algorithm did: cross-entropy of discrete actions, squared
  error of the mean of continuous ones ("Memory-Efficient Algorithm Distillation",
  equation 1).

  Gradients pass all the steps of a batch, as far as the core lets them: of a
  `SegmentTransformer` whose `memory_gradient` is not stopped, all its segments.

  Args:
    network: with its variables.
    label_smoothing: share of the target that is spread over all actions (Table S3).
  """

  def __init__(self, network: network_lib.DistillationNetwork,
               label_smoothing: config.UnitInterval = 0.1):
    super().__init__(name='distillation')
    self.network = network
    self._label_smoothing = label_smoothing

  @property
  def learned_variables(self):
    """What an optimizer changes."""
    return tuple(self.network.trainable_variables)

  def loss(self, batch: HistoryBatch) -> Tuple[tf.Tensor, Dict[str, Any]]:
    """The loss of a batch, and what is worth watching; of replicas, each one's share.

    What a batch holds at steps that are not valid does not count, but must be finite.

    Returns:
      The loss, and metrics. If rows brought states along, `carried` among them is the
      nest of states after the last step.
    """
    space, network = self.network.action_space, self.network
    inputs = batch.histories._replace(
        action=space.from_environment(batch.histories.action))
    # Of discrete actions, histories have bytes, and losses want more.
    action = tf.nest.map_structure(
        lambda x: x[:, 1:] if x.dtype.is_floating else tf.cast(x[:, 1:], tf.int32),
        inputs.action)
    carries = not (isinstance(batch.state, tuple) and not batch.state)
    state = batch.state
    if not carries:
      make = getattr(network.core, 'empty_state', network.core.initial_state)
      state = make(tf.shape(batch.valid)[0])
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

  def _smooth(self, policy, action, surprise):
    """The cross-entropy of smoothed targets."""
    if not self._label_smoothing:
      return surprise
    space = self.network.action_space
    uniform = action_space.Policy(logits=tf.zeros_like(policy.logits),
                                  mean=policy.mean, scale=policy.scale)
    # Of uniform targets it is their entropy and the KL divergence from them.
    of_uniform = (space.kl(uniform, policy)['categorical']
                  - space.discrete_log_prob(uniform, action))
    return ((1 - self._label_smoothing) * surprise
            + self._label_smoothing * of_uniform)

  def after_step(self, metrics: Dict[str, Any]) -> Dict[str, tf.Tensor]:
    """Nothing is left to be done."""
    return metrics
