"""The loss of policies that imitate recorded episodes."""

from typing import Any, Dict, NamedTuple, Tuple

import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf.agents.decision import network as network_lib
from gtrxl_tf.losses import averages


class Segments(NamedTuple):
  """Recorded steps, `[B, T, ...]`; a row begins where an episode does, or in it."""
  return_to_go: tf.Tensor  # In the network's units.
  observation: Any
  action: Any              # A sample of `ActionSpace`.
  is_first: tf.Tensor      # True at a row's first step: nothing is known before it.
  valid: tf.Tensor         # False where a row is only filled up.


@config.configurable
class DecisionAgent(tf.Module):
  """Learns to do what was done: cross-entropy of discrete actions, squared error of the
  mean of continuous ones (Chen et al., 2021; RATE, Algorithm 1).

  Args:
    network: with its variables.
  """

  def __init__(self, network: network_lib.DecisionNetwork):
    super().__init__(name='decision')
    self.network = network

  @property
  def learned_variables(self):
    """What an optimizer changes."""
    return tuple(self.network.trainable_variables)

  def loss(self, batch: Segments) -> Tuple[tf.Tensor, Dict[str, tf.Tensor]]:
    """The loss of a batch, and what is worth watching; of replicas, each one's share.

    What a batch holds at steps that are not valid does not count, but must be finite.
    """
    space = self.network.action_space
    policy, _ = self.network(
        network_lib.DecisionInputs(batch.return_to_go, batch.observation, batch.action,
                                   batch.is_first),
        self.network.initial_state(tf.shape(batch.valid)[0]))
    mean = averages.MaskedMean(batch.valid)
    metrics = {}
    if space.num_discrete:
      metrics['cross_entropy'] = mean(-space.discrete_log_prob(policy, batch.action))
    if 'mean' in space.constraints:
      metrics['squared_error'] = mean(space.squared_error(policy, batch.action))
    loss = tf.add_n(list(metrics.values()))
    if space.is_discrete:
      hit = tf.equal(space.mode(policy), batch.action)
      metrics['accuracy'] = mean(tf.cast(hit, tf.float32))
    return loss, {'loss': loss, **metrics}

  def after_step(self, metrics: Dict[str, Any]) -> Dict[str, tf.Tensor]:
    """Nothing is left to be done."""
    return metrics
