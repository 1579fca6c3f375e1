"""The base class of policies, and the policy of actor-critic networks."""

import functools
from typing import Any, NamedTuple

import tensorflow as tf
from tf_agents.policies import tf_policy
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts

from gtrxl_tf import specs
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import actor_critic


class PolicyState(NamedTuple):
  """The memory between steps."""
  core: Any  # The core's cache.
  previous_action: Any  # A sample of `ActionSpace`, not yet clipped: [B, ...].


class NetworkPolicy(tf_policy.TFPolicy):
  """The base class of TF-Agents policies that act with a network on a memory core.

  A subclass implements a step, `_action`. If its state is not a `PolicyState`, it also
  overrides `_get_initial_state`, from which the state's spec follows.
  """

  def __init__(self, network: Any, observation_spec: Any, action_spec: Any,
               info_spec: Any = ()):
    """Creates the policy.

    Args:
      network: acts; its variables must exist. Has `initial_cache`, `action_space` and
        `variables`.
      observation_spec: nest of dm_env specs.
      action_spec: nest of dm_env specs.
      info_spec: nest of tensor specs of a step's `info`.
    """
    self._network = network
    self._observation_spec = specs.tensor_specs(observation_spec)
    super().__init__(
        time_step_spec=ts.time_step_spec(self._observation_spec),
        action_spec=specs.tensor_specs(action_spec),
        policy_state_spec=specs.without_batch(self._get_initial_state(1)),
        info_spec=info_spec, automatic_state_reset=False, clip=False)

  def greedy(self) -> 'NetworkPolicy':
    """The policy that takes the most likely actions; this one if it never samples."""
    return self

  def _get_initial_state(self, batch_size):
    return PolicyState(
        core=self._network.initial_cache(batch_size),
        previous_action=specs.zeros(
            self._network.action_space.sample_spec, [batch_size]))

  def _variables(self):
    return self._network.variables

  def _distribution(self, time_step, policy_state):
    # PolicySaver therefore leaves `distribution` out of the SavedModel, which could
    # otherwise be loaded only with tensorflow_probability.
    raise NotImplementedError('this policy only offers `action`')


class PolicyInfo(NamedTuple):
  """The data that an actor records in addition to the action."""
  policy: action_space.Policy  # The distribution's parameters.
  record: Any  # The core's record of the step.


class ActorCriticPolicy(NetworkPolicy):
  """A TF-Agents policy whose state is the core's cache.

  The state need not be reset: the network clears its memory at steps that are FIRST.

  An action is in the environment's units and clipped to its bounds. The sample before
  clipping, which the learner scores, is the new state's `previous_action`.

  `action` takes a `seed` as any TF-Agents policy does, or a tensor [2] as the stateless
  functions of `tf.random` do. XLA ignores any other seed.
  """

  def __init__(self, network: actor_critic.ActorCritic, observation_spec: Any,
               action_spec: Any, greedy: bool = False, with_record: bool = False):
    """Creates the policy; the network's variables must exist.

    Args:
      network: acts.
      observation_spec: nest of dm_env specs.
      action_spec: nest of dm_env specs.
      greedy: takes the most likely action instead of sampling.
      with_record: whether a step's `info` has the core's record, which actors need.
    """
    self._greedy = greedy
    self._with_record = with_record
    self._make = functools.partial(
        ActorCriticPolicy, network, observation_spec, action_spec,
        with_record=with_record)
    space = network.action_space
    record = network.core.record(network.initial_cache(1)) if with_record else ()
    super().__init__(
        network, observation_spec, action_spec,
        info_spec=specs.without_batch(PolicyInfo(
            space.policy(tf.zeros([1, space.num_outputs])), record)))

  def greedy(self) -> 'ActorCriticPolicy':
    return self if self._greedy else self._make(greedy=True)

  def refreshed(self, state: PolicyState, records: Any, is_first: tf.Tensor
                ) -> PolicyState:
    """Rebuilds the cache in `state` from records, after the weights have changed.

    Args:
      state: as the last step returned it.
      records: the core's records of the last M steps, `[B, M, ...]`.
      is_first: `[B, M]`.
    """
    core = self._network.core
    return state._replace(core=core.cache(core.restore(records, is_first)))

  def unmoved_action(self, time_step: ts.TimeStep, state: PolicyState, seed: Any
                     ) -> policy_step.PolicyStep:
    """Acts like `action`, but leaves it to the caller to `move` the new state."""
    return self._act(time_step, state, seed, move=False)

  def must_move(self, state: PolicyState) -> tf.Tensor:
    """A bool: whether `move` changes a state that comes from `unmoved_action`."""
    return self._network.core.must_move(state.core)

  def move(self, state: PolicyState) -> PolicyState:
    """Applies the core's `move`."""
    return state._replace(core=self._network.core.move(state.core))

  def _action(self, time_step, policy_state, seed):
    return self._act(time_step, policy_state, seed, move=True)

  def _act(self, time_step, state, seed, move):
    outputs, cache = self._network.step(actor_critic.NetworkInputs(
        observation=time_step.observation, previous_action=state.previous_action,
        reward=time_step.reward, is_first=time_step.is_first()), state.core, move)
    space = self._network.action_space
    policy = outputs.policy
    sample = space.mode(policy) if self._greedy else space.sample(policy, seed)
    record = self._network.core.record(cache) if self._with_record else ()
    return policy_step.PolicyStep(
        space.to_environment(sample), PolicyState(cache, sample),
        PolicyInfo(policy, record))
