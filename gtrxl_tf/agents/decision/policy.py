"""Policies conditioned on a return, for evaluation and export."""

import functools
from typing import Any, NamedTuple, Optional

import dm_env
import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.agents.decision import network as network_lib
from gtrxl_tf.agents.decision import window as window_lib


class DecisionState(NamedTuple):
  """The memory between steps."""
  core: Any                # The cache of the core or of the window.
  return_to_go: tf.Tensor  # [B]: the remaining return before the step's reward.
  steps: tf.Tensor         # [B] int32: number of steps taken in the episode.


@config.configurable
class DecisionPolicy(policy_lib.NetworkPolicy):
  """A policy conditioned on the rest of a target return.

  Each reward is subtracted from the return. The state need not be reset: at a step that
  is FIRST the network clears its memory, and the return starts again at the target.

  Args:
    network: the network that acts; its variables must exist.
    observation_spec: nest of dm_env specs.
    action_spec: nest of dm_env specs.
    target_return: the return to reach, in the rewards' units.
    return_scale: returns are divided by it before they enter the network.
    return_reset_period: number of steps after which the return starts again at the
      target, as the RATE paper does at each segment on MuJoCo. By default it does so at
      each episode only.
    greedy: takes the most likely action instead of sampling.
    window: how many of the last steps the network sees, see `window.DecisionWindow`;
      the context of a Decision Transformer. By default the network uses the core's
      memory.
  """

  def __init__(self, network: network_lib.DecisionNetwork, observation_spec: Any,
               action_spec: Any, target_return: float,
               return_scale: config.PositiveFloat = 1.0,
               return_reset_period: Optional[config.PositiveInt] = None,
               greedy: bool = True, window: Optional[config.PositiveInt] = None):
    self._make = functools.partial(
        DecisionPolicy, network, observation_spec, action_spec, target_return,
        return_scale, return_reset_period, window=window)
    if window is None and network.oracle is not None:
      raise config.ConfigError(
          'DecisionPolicy.window = None with DecisionNetwork.oracle: expected the '
          'length of the context')
    if window is not None:
      network = window_lib.DecisionWindow(network, window)
    self._target = target_return / return_scale
    self._return_scale = return_scale
    self._period = return_reset_period
    self._greedy = greedy
    super().__init__(network, observation_spec, action_spec)

  def greedy(self) -> 'DecisionPolicy':
    return self if self._greedy else self._make(greedy=True)

  def get_initial_state(self, batch_size: Any) -> DecisionState:
    return DecisionState(
        core=self._network.initial_cache(batch_size),
        return_to_go=tf.zeros([batch_size]), steps=tf.zeros([batch_size], tf.int32))

  def action(self, time_step: dm_env.TimeStep, policy_state: DecisionState,
             seed: Any = None) -> policy_lib.PolicyStep:
    is_first = time_step.first()
    steps = tf.where(is_first, 0, policy_state.steps)
    resets = is_first if self._period is None else tf.equal(steps % self._period, 0)
    return_to_go = tf.where(
        resets, self._target,
        policy_state.return_to_go - time_step.reward / self._return_scale)
    policy, cache = self._network.step(
        return_to_go, time_step.observation, is_first, policy_state.core,
        timestep=steps)
    space = self._network.action_space
    sample = space.mode(policy) if self._greedy else space.sample(policy, seed)
    cache = self._network.remember_action(sample, cache, timestep=steps)
    return policy_lib.PolicyStep(
        space.to_environment(sample), DecisionState(cache, return_to_go, steps + 1))
