"""Policies that continue a learning history, for evaluation and export."""

import functools
from typing import Any, NamedTuple, Optional, Union

import dm_env
import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf import nests
from gtrxl_tf import specs
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.agents.distillation import network as network_lib
from gtrxl_tf.agents.distillation import window as window_lib


class DistillationState(NamedTuple):
  """The memory between steps, and the last step as far as it is known.

  Reward and end of the last step are known only if the episode's last time step was
  shown. Otherwise they are 0 and False.
  """
  cache: Any           # Of the network or the window.
  observation: Any     # The last one that an action followed.
  action: Any          # That action, a sample of `ActionSpace`.
  reward: tf.Tensor    # [B]
  done: tf.Tensor      # [B] bool
  steps: tf.Tensor     # [B] int32: number of steps since the history began.


@config.configurable
class DistillationPolicy(policy_lib.NetworkPolicy):
  """A policy that learns while it acts, through its network's memory.

  A history begins with `get_initial_state` and continues across episodes. An episode's
  last time step needs no action and is not a step of the history, as in recorded
  histories. If last time steps are left out, the next episode's first one may carry the
  last reward.

  Args:
    network: the network that acts; its variables must exist.
    observation_spec: nest of dm_env specs.
    action_spec: nest of dm_env specs.
    window: how many of the last steps the network sees, see
      `window.DistillationWindow`; the context if the core has no recurrence. By default
      the network uses the core's memory.
    temperature: the temperature of action sampling; 0 takes the most likely action.
      Label smoothing keeps a network from ever becoming certain.
    position_scale: the network receives the position `scale * step + shift`, rounded.
      A larger value makes it exploit sooner, a smaller one explore longer (Figure 7).
    position_shift: see above.
  """

  def __init__(self,
               network: Union[network_lib.DistillationNetwork,
                              window_lib.DistillationWindow],
               observation_spec: Any, action_spec: Any,
               window: Optional[config.PositiveInt] = None,
               temperature: config.NonNegativeFloat = 1.0,
               position_scale: config.NonNegativeFloat = 1.0,
               position_shift: int = 0):
    if window is not None:
      network = window_lib.DistillationWindow(network, window)
    self._temperature = temperature
    self._position_scale = position_scale
    self._position_shift = position_shift
    super().__init__(network, observation_spec, action_spec)
    # `network` may already be a window, which needs no other.
    self._with_temperature = functools.partial(
        DistillationPolicy, network, observation_spec, action_spec, None,
        position_scale=position_scale, position_shift=position_shift)

  def greedy(self) -> 'DistillationPolicy':
    """Makes the policy that always takes the most likely action instead."""
    return self._with_temperature(temperature=0.0)

  def get_initial_state(self, batch_size: Any) -> DistillationState:
    return DistillationState(
        cache=self._network.initial_cache(batch_size),
        observation=specs.zeros(self.time_step_spec.observation, [batch_size]),
        action=specs.zeros(self._network.action_space.sample_spec, [batch_size]),
        reward=tf.zeros([batch_size]), done=tf.zeros([batch_size], tf.bool),
        steps=tf.zeros([batch_size], tf.int32))

  def action(self, time_step: dm_env.TimeStep, policy_state: DistillationState,
             seed: Any = None) -> policy_lib.PolicyStep:
    last = policy_state
    reward = last.reward + time_step.reward
    previous = network_lib.Transition(
        last.observation, last.action, reward, last.done | time_step.first(),
        self.position(last.steps - 1))
    policy, cache = self._network.step(
        previous, time_step.observation, self.position(last.steps),
        tf.equal(last.steps, 0), last.cache)
    space = self._network.action_space
    if self._temperature:
      sample = space.sample(space.with_temperature(policy, self._temperature), seed)
    else:
      sample = space.mode(policy)
    state = DistillationState(
        cache, time_step.observation, sample, tf.zeros_like(reward),
        tf.zeros_like(last.done), last.steps + 1)
    ends = time_step.last()
    waiting = last._replace(reward=reward, done=tf.ones_like(last.done))
    state = tf.cond(
        tf.reduce_any(ends), lambda: nests.where(ends, waiting, state), lambda: state)
    return policy_lib.PolicyStep(space.to_environment(sample), state)

  def position(self, steps: tf.Tensor) -> tf.Tensor:
    """The position, int32, that the network receives after a number of steps."""
    position = self._position_scale * tf.cast(steps, tf.float32)
    return tf.cast(tf.round(position), tf.int32) + self._position_shift
