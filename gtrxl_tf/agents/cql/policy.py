"""Policies learned by conservative Q-learning, for evaluation and export."""

from typing import Any, Union

import dm_env

from gtrxl_tf import config
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.agents.cql import network as network_lib
from gtrxl_tf.agents.cql import sac
from gtrxl_tf.networks import actor_critic


@config.configurable
class CQLPolicy(policy_lib.NetworkPolicy):
  """A policy that takes its network's best action.

  The state need not be reset: the network clears its memory at steps that are FIRST.

  Args:
    network: the network that acts; its variables must exist.
    observation_spec: nest of dm_env specs.
    action_spec: nest of dm_env specs.
    return_scale: ignored, since the policy is not conditioned on a return.
  """

  def __init__(self, network: Union[network_lib.CQLNetwork, sac.CQLSACActor],
               observation_spec: Any, action_spec: Any,
               return_scale: config.PositiveFloat = 1.0):
    del return_scale
    super().__init__(network, observation_spec, action_spec)

  def action(self, time_step: dm_env.TimeStep, policy_state: policy_lib.PolicyState,
             seed: Any = None) -> policy_lib.PolicyStep:
    sample, cache = self._network.best_action(
        actor_critic.NetworkInputs(
            observation=time_step.observation,
            previous_action=policy_state.previous_action,
            reward=time_step.reward, is_first=time_step.first()),
        policy_state.core)
    return policy_lib.PolicyStep(
        self._network.action_space.to_environment(sample),
        policy_lib.PolicyState(cache, sample))
