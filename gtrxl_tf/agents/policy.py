"""The base class of policies, and the policy of actor-critic networks."""

import abc
import functools
from typing import Any, NamedTuple, Sequence

import dm_env
from dm_env import specs as dm_specs
import numpy as np
import tensorflow as tf

from gtrxl_tf import nests
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import tensor_specs


class PolicyStep(NamedTuple):
  """A policy's answer to a batch of time steps.

  It has the name and the fields of TF-Agents' `PolicyStep`, which SavedModels keep.
  """
  action: Any      # [B, ...], in the environment's units.
  state: Any = ()  # The memory for the next step.
  info: Any = ()   # What else is known of the step.


class PolicyState(NamedTuple):
  """The memory between steps."""
  core: Any  # The core's cache.
  previous_action: Any  # A sample of `ActionSpace`, not yet clipped: [B, ...].


class NetworkPolicy(abc.ABC):
  """The base class of policies that act with a network on a memory core.

  A subclass implements a step, `action`. If its state is not a `PolicyState`, it also
  overrides `get_initial_state`, from which the state's spec follows.

  Attributes:
    time_step_spec: a `dm_env.TimeStep` of tensor specs. No spec has the batch axis.
    action_spec: nest of tensor specs.
    policy_state_spec: nest of tensor specs.
    info_spec: nest of tensor specs.
  """

  def __init__(self, network: Any, observation_spec: Any, action_spec: Any,
               info_spec: Any = ()):
    """Creates the policy.

    Args:
      network: the network that acts; its variables must exist. It has `initial_cache`,
        `action_space` and `variables`.
      observation_spec: nest of dm_env specs.
      action_spec: nest of dm_env specs.
      info_spec: nest of tensor specs of a step's `info`.
    """
    self._network = network
    self.time_step_spec = tensor_specs.tensor_specs(dm_env.TimeStep(
        step_type=dm_specs.Array((), np.int32, 'step_type'),
        reward=dm_specs.Array((), np.float32, 'reward'),
        discount=dm_specs.BoundedArray((), np.float32, 0, 1, 'discount'),
        observation=observation_spec))
    self.action_spec = tensor_specs.tensor_specs(action_spec)
    self.policy_state_spec = tensor_specs.without_batch(self.get_initial_state(1))
    self.info_spec = info_spec

  def greedy(self) -> 'NetworkPolicy':
    """Returns the policy that takes the most likely actions; here it is this one."""
    return self

  @property
  def variables(self) -> Sequence[tf.Variable]:
    """The network's variables."""
    return self._network.variables

  def get_initial_state(self, batch_size: Any) -> Any:
    """Returns the memory before the first step, `[B, ...]`."""
    return PolicyState(
        core=self._network.initial_cache(batch_size),
        previous_action=tensor_specs.zeros(
            self._network.action_space.sample_spec, [batch_size]))

  @abc.abstractmethod
  def action(self, time_step: dm_env.TimeStep, policy_state: Any, seed: Any = None
             ) -> PolicyStep:
    """Takes one step.

    Args:
      time_step: tensors `[B, ...]`.
      policy_state: from `get_initial_state` or the last step.
      seed: see `ActionSpace.sample`; ignored if the policy does not sample.
    """


class PolicyInfo(NamedTuple):
  """The data that an actor records in addition to the action."""
  policy: action_space.Policy  # The distribution's parameters.
  record: Any  # The core's record of the step.


class ActorCriticPolicy(NetworkPolicy):
  """The policy of an actor-critic; its state is the core's cache and the last action.

  The state need not be reset: the network clears its memory at steps that are FIRST.

  An action is in the environment's units and clipped to its bounds. The sample before
  clipping, which the learner scores, is the new state's `previous_action`.

  `action` takes a `seed` as the functions of `tf.random` do, or a tensor [2] as its
  stateless functions do. XLA ignores any other seed.
  """

  def __init__(self, network: actor_critic.ActorCritic, observation_spec: Any,
               action_spec: Any, greedy: bool = False, with_record: bool = False,
               half_records: bool = False):
    """Creates the policy; the network's variables must exist.

    Args:
      network: the network that acts.
      observation_spec: nest of dm_env specs.
      action_spec: nest of dm_env specs.
      greedy: takes the most likely action instead of sampling.
      with_record: whether a step's `info` has the core's record, which actors need.
      half_records: whether these records have 16 bits, see `nests.to_half`.
    """
    self._greedy = greedy
    self._with_record = with_record
    self._half_records = half_records
    self._make = functools.partial(
        ActorCriticPolicy, network, observation_spec, action_spec,
        with_record=with_record, half_records=half_records)
    space = network.action_space
    self._network = network
    record = self._record(network.initial_cache(1))
    super().__init__(
        network, observation_spec, action_spec,
        info_spec=tensor_specs.without_batch(PolicyInfo(
            space.policy(tf.zeros([1, space.num_outputs])), record)))

  def _record(self, cache: Any) -> Any:
    if not self._with_record:
      return ()
    record = self._network.core.record(cache)
    return nests.to_half(record) if self._half_records else record

  def greedy(self) -> 'ActorCriticPolicy':
    return self if self._greedy else self._make(greedy=True)

  def refreshed(self, state: PolicyState, records: Any, is_first: tf.Tensor
                ) -> PolicyState:
    """Rebuilds the cache in `state` from records, after the weights have changed.

    Args:
      state: the state that the last step returned.
      records: the core's records of the last M steps, `[B, M, ...]`, in 32 or 16 bits.
      is_first: `[B, M]`.
    """
    core = self._network.core
    return state._replace(core=core.cache(
        core.restore(nests.from_half(records), is_first)))

  def unmoved_action(self, time_step: dm_env.TimeStep, state: PolicyState, seed: Any
                     ) -> PolicyStep:
    """Acts like `action`, but leaves it to the caller to `move` the new state."""
    return self._act(time_step, state, seed, move=False)

  def must_move(self, state: PolicyState) -> tf.Tensor:
    """Returns a bool tensor: whether `move` changes a state from `unmoved_action`."""
    return self._network.core.must_move(state.core)

  def move(self, state: PolicyState) -> PolicyState:
    """Applies the core's `move`."""
    return state._replace(core=self._network.core.move(state.core))

  def action(self, time_step: dm_env.TimeStep, policy_state: PolicyState,
             seed: Any = None) -> PolicyStep:
    return self._act(time_step, policy_state, seed, move=True)

  def _act(self, time_step, state, seed, move):
    outputs, cache = self._network.step(actor_critic.NetworkInputs(
        observation=time_step.observation, previous_action=state.previous_action,
        reward=time_step.reward, is_first=time_step.first()), state.core, move)
    space = self._network.action_space
    policy = outputs.policy
    sample = self._sample(policy, seed)
    return PolicyStep(
        space.to_environment(sample), PolicyState(cache, sample),
        PolicyInfo(policy, self._record(cache)))

  def _sample(self, policy: action_space.Policy, seed: Any) -> Any:
    """Chooses the action, a sample of `ActionSpace`."""
    space = self._network.action_space
    return space.mode(policy) if self._greedy else space.sample(policy, seed)
