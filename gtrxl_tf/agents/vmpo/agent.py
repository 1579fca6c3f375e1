"""V-MPO: on-policy maximum a posteriori policy optimization, discrete actions."""

from typing import Any, Dict, Tuple

import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf.losses import averages
from gtrxl_tf.losses import distributions
from gtrxl_tf.losses import returns
from gtrxl_tf.losses import vmpo
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.replay import unroll as unroll_lib

# Duals are kept above this after every update (V-MPO, section 4).
_SMALLEST_DUAL = 1e-8


def _dual(value: float, name: str) -> tf.Variable:
  return tf.Variable(
      value, name=name, dtype=tf.float32,
      constraint=lambda x: tf.maximum(x, _SMALLEST_DUAL))


@config.configurable
class VMPOAgent(tf.Module):
  """Online and target network, temperature and multiplier, and the loss over them.

  Song et al. (2020) as "Stabilizing Transformers for Reinforcement Learning" uses it:
  actors run the target network; the advantage of a step is its return to the end of
  the unroll less its value; policy, value, temperature and multiplier are trained by
  one optimizer on the sum of their losses. Temperature and multiplier are linear
  variables.

  Args:
    online: the network that learns, with its variables.
    target: another of the same make; it becomes a copy.
    discount: gamma.
    target_update_period: learner steps between copies to the target network.
    initial_temperature: eta at the start.
    epsilon_temperature: eps_eta, the bound of the E-step's KL.
    initial_alpha: the multiplier of the policy's KL at the start.
    epsilon_alpha: the bound of that KL. The paper draws it for each run from
      logU[0.001, 0.1); 0.01 is the middle.
    top_fraction: the share of steps, by advantage, that the policy learns from.

  The defaults are the paper's (Table 8, DMLab-30).
  """

  def __init__(
      self,
      online: actor_critic.ActorCritic,
      target: actor_critic.ActorCritic,
      discount: config.UnitInterval = 0.99,
      target_update_period: config.PositiveInt = 10,
      initial_temperature: config.PositiveFloat = 1.0,
      epsilon_temperature: config.PositiveFloat = 0.1,
      initial_alpha: config.PositiveFloat = 5.0,
      epsilon_alpha: config.PositiveFloat = 0.01,
      top_fraction: config.PositiveFraction = 0.5):
    super().__init__(name='vmpo')
    self.online = online
    self.target = target
    self.target_update_period = target_update_period
    self.temperature = _dual(initial_temperature, 'temperature')
    self.alpha = _dual(initial_alpha, 'alpha')
    self._discount = discount
    self._epsilon_temperature = epsilon_temperature
    self._epsilon_alpha = epsilon_alpha
    self._top_fraction = top_fraction
    self.update_target()

  @property
  def learned_variables(self):
    """What an optimizer changes: everything but the target network."""
    return (*self.online.trainable_variables, self.temperature, self.alpha)

  @tf.function(autograph=False)
  def update_target(self) -> None:
    """Copies the online network to the target network."""
    for target, online in zip(self.target.variables, self.online.variables):
      target.assign(online)

  def gauges(self) -> Dict[str, float]:
    """What the duals stand at, and the bound that they are to keep."""
    return {
        'kl_bound': self._epsilon_alpha,
        'temperature': float(self.temperature),
        'alpha': float(self.alpha),
    }

  def loss(self, batch: unroll_lib.Unroll) -> Tuple[tf.Tensor, Dict[str, tf.Tensor]]:
    """The loss of a batch, and what is worth watching.

    In a replica context both are this replica's share: their sum over replicas is
    that of the global batch.

    Args:
      batch: unrolls `[B, time, ...]`. Its policies are the target network's as it was
        when it acted.
    """
    memory_length = batch.memory_length
    is_first, is_last = batch.is_first(), batch.is_last()
    core = self.online.core
    state = core.restore(batch.record, is_first[:, :memory_length])
    outputs, _ = self.online(actor_critic.NetworkInputs(
        observation=batch.observation, previous_action=batch.action,
        reward=batch.reward, is_first=is_first[:, memory_length:]), state)

    targets = returns.n_step_returns(
        batch.reward, batch.discount, outputs.value, is_last, self._discount)
    # At its last step an episode takes no action, and what it is worth is not learned.
    valid = ~is_last[:, :-1]
    values, logits = outputs.value[:, :-1], outputs.logits[:, :-1]
    kl = distributions.categorical_kl(batch.policy, logits)
    policy = vmpo.vmpo_loss(
        log_probs=distributions.categorical_log_prob(logits, batch.action[:, 1:]),
        advantages=targets - values,
        temperature=self.temperature,
        epsilon_temperature=self._epsilon_temperature,
        kl_constraints=[(kl, self.alpha, self._epsilon_alpha)],
        valid_mask=valid, top_fraction=self._top_fraction)
    mean = averages.MaskedMean(valid)
    value_loss = mean(0.5 * tf.square(values - targets))
    log_policy = tf.nn.log_softmax(logits)
    metrics = {
        'loss': policy.total_loss + value_loss,
        'policy_loss': policy.policy_loss,
        'value_loss': value_loss,
        'temperature_loss': policy.temperature_loss,
        'kl': mean(kl),
        'entropy': mean(-tf.reduce_sum(tf.exp(log_policy) * log_policy, axis=-1)),
        'value': mean(values),
    }
    return policy.total_loss + value_loss, metrics
