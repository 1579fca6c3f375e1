"""R2D2: Q-learning from replayed sequences, on any core; and its exploration."""

from typing import Any, Dict, Tuple

import numpy as np
import tensorflow as tf

from gtrxl_tf.agents import actor_critic_agent
from gtrxl_tf.agents import agent as agent_lib
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.losses import averages
from gtrxl_tf.losses import cql
from gtrxl_tf.losses import r2d2
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.replay import unroll as unroll_lib
from gtrxl_tf.settings import config


@config.configurable
class R2D2Agent(actor_critic_agent.NetworkPair):
  """R2D2 (Kapturowski et al., 2019): an online and a target network, and the loss.

  It learns from unrolls that are sampled from the prioritized table of
  `OnlineExperiment.replay`, as often as that setting says, whatever policy acted in
  them. Both networks restore the actor's memory from stored records, which older
  weights computed, and run through the burn-in before the first step that is learned
  from. The loss is n-step double Q-learning with rescaled values; see `losses.r2d2`.
  The unrolls' new priorities are a metric of the loss.

  The networks are `ActorCritic`s, as for the other online agents. Their heads are read
  as those of a dueling network (Wang et al., 2016): the logits are advantages, and
  Q = value + advantage - mean advantage. So the action with the highest logit has the
  highest Q value, and a policy needs nothing else. Actions that an action mask forbids
  are left out of the mean and of the maximum. Each task has its own value, and all
  share the advantages.

  The online network acts, with `OnlineExperiment.exploration`.

  Args:
    online: the network that learns; its variables must exist.
    target: a second network with the same settings; it becomes a copy.
    discount: gamma.
    n_step: n.
    burn_in: actions at an unroll's start that only prepare the memory; fewer than
      `OnlineExperiment.unroll_length`.
    target_update_period: gradient steps between copies to the target network.
    priority_eta: eta, the weight of the largest TD error against the mean one in an
      unroll's priority.
    rescaling: epsilon of the rescaling of values.
    publish_period: learner steps between new weights for the actors. In the paper an
      actor fetches them every 400 of its steps. At the speeds that the paper gives,
      these are about 8 learner steps.

  The other defaults are the paper's (its Table 2).
  """

  from_replay = True

  def __init__(
      self,
      online: actor_critic.ActorCritic,
      target: actor_critic.ActorCritic,
      discount: config.UnitInterval = 0.997,
      n_step: config.PositiveInt = 5,
      burn_in: config.NonNegativeInt = 40,
      target_update_period: config.PositiveInt = 2500,
      priority_eta: config.UnitInterval = 0.9,
      rescaling: config.NonNegativeFloat = 1e-3,
      publish_period: config.PositiveInt = 8):
    space = online.action_space
    if not space.is_discrete:
      raise config.ConfigError(
          f'ActorCritic.action_spec = {space.action_spec!r}: expected one DiscreteArray '
          'with an R2D2Agent')
    for name, given in (('popart', online.popart is not None),
                        ('pixel_control_head', online.has_pixel_control),
                        ('predictor', online.predictor is not None)):
      if given:
        raise config.ConfigError(
            f'ActorCritic.{name} is set: expected None with an R2D2Agent')
    super().__init__('r2d2', online, target)
    self._settings = dict(
        gamma=discount, n_step=n_step, eta=priority_eta, epsilon=rescaling)
    self._burn_in = burn_in
    self._target_update_period = target_update_period
    self._publish_period = publish_period
    self._steps = tf.Variable(0, dtype=tf.int64, name='steps', trainable=False)

  @property
  def acting_network(self) -> actor_critic.ActorCritic:
    """The online network."""
    return self.online

  @property
  def publish_period(self) -> int:
    """Learner steps between new weights for the actors."""
    return self._publish_period

  def refresh_acting_network(self) -> None:
    """Does nothing: the network that learns is the one that acts."""

  def loss(self, batch: unroll_lib.Sample) -> Tuple[tf.Tensor, Dict[str, Any]]:
    """Computes the loss of a batch, and metrics; on a replica, that replica's share.

    Args:
      batch: unrolls `[B, time, ...]` with their weights.

    Returns:
      The loss, and metrics. `carried` has the unrolls' priorities `[B]`.
    """
    agent_lib.check_batch(batch, unroll_lib.Sample)
    unrolls, start = batch.unroll, self._burn_in
    steps = unrolls.reward.shape[1] - 1
    if start >= steps:
      raise config.ConfigError(
          f'R2D2Agent.burn_in = {start}: expected less than '
          f'OnlineExperiment.unroll_length = {steps}')
    q_values, target_q_values = (
        self.q_values(network, unrolls) for network in (self.online, self.target))
    actions, is_last = unrolls.action[:, start + 1:], unrolls.is_last()[:, start:]
    losses = r2d2.r2d2_loss(
        q_values, target_q_values, actions, unrolls.reward[:, start:],
        unrolls.discount[:, start:], is_last, batch.weight, **self._settings)
    valid = ~is_last[:, :-1]
    actions = tf.where(valid, actions, 0)  # Last steps have no action.
    mean = averages.MaskedMean(valid)
    return losses.total_loss, {
        'loss': losses.total_loss,
        'td_error': mean(tf.abs(losses.td_errors)),
        'q_value': mean(cql.taken_values(q_values[:, :-1], actions)),
        'carried': losses.priorities,
    }

  def q_values(self, network: actor_critic.ActorCritic, unrolls: unroll_lib.Unroll
               ) -> tf.Tensor:
    """Computes a network's Q values after the burn-in, `[B, T + 1 - burn_in, A]`.

    No gradient flows into the burn-in. Q values of actions that are not allowed are far
    below all others.
    """
    inputs, state = actor_critic_agent.inputs_and_state(network, unrolls)
    if self._burn_in:
      _, state = network(
          tf.nest.map_structure(lambda x: x[:, :self._burn_in], inputs), state)
      state = tf.nest.map_structure(tf.stop_gradient, state)
      inputs = tf.nest.map_structure(lambda x: x[:, self._burn_in:], inputs)
    outputs, _ = network(inputs, state)
    value = tf.gather(outputs.value, unrolls.task[:, 0], axis=2, batch_dims=1)
    return _dueling(value, outputs.policy.logits)

  def after_step(self, metrics: Dict[str, Any]) -> Dict[str, tf.Tensor]:
    """Copies the online network to the target network once per period."""
    self._steps.assign_add(1)
    tf.cond(self._steps % self._target_update_period == 0, self.update_target,
            lambda: None)
    return metrics

  def after_batch(self, batch: unroll_lib.Sample) -> None:
    """Adds a batch to the statistics of observations."""
    super().after_batch(batch.unroll)


