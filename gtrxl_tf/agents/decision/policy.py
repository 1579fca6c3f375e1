"""Acting towards a return: for evaluation and for export."""

from typing import Any, NamedTuple, Optional

import tensorflow as tf
from tf_agents.policies import tf_policy
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts

from gtrxl_tf import config
from gtrxl_tf import specs
from gtrxl_tf.agents.decision import network as network_lib
from gtrxl_tf.agents.decision import window as window_lib


class PolicyState(NamedTuple):
  """Memory between steps."""
  core: Any                # The core's cache, or the window's.
  return_to_go: tf.Tensor  # [B]: what was still to come, before the step's reward.
  steps: tf.Tensor         # [B] int32: taken in the episode.


@config.configurable
class DecisionPolicy(tf_policy.TFPolicy):
  """A TF-Agents policy that asks its network for what is left of a target return.

  Each reward is taken off the return. The state need not be reset: where a step is
  FIRST the network forgets, and the return is the target again.

  Args:
    network: acts; with its variables.
    observation_spec: nest of dm_env specs.
    action_spec: nest of dm_env specs.
    target_return: to reach, in the rewards' units.
    return_scale: returns are divided by it before the network sees them.
    return_reset_period: steps after which the return is the target again, as the RATE
      paper does at every segment on MuJoCo. By default only an episode resets it.
    greedy: takes the likeliest action instead of sampling.
    window: the network sees so many steps and no others, see `window.SlidingWindow`:
      for a Decision Transformer, its context. By default it remembers as its core does.
  """

  def __init__(self, network: network_lib.DecisionNetwork, observation_spec: Any,
               action_spec: Any, target_return: float,
               return_scale: config.PositiveFloat = 1.0,
               return_reset_period: Optional[config.PositiveInt] = None,
               greedy: bool = True, window: Optional[config.PositiveInt] = None):
    if window is not None:
      network = window_lib.SlidingWindow(network, window)
    self._network = network
    self._target = target_return / return_scale
    self._return_scale = return_scale
    self._period = return_reset_period
    self._greedy = greedy
    cache = network.initial_cache(1)
    spec = lambda x: tf.TensorSpec(x.shape[1:], x.dtype)
    super().__init__(
        time_step_spec=ts.time_step_spec(specs.tensor_specs(observation_spec)),
        action_spec=specs.tensor_specs(action_spec),
        policy_state_spec=PolicyState(
            tf.nest.map_structure(spec, cache), tf.TensorSpec([], tf.float32),
            tf.TensorSpec([], tf.int32)),
        automatic_state_reset=False, clip=False)

  def _variables(self):
    return self._network.variables

  def _get_initial_state(self, batch_size):
    return PolicyState(
        self._network.initial_cache(batch_size), tf.zeros([batch_size]),
        tf.zeros([batch_size], tf.int32))

  def _action(self, time_step, policy_state, seed):
    is_first = time_step.is_first()
    steps = tf.where(is_first, 0, policy_state.steps)
    resets = is_first if self._period is None else tf.equal(steps % self._period, 0)
    return_to_go = tf.where(
        resets, self._target,
        policy_state.return_to_go - time_step.reward / self._return_scale)
    policy, cache = self._network.step(
        return_to_go, time_step.observation, is_first, policy_state.core)
    space = self._network.action_space
    sample = space.mode(policy) if self._greedy else space.sample(policy, seed)
    cache = self._network.remember_action(sample, cache)
    return policy_step.PolicyStep(
        space.to_environment(sample), PolicyState(cache, return_to_go, steps + 1))

  def _distribution(self, time_step, policy_state):
    raise NotImplementedError('only `action` is of use')
