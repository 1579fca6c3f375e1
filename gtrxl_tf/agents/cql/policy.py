"""Acting as learned by conservative Q-learning: for evaluation and for export."""

from typing import Any, Union

import tensorflow as tf
from tf_agents.policies import tf_policy
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts

from gtrxl_tf import config
from gtrxl_tf import specs
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.agents.cql import network as network_lib
from gtrxl_tf.agents.cql import sac
from gtrxl_tf.networks import actor_critic


@config.configurable
class CQLPolicy(tf_policy.TFPolicy):
  """A TF-Agents policy that takes its network's best action.

  The state need not be reset: the network forgets where a step is FIRST.

  Args:
    network: acts; with its variables.
    observation_spec: nest of dm_env specs.
    action_spec: nest of dm_env specs.
    return_scale: not used: no return is asked for.
  """

  def __init__(self, network: Union[network_lib.CQLNetwork, sac.CQLSACActor],
               observation_spec: Any, action_spec: Any,
               return_scale: config.PositiveFloat = 1.0):
    del return_scale
    self._network = network
    spec = lambda x: tf.TensorSpec(x.shape[1:], x.dtype)
    super().__init__(
        time_step_spec=ts.time_step_spec(specs.tensor_specs(observation_spec)),
        action_spec=specs.tensor_specs(action_spec),
        policy_state_spec=policy_lib.PolicyState(
            tf.nest.map_structure(spec, network.initial_cache(1)),
            network.action_space.sample_spec),
        automatic_state_reset=False, clip=False)

  def _variables(self):
    return self._network.variables

  def _get_initial_state(self, batch_size):
    sample = self.policy_state_spec.previous_action
    return policy_lib.PolicyState(
        self._network.initial_cache(batch_size),
        tf.zeros([batch_size, *sample.shape], sample.dtype))

  def _action(self, time_step, policy_state, seed):
    sample, cache = self._network.best_action(
        actor_critic.NetworkInputs(
            observation=time_step.observation,
            previous_action=policy_state.previous_action,
            reward=time_step.reward, is_first=time_step.is_first()),
        policy_state.core)
    return policy_step.PolicyStep(
        self._network.action_space.to_environment(sample),
        policy_lib.PolicyState(cache, sample))

  def _distribution(self, time_step, policy_state):
    raise NotImplementedError('only `action` is of use')
