"""V-MPO: on-policy maximum a posteriori policy optimization."""

from typing import Dict, Literal, Optional, Tuple

import tensorflow as tf

from gtrxl_tf.agents import actor_critic_agent
from gtrxl_tf.losses import averages
from gtrxl_tf.losses import vmpo
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.settings import config

# The lower bound of dual variables after every update (V-MPO, section 4).
_SMALLEST_DUAL = 1e-8


def _dual(value: float, name: str) -> tf.Variable:
  return tf.Variable(
      value, name=name, dtype=tf.float32,
      constraint=lambda x: tf.maximum(x, _SMALLEST_DUAL))


@config.configurable
class VMPOAgent(actor_critic_agent.ActorCriticAgent):
  """V-MPO: an online and a target network, dual variables, and the loss.

  The agent follows Song et al. (2020) as used in "Stabilizing Transformers for
  Reinforcement Learning". Actors run the target network. The advantage of a step is its
  return to the end of the unroll, or the lambda-return, minus its value. One optimizer
  trains policy, value, temperature and multipliers on the sum of their losses.
  Temperature and multipliers are linear variables.

  The E-step has one set of weights and one temperature for any kind of action. The
  M-step has a trust region for each part of the policy: one for the categorical part,
  and two for the Gaussian part, for the mean's and the scale's components of the KL.
  Actions with both parts ("hybrid") have all three.

  A network with PopArt learns normalized values, with a scale for each task. Its
  statistics are updated after the step without changing the outputs, so that a batch is
  normalized by the statistics of the batches before it.

  A network with a pixel-control head learns that auxiliary task from the one image in
  the observation. A network with a predictor adds the predictor's losses, see
  `networks.Predictor`.

  >>> from dm_env import specs
  >>> import numpy as np
  >>> from gtrxl_tf import agents
  >>> from gtrxl_tf import cores
  >>> from gtrxl_tf import networks
  >>> def network():
  ...   made = networks.ActorCritic(
  ...       specs.DiscreteArray(3), networks.VectorTorso([8]),
  ...       cores.TransformerXL(1, 8, num_heads=2, head_dim=4, memory_length=4))
  ...   made.create_variables(specs.Array((5,), np.float32))
  ...   return made
  >>> agent = agents.VMPOAgent(network(), network(), target_update_period=10)
  >>> sorted(agent.gauges().items())
  [('alpha_categorical', 5.0), ('temperature', 1.0)]

  Args:
    online: the network that learns; its variables must exist.
    target: a second network with the same settings; it becomes a copy.
    discount: gamma.
    td_lambda: lambda of the returns, from which advantages and value targets are
      computed; see `n_step_returns`. The paper uses returns to the end of the unroll,
      which is 1. On small tasks 0.5 to 0.9 learned from a fraction of the steps
      (docs/performance.md).
    target_update_period: learner steps between copies to the target network.
    initial_temperature: initial value of eta. The paper has 10 for Numpad.
    epsilon_temperature: eps_eta, the bound of the E-step's KL.
    initial_alpha: initial multiplier of the categorical policy's KL.
    epsilon_alpha: the bound of that KL. The paper samples this and the next two bounds
      for each run; here it is the middle, in log space, of logU[0.001, 0.1).
    initial_alpha_mean: initial multiplier of the mean component of the Gaussian's KL.
    epsilon_alpha_mean: the component's bound, the middle of logU[0.005, 0.01).
    initial_alpha_scale: initial multiplier of the scale component of that KL.
    epsilon_alpha_scale: the component's bound, the middle of Numpad's logU[5e-6, 4e-4).
    top_fraction: fraction of steps, by advantage, that the policy learns from.
    entropy_cost: factor of an entropy bonus, which the paper does not have. It keeps
      the policy exploring until a reward is found (docs/performance.md).
    normalize_advantages: whether advantages are divided by the task's scale before they
      are ranked; otherwise the tasks with the largest rewards would fill the top. The
      V-MPO paper does not mention this. By default they are divided if there is PopArt
      and more than one task.
    pixel_control_cost: factor of the auxiliary loss, if the network has the head.
    pixel_control_discount: discount of the auxiliary task. The paper does not give it;
      0.9 is UNREAL's.
    kl_reference: the policy that the KL is measured from. `acting_policy` is the one
      that acted, whose parameters are stored with each step. `target_network` is the
      current target network, which may have been updated since; it costs a second
      forward pass. The papers do not distinguish the two (docs/gtrxl.md).

  The other defaults are the GTrXL paper's (Table 8: DMLab-30, and Numpad for what
  belongs to Gaussian policies).
  """

  def __init__(
      self,
      online: actor_critic.ActorCritic,
      target: actor_critic.ActorCritic,
      discount: config.UnitInterval = 0.99,
      td_lambda: config.UnitInterval = 1.0,
      target_update_period: config.PositiveInt = 10,
      initial_temperature: config.PositiveFloat = 1.0,
      epsilon_temperature: config.PositiveFloat = 0.1,
      initial_alpha: config.PositiveFloat = 5.0,
      epsilon_alpha: config.PositiveFloat = 0.01,
      initial_alpha_mean: config.PositiveFloat = 1.0,
      epsilon_alpha_mean: config.PositiveFloat = 0.007,
      initial_alpha_scale: config.PositiveFloat = 1.0,
      epsilon_alpha_scale: config.PositiveFloat = 4.5e-5,
      top_fraction: config.PositiveFraction = 0.5,
      entropy_cost: config.NonNegativeFloat = 0.0,
      normalize_advantages: Optional[bool] = None,
      pixel_control_cost: config.NonNegativeFloat = 2e-3,
      pixel_control_discount: config.UnitInterval = 0.9,
      kl_reference: Literal['acting_policy', 'target_network'] = 'acting_policy'):
    if normalize_advantages is None:
      normalize_advantages = online.popart is not None and online.num_values > 1
    if normalize_advantages and online.popart is None:
      raise config.ConfigError('VMPOAgent.normalize_advantages = True: expected '
                               'ActorCritic.popart = @PopArt with it')
    super().__init__('vmpo', online, target, discount, td_lambda, 1.0,
                     pixel_control_cost, pixel_control_discount)
    self.target_update_period = target_update_period
    self.temperature = _dual(initial_temperature, 'temperature')
    initial = {'categorical': initial_alpha, 'mean': initial_alpha_mean,
               'scale': initial_alpha_scale}
    epsilons = {'categorical': epsilon_alpha, 'mean': epsilon_alpha_mean,
                'scale': epsilon_alpha_scale}
    constraints = online.action_space.constraints
    self.alphas = {name: _dual(initial[name], f'alpha_{name}') for name in constraints}
    self._epsilons = {name: epsilons[name] for name in constraints}
    self._epsilon_temperature = epsilon_temperature
    self._kl_reference = kl_reference
    self._top_fraction = top_fraction
    self._entropy_cost = entropy_cost
    self._normalize_advantages = normalize_advantages

  @property
  def learned_variables(self) -> Tuple[tf.Variable, ...]:
    """The variables that an optimizer changes: all but the target network's."""
    return (*super().learned_variables, self.temperature, *self.alphas.values())

  @property
  def publish_period(self) -> int:
    """The target update period."""
    return self.target_update_period

  @property
  def default_max_age(self) -> int:
    """Twice the target update period, in learner steps."""
    return 2 * self.target_update_period

  def gauges(self) -> Dict[str, float]:
    """Returns the values of the dual variables."""
    duals = {'temperature': self.temperature,
             **{f'alpha_{name}': alpha for name, alpha in self.alphas.items()}}
    return {name: float(dual.numpy()) for name, dual in duals.items()}

  def _policy_loss(self, steps: actor_critic_agent.Steps
                   ) -> Tuple[tf.Tensor, Dict[str, tf.Tensor]]:
    space, mean = self.online.action_space, averages.MaskedMean(steps.valid)
    advantages = steps.advantages
    if self._normalize_advantages:
      advantages /= self.online.popart.scale(steps.tasks)[:, tf.newaxis]
    reference = (self._target_policy(steps.batch)
                 if self._kl_reference == 'target_network' else steps.acting_policy)
    kls = space.kl(reference, steps.policy)
    loss = vmpo.vmpo_loss(
        log_probs=space.log_prob(steps.policy, steps.action),
        advantages=advantages,
        temperature=self.temperature,
        epsilon_temperature=self._epsilon_temperature,
        kl_constraints=[(kls[name], self.alphas[name], self._epsilons[name])
                        for name in space.constraints],
        valid_mask=steps.valid, top_fraction=self._top_fraction)
    metrics = {
        'policy_loss': loss.policy_loss,
        'temperature_loss': loss.temperature_loss,
        'weights_used': mean(tf.cast(loss.weights > 0, tf.float32)),
    }
    for name, kl in kls.items():
      metrics[f'kl_{name}'] = mean(kl)
      metrics[f'kl_{name}_over_bound'] = mean(kl) / self._epsilons[name]
    total = loss.total_loss
    if self._entropy_cost:
      total -= self._entropy_cost * mean(space.entropy(steps.policy))
    return total, metrics
