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
  reward: tf.Tensor        # Of the action, in the environment's units.
  discount: tf.Tensor      # After the action; 0 where it ended the task.
  is_first: tf.Tensor      # True at a row's first step: nothing is known before it.
  valid: tf.Tensor         # False where a row is only filled up.
  state: Any = ()          # The network's, that rows bring along; by default none do.


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

  def loss(self, batch: Segments) -> Tuple[tf.Tensor, Dict[str, Any]]:
    """The loss of a batch, and what is worth watching; of replicas, each one's share.

    What a batch holds at steps that are not valid does not count, but must be finite.

    Returns:
      The loss, and metrics. If rows brought states along, `carried` among them is the
      nest of states after every segment, `[B, N, ...]`.
    """
    space = self.network.action_space
    policy, carried = self._unroll(batch)
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
    return loss, {'loss': loss, **metrics, **carried}

  def _unroll(self, batch: Segments):
    """The policy at every step, and the states of `loss` if they are wanted."""
    inputs = network_lib.DecisionInputs(
        batch.return_to_go, batch.observation, batch.action, batch.is_first)
    num_steps = batch.valid.shape[1]
    if isinstance(batch.state, tuple) and not batch.state:
      state = self.network.initial_state(tf.shape(batch.valid)[0])
      return self.network(inputs, state, training=True)[0], {}
    segment = self.network.core.segment_length // network_lib.TOKENS_PER_STEP
    segment = segment or num_steps  # Of a core that does not work in segments.
    policies, states, state = [], [], batch.state
    for start in range(0, num_steps, segment):
      policy, state = self.network(
          tf.nest.map_structure(lambda x: x[:, start:start + segment], inputs), state,
          training=True)
      policies.append(policy)
      states.append(state)
    join = lambda combine, nests: tf.nest.map_structure(
        lambda *x: combine(x, axis=1), *nests)
    return join(tf.concat, policies), {'carried': join(tf.stack, states)}

  def after_step(self, metrics: Dict[str, Any]) -> Dict[str, tf.Tensor]:
    """Nothing is left to be done."""
    return metrics
