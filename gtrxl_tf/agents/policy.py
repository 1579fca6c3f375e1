"""Acting with an actor-critic network: for actors, for evaluation, for export."""

from typing import Any, NamedTuple

import tensorflow as tf
from tf_agents.policies import tf_policy
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts

from gtrxl_tf import specs
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import actor_critic


class PolicyInfo(NamedTuple):
  """What an actor writes down beside what it did."""
  policy: action_space.Policy  # The distribution's parameters.
  record: Any  # The core's record of the step.


class PolicyState(NamedTuple):
  """Memory between steps."""
  core: Any  # The core's cache.
  previous_action: Any  # A sample of `ActionSpace`, before it was clipped: [B, ...].


class ActorCriticPolicy(tf_policy.TFPolicy):
  """A TF-Agents policy whose state is the core's cache.

  The state need not be reset: the network forgets by itself where a step is FIRST.

  An action is what the environment is to be given: clipped to its bounds, in its units.
  What was drawn, which is what a learner scores, is the new state's `previous_action`.

  `action` takes a `seed` like any TF-Agents policy, or a tensor [2] like the stateless
  functions of `tf.random`: what XLA compiles heeds no other.
  """

  def __init__(self, network: actor_critic.ActorCritic, observation_spec: Any,
               action_spec: Any, greedy: bool = False, with_record: bool = False):
    """Creates the policy; the network must have its variables.

    Args:
      network: acts.
      observation_spec: nest of dm_env specs.
      action_spec: nest of dm_env specs.
      greedy: takes the likeliest action instead of sampling.
      with_record: whether steps' `info` has the core's record, which actors need.
    """
    self._network = network
    self._greedy = greedy
    self._with_record = with_record
    space = network.action_space
    cache = network.initial_cache(1)
    spec = lambda x: tf.TensorSpec(x.shape[1:], x.dtype)
    record = network.core.record(cache) if with_record else ()
    super().__init__(
        time_step_spec=ts.time_step_spec(specs.tensor_specs(observation_spec)),
        action_spec=specs.tensor_specs(action_spec),
        policy_state_spec=PolicyState(
            tf.nest.map_structure(spec, cache), space.sample_spec),
        info_spec=PolicyInfo(
            tf.nest.map_structure(spec, space.policy(tf.zeros([1, space.num_outputs]))),
            tf.nest.map_structure(spec, record)),
        automatic_state_reset=False, clip=False)

  def refreshed(self, state: PolicyState, records: Any, is_first) -> PolicyState:
    """`state` after the weights have changed: its cache made anew from records.

    Args:
      state: as the last step left it.
      records: the core's records of the last M steps, `[B, M, ...]`.
      is_first: `[B, M]`.
    """
    core = self._network.core
    return state._replace(core=core.cache(core.restore(records, is_first)))

  def _variables(self):
    return self._network.variables

  def _get_initial_state(self, batch_size):
    return PolicyState(
        self._network.initial_cache(batch_size),
        tf.nest.map_structure(
            lambda spec: tf.zeros([batch_size, *spec.shape], spec.dtype),
            self.policy_state_spec.previous_action))

  def _action(self, time_step, policy_state, seed):
    outputs, cache = self._network.step(actor_critic.NetworkInputs(
        observation=time_step.observation,
        previous_action=policy_state.previous_action,
        reward=time_step.reward,
        is_first=time_step.is_first()), policy_state.core)
    space = self._network.action_space
    policy = outputs.policy
    sample = space.mode(policy) if self._greedy else space.sample(policy, seed)
    record = self._network.core.record(cache) if self._with_record else ()
    return policy_step.PolicyStep(
        space.to_environment(sample), PolicyState(cache, sample),
        PolicyInfo(policy, record))

  def _distribution(self, time_step, policy_state):
    # PolicySaver then leaves `distribution` out of the SavedModel, which otherwise
    # could not be loaded without tensorflow_probability.
    raise NotImplementedError('its parameters are in the info of `action`')