def _dueling(value: tf.Tensor, advantages: tf.Tensor) -> tf.Tensor:
  """Computes Q values from values `[...]` and from masked advantages `[..., A]`."""
  allowed = action_space.is_allowed(advantages)
  total = tf.reduce_sum(tf.where(allowed, advantages, 0.), axis=-1, keepdims=True)
  mean = total / tf.reduce_sum(tf.cast(allowed, tf.float32), axis=-1, keepdims=True)
  return tf.where(allowed, value[..., tf.newaxis] + advantages - mean,
                  action_space.MASKED_LOGIT)


@config.configurable
class EpsilonGreedy:
  """Each environment's rate of random actions, as in Ape-X (Horgan et al., 2018).

  Environment i of the N environments of all actors takes a random action with
  probability

    epsilon_i = epsilon^(1 + alpha i / (N - 1))

  With several tasks, i and N count the environments of one task, so that each task has
  all rates.

  Random actions are drawn from those that are allowed. The paper's actors have one
  environment each. Evaluators and exported policies take the best action.

  Args:
    epsilon: the rate of the first environment. This default and the next are Ape-X's,
      from which R2D2 takes its exploration.
    alpha: how fast the rates fall.
  """

  def __init__(self, epsilon: config.PositiveFraction = 0.4,
               alpha: config.NonNegativeFloat = 7.0):
    self._epsilon = epsilon
    self._alpha = alpha

  def rates(self, first: int, count: int, total: int, num_tasks: int = 1) -> np.ndarray:
    """Returns the rates `[count]` of environments from number `first` on, of `total`.

    Environment i plays task i modulo `num_tasks`.
    """
    last = (total - 1) // num_tasks
    share = np.arange(first, first + count) // num_tasks / max(last, 1)
    return (self._epsilon ** (1 + self._alpha * share)).astype(np.float32)


class EpsilonGreedyPolicy(policy_lib.ActorCriticPolicy):
  """Takes the most likely action, or with a row's own rate an allowed one at random."""

  def __init__(self, rates: np.ndarray, network: actor_critic.ActorCritic,
               observation_spec: Any, action_spec: Any, with_record: bool = False,
               half_records: bool = False):
    """Creates the policy; the network's variables must exist.

    Args:
      rates: `[E]`; rows from number E on, if there are any, have the last one.
      network: the network that acts, with one discrete action.
      observation_spec: nest of dm_env specs.
      action_spec: nest of dm_env specs.
      with_record: see `ActorCriticPolicy`.
      half_records: see `ActorCriticPolicy`.
    """
    super().__init__(
        network, observation_spec, action_spec, with_record=with_record,
        half_records=half_records)
    self._rates = np.asarray(rates, np.float32)

  def _sample(self, policy: action_space.Policy, seed: Any) -> Any:
    logits = policy.logits
    allowed = tf.cast(action_space.is_allowed(logits), tf.float32)
    rows = tf.minimum(tf.range(tf.shape(logits)[0]), len(self._rates) - 1)
    rates = tf.gather(self._rates, rows)[:, tf.newaxis]
    best = tf.one_hot(tf.argmax(logits, axis=-1), logits.shape[-1])
    probabilities = (1 - rates) * best + rates * allowed / tf.reduce_sum(
        allowed, axis=-1, keepdims=True)
    return super()._sample(action_space.Policy(logits=tf.where(
        probabilities > 0, tf.math.log(probabilities), action_space.MASKED_LOGIT)), seed)
