"""Conservative Q-learning with discrete actions."""

import copy
from typing import Any, Dict, Tuple, Union

import dm_env
import tensorflow as tf

from gtrxl_tf.agents import agent as agent_lib
from gtrxl_tf.agents import cql_sac
from gtrxl_tf.agents import policy
from gtrxl_tf.losses import averages
from gtrxl_tf.losses import cql
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import cql as network_lib
from gtrxl_tf.networks import decision
from gtrxl_tf.settings import config


@config.configurable
class CQLAgent(agent_lib.OfflineAgent):
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
    super().__init__('cql', network)
    if network.core.drops:
      raise config.ConfigError(
          f'CQLNetwork.core = {type(network.core).__name__} with dropout: expected none, '
          'since CQLAgent drops nothing')
    self.target = _copied(network)
    self._alpha = alpha
    self._discount = discount
    self._target_update_period = target_update_period
    self._steps = tf.Variable(0, dtype=tf.int64, name='steps', trainable=False)

  def loss(self, batch: decision.Segments) -> Tuple[tf.Tensor, Dict[str, tf.Tensor]]:
    """Computes the loss of a batch, and metrics; on a replica, that replica's share.

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
    mask = cql.target_mask(batch.valid, batch.discount)
    losses = cql.cql_loss(q_values, batch.action, targets, self._alpha, mask)
    mean = averages.MaskedMean(mask)
    best = tf.cast(tf.argmax(q_values, axis=-1), batch.action.dtype)
    return losses.total_loss, {
        'loss': losses.total_loss,
        'td_loss': losses.td_loss,
        'conservative_loss': losses.conservative_loss,
        'q_value': mean(cql.taken_values(q_values, batch.action)),
        'accuracy': mean(tf.cast(tf.equal(best, batch.action), tf.float32)),
    }

  def after_step(self, metrics: Dict[str, Any]) -> Dict[str, tf.Tensor]:
    """Copies the network to the target network once per period."""
    self._steps.assign_add(1)
    tf.cond(self._steps % self._target_update_period == 0, self._update_target,
            lambda: None)
    return metrics

  @tf.function(autograph=False)
  def _update_target(self) -> None:
    for target, online in zip(self.target.variables, self.network.variables):
      target.assign(online)


def _shift(x: tf.Tensor) -> tf.Tensor:
  """Moves `x` `[B, T]` one step later, with 0 at the first step."""
  return tf.pad(x[:, :-1], [[0, 0], [1, 0]])


def _copied(network: network_lib.CQLNetwork) -> network_lib.CQLNetwork:
  """Returns a copy whose variables are cast wherever those of the network are."""
  copied = {}
  for variable in network.variables:
    other = copy.deepcopy(variable)
    if type(other) is not type(variable):  # Keras's variables that cast themselves.
      copied[id(variable)] = type(variable)(other)
  return copy.deepcopy(network, copied)


@config.configurable
class CQLPolicy(policy.NetworkPolicy):
  """A policy that takes its network's best action.

  The state need not be reset: the network clears its memory at steps that are FIRST.

  Args:
    network: the network that acts; its variables must exist.
    observation_spec: nest of dm_env specs.
    action_spec: nest of dm_env specs.
    return_scale: ignored, since the policy is not conditioned on a return.
    return_discount: ignored for the same reason.
  """

  def __init__(self, network: Union[network_lib.CQLNetwork, cql_sac.CQLSACActor],
               observation_spec: Any, action_spec: Any,
               return_scale: config.PositiveFloat = 1.0,
               return_discount: config.UnitInterval = 1.0):
    del return_scale, return_discount
    super().__init__(network, observation_spec, action_spec)

  def action(self, time_step: dm_env.TimeStep, policy_state: policy.PolicyState,
             seed: Any = None) -> policy.PolicyStep:
    sample, cache = self._network.best_action(
        actor_critic.NetworkInputs(
            observation=time_step.observation,
            previous_action=policy_state.previous_action,
            reward=time_step.reward, is_first=time_step.first()),
        policy_state.core)
    return policy.PolicyStep(
        self._network.action_space.to_environment(sample),
        policy.PolicyState(cache, sample))
