"""Acting with an actor-critic network: for actors, for evaluation, for export."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tf_agents.policies import tf_policy
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts

from gtrxl_tf import specs
from gtrxl_tf.networks import actor_critic


class PolicyInfo(NamedTuple):
  """What an actor writes down beside what it did."""
  policy: Any  # The distribution's parameters: logits.
  record: Any  # The core's record of the step.


class PolicyState(NamedTuple):
  """Memory between steps."""
  core: Any  # The core's cache.
  previous_action: tf.Tensor  # [B]


class ActorCriticPolicy(tf_policy.TFPolicy):
  """A TF-Agents policy whose state is the core's cache.

  The state need not be reset: the network forgets by itself where a step is FIRST.

  `action` takes a `seed` like any TF-Agents policy, or a tensor [2] like the stateless
  functions of `tf.random`: what XLA compiles heeds no other.
  """

  def __init__(self, network: actor_critic.ActorCritic, observation_spec: Any,
               action_spec: Any, greedy: bool = False, with_record: bool = False):
    """Creates the policy; the network must have its variables.

    Args:
      network: acts.
      observation_spec: nest of dm_env specs.
      action_spec: dm_env spec.
      greedy: takes the likeliest action instead of sampling.
      with_record: whether steps' `info` has the core's record, which actors need.
    """
    self._network = network
    self._greedy = greedy
    self._with_record = with_record
    action_spec = specs.tensor_specs(action_spec)
    cache = network.initial_cache(1)
    spec = lambda x: tf.TensorSpec(x.shape[1:], x.dtype)
    num_actions = int(action_spec.maximum) - int(action_spec.minimum) + 1
    record = network.core.record(cache) if with_record else ()
    super().__init__(
        time_step_spec=ts.time_step_spec(specs.tensor_specs(observation_spec)),
        action_spec=action_spec,
        policy_state_spec=PolicyState(
            tf.nest.map_structure(spec, cache),
            tf.TensorSpec([], action_spec.dtype)),
        info_spec=PolicyInfo(
            tf.TensorSpec([num_actions]), tf.nest.map_structure(spec, record)),
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
        tf.zeros([batch_size], self.action_spec.dtype))

  def _action(self, time_step, policy_state, seed):
    outputs, cache = self._network.step(actor_critic.NetworkInputs(
        observation=time_step.observation,
        previous_action=policy_state.previous_action,
        reward=time_step.reward,
        is_first=time_step.is_first()), policy_state.core)
    if self._greedy:
      action = tf.argmax(outputs.logits, axis=-1, output_type=self.action_spec.dtype)
    elif tf.is_tensor(seed):
      # By Gumbel noise, as XLA does not compile `stateless_categorical`.
      uniform = tf.random.stateless_uniform(
          tf.shape(outputs.logits), seed, minval=np.finfo(np.float32).tiny)
      action = tf.argmax(outputs.logits - tf.math.log(-tf.math.log(uniform)), axis=-1,
                         output_type=self.action_spec.dtype)
    else:
      action = tf.random.categorical(
          outputs.logits, 1, seed=seed, dtype=self.action_spec.dtype)[:, 0]
    record = self._network.core.record(cache) if self._with_record else ()
    return policy_step.PolicyStep(
        action, PolicyState(cache, action), PolicyInfo(outputs.logits, record))

  def _distribution(self, time_step, policy_state):
    # PolicySaver then leaves `distribution` out of the SavedModel, which otherwise
    # could not be loaded without tensorflow_probability.
    raise NotImplementedError('the logits are in the info of `action`')
