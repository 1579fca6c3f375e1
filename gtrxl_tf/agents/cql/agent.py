"""Conservative Q-learning with discrete actions."""

import copy
from typing import Any, Dict, Tuple

import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf.agents.cql import network as network_lib
from gtrxl_tf.agents.decision import agent as agent_lib
from gtrxl_tf.losses import averages
from gtrxl_tf.losses import cql
from gtrxl_tf.networks import actor_critic


@config.configurable
class CQLAgent(tf.Module):
  """CQL(H) on double Q-learning (Kumar et al., 2020, equation 4).

  The paper's Atari results use QR-DQN with the same conservative term. Here Q values
  are single numbers, and the Bellman error is squared as in the equation.

  A network with memory starts each row of a batch from its initial state.

  Args:
    network: the network that learns; its variables must exist. The target network is a
      copy.
    alpha: weight of the conservative term. The authors' code uses 4 for 1 % of the
      DQN-replay data, which is the size of RATE's 500,000 steps, and 1 for 10 %.
    discount: gamma. 0.99 in the authors' code.
    target_update_period: learner steps between copies to the target network. The
      authors' code has 8000 actor steps, at 4 per learner step. A reward takes k
      periods to reach the values k steps before it, so short runs need a shorter one.
  """

  def __init__(self, network: network_lib.CQLNetwork,
               alpha: config.NonNegativeFloat = 4.0,
               discount: config.UnitInterval = 0.99,
               target_update_period: config.PositiveInt = 2000):
    super().__init__(name='cql')
    self.network = network
    self.target = copy.deepcopy(network)
    self._alpha = alpha
    self._discount = discount
    self._target_update_period = target_update_period
    self._steps = tf.Variable(0, dtype=tf.int64, name='steps', trainable=False)

  @property
  def learned_variables(self) -> Tuple[tf.Variable, ...]:
    """The variables that an optimizer changes."""
    return tuple(self.network.trainable_variables)

  def loss(self, batch: agent_lib.Segments) -> Tuple[tf.Tensor, Dict[str, tf.Tensor]]:
    """The loss of a batch, and metrics. In a replica context, the replica's share.

    Values at steps that are not valid have no influence, but must be finite.
    """
    inputs = actor_critic.NetworkInputs(
        observation=batch.observation, previous_action=_shift(batch.action),
        reward=_shift(batch.reward), is_first=batch.is_first)
    state = self.network.initial_state(tf.shape(batch.valid)[0])
    q_values, _ = self.network(inputs, state)
    target_q_values, _ = self.target(inputs, state)
    targets = cql.double_q_targets(
        batch.reward, batch.discount, q_values, target_q_values, self._discount)
    mask = cql.have_targets(batch.valid, batch.discount)
    losses = cql.cql_loss(q_values, batch.action, targets, self._alpha, mask)
    mean = averages.MaskedMean(mask)
    best = tf.argmax(q_values, axis=-1, output_type=batch.action.dtype)
    return losses.total_loss, {
        'loss': losses.total_loss,
        'td_loss': losses.td_loss,
        'conservative_loss': losses.conservative_loss,
        'q_value': mean(cql.of_actions(q_values, batch.action)),
        'accuracy': mean(tf.cast(tf.equal(best, batch.action), tf.float32)),
    }

  def after_step(self, metrics: Dict[str, Any]) -> Dict[str, tf.Tensor]:
    """Copies the network to the target network once per period."""
    self._steps.assign_add(1)
    if self._steps.numpy() % self._target_update_period == 0:
      self._update_target()
    return metrics

  def after_batch(self, batch: Any) -> None:
    """Does nothing; this agent updates nothing once a batch."""

  @tf.function(autograph=False)
  def _update_target(self) -> None:
    for target, online in zip(self.target.variables, self.network.variables):
      target.assign(online)


def _shift(x: tf.Tensor) -> tf.Tensor:
  """`x` `[B, T]` moved one step later, with 0 at the first step."""
  return tf.pad(x[:, :-1], [[0, 0], [1, 0]])
