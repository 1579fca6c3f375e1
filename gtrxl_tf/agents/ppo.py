"""PPO: proximal policy optimization."""

from typing import Dict, Tuple

import tensorflow as tf

from gtrxl_tf.agents import actor_critic_agent
from gtrxl_tf.losses import averages
from gtrxl_tf.losses import ppo
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.settings import config


@config.configurable(name='PPO')  # TF-Agents has a PPOAgent in gin.
class PPOAgent(actor_critic_agent.ActorCriticAgent):
  """PPO (Schulman et al., 2017): an online network, the copy that acts, and the loss.

  Its name in gin is `PPO`, since TF-Agents registers a `PPOAgent`.

  The policy maximizes the clipped surrogate objective. Its ratio is to the policy that
  acted, whose parameters are stored with each unroll, so a batch may contain unrolls of
  several learner steps. Any kind of action has a single ratio, that of the joint
  probability or density of all its parts.

  Advantages are generalized advantage estimates, computed with the current value
  function in every gradient step: recomputing them in each epoch helped in a large
  study (Andrychowicz et al., 2021, arXiv 2006.05990). Values are not clipped, since
  clipping hurt in the same study. `OnlineExperiment.num_epochs` and `num_minibatches`
  determine how often each batch is used; minibatches consist of complete unrolls.

  A network with PopArt learns normalized values, with a scale for each task, and
  advantages are in the same units. A network with a pixel-control head learns that
  auxiliary task from the one image in the observation. A network with a predictor adds
  the predictor's losses, see `networks.Predictor`.

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
  >>> agent = agents.PPOAgent(network(), network(), clip_ratio=0.1)
  >>> agent.acting_network is agent.target, agent.publish_period
  (True, 1)

  Args:
    online: the network that learns; its variables must exist.
    target: a second network with the same settings; it becomes a copy.
    discount: gamma.
    td_lambda: lambda of the advantages and of the value targets, G = A + V.
    clip_ratio: eps; the objective does not reward ratios beyond 1 +- eps.
    entropy_cost: factor of the entropy bonus. The default is the paper's for Atari; it
      has no bonus for MuJoCo.
    value_cost: factor of the value loss, which is half the mean squared error. 0.5 is
      customary; the paper has a factor of 1 for the squared error.
    normalize_advantages: whether advantages have mean 0 and standard deviation 1 over
      the valid steps of each gradient step. The paper's code does this; the paper does
      not mention it.
    publish_period: learner steps between refreshes of the acting network. With 1, and
      `OnlineExperiment.batches_per_weights = 1`, PPO learns on-policy.
    pixel_control_cost: factor of the auxiliary loss, if the network has the head. The
      default is `VMPOAgent`'s.
    pixel_control_discount: discount of the auxiliary task, likewise.

  The other defaults are the paper's for MuJoCo (Table 3).
  """

  def __init__(
      self,
      online: actor_critic.ActorCritic,
      target: actor_critic.ActorCritic,
      discount: config.UnitInterval = 0.99,
      td_lambda: config.UnitInterval = 0.95,
      clip_ratio: config.PositiveFloat = 0.2,
      entropy_cost: config.NonNegativeFloat = 0.01,
      value_cost: config.NonNegativeFloat = 0.5,
      normalize_advantages: bool = True,
      publish_period: config.PositiveInt = 1,
      pixel_control_cost: config.NonNegativeFloat = 2e-3,
      pixel_control_discount: config.UnitInterval = 0.9):
    super().__init__('ppo', online, target, discount, td_lambda, value_cost,
                     pixel_control_cost, pixel_control_discount)
    self._clip_ratio = clip_ratio
    self._entropy_cost = entropy_cost
    self._normalize_advantages = normalize_advantages
    self._publish_period = publish_period

  @property
  def publish_period(self) -> int:
    """Learner steps between refreshes of the acting network."""
    return self._publish_period

  @property
  def default_max_age(self) -> int:
    """Twice the publish period, plus 8 learner steps.

    If the learner is slower than the actors, batches are about 5 steps old.
    """
    return 2 * self._publish_period + 8

  def _policy_loss(self, steps: actor_critic_agent.Steps
                   ) -> Tuple[tf.Tensor, Dict[str, tf.Tensor]]:
    space, popart = self.online.action_space, self.online.popart
    advantages = steps.advantages
    if popart is not None:
      advantages /= popart.scale(steps.tasks)[:, tf.newaxis]
    loss = ppo.ppo_loss(
        log_probs=space.log_prob(steps.policy, steps.action),
        acting_log_probs=space.log_prob(steps.acting_policy, steps.action),
        advantages=advantages, entropies=space.entropy(steps.policy),
        valid_mask=steps.valid, clip_ratio=self._clip_ratio,
        entropy_cost=self._entropy_cost,
        normalize_advantages=self._normalize_advantages)
    mean = averages.MaskedMean(steps.valid)
    kls = space.kl(steps.acting_policy, steps.policy)
    return loss.total_loss, {
        'policy_loss': loss.policy_loss, 'clip_fraction': loss.clip_fraction,
        **{f'kl_{name}': mean(kl) for name, kl in kls.items()}}
