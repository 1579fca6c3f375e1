"""Going on with a learning history: for evaluation and for export."""

from typing import Any, NamedTuple, Optional

import tensorflow as tf
from tf_agents.policies import tf_policy
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts

from gtrxl_tf import config
from gtrxl_tf import specs
from gtrxl_tf.agents.distillation import network as network_lib
from gtrxl_tf.agents.distillation import window as window_lib


class PolicyState(NamedTuple):
  """Memory between steps, and the last step as far as it is known."""
  cache: Any           # The network's, or the window's.
  observation: Any     # That was answered last.
  action: Any          # The answer, a sample of `ActionSpace`.
  reward: tf.Tensor    # [B], of the answer, where it is known already: where an
  done: tf.Tensor      # [B] bool     episode's last time step was shown.
  steps: tf.Tensor     # [B] int32: taken since the history began.


@config.configurable
class DistillationPolicy(tf_policy.TFPolicy):
  """A TF-Agents policy that learns, by its network's memory, as long as it acts.

  A history begins with `get_initial_state` and goes on over the ends of episodes. An
  episode's last time step, which is to be answered by nothing, is no step of it, as in
  recorded histories. Where such time steps are left out, the next episode's first one
  may have the last reward.

  Args:
    network: acts; with its variables.
    observation_spec: nest of dm_env specs.
    action_spec: nest of dm_env specs.
    window: the network sees so many steps and no others, see `window.SlidingWindow`:
      its context if its core has no recurrence. By default it remembers as its core
      does.
    temperature: of the distribution that actions are drawn from; 0 takes the likeliest.
      A network that was trained with smoothed labels never is sure.
    position_scale: the network is told the position `scale * step + shift`, to the next
      integer: with more it exploits sooner, with less it explores longer (Figure 7).
    position_shift: see above.
  """

  def __init__(self, network: network_lib.DistillationNetwork, observation_spec: Any,
               action_spec: Any, window: Optional[config.PositiveInt] = None,
               temperature: config.NonNegativeFloat = 1.0,
               position_scale: config.NonNegativeFloat = 1.0,
               position_shift: int = 0):
    if window is not None:
      network = window_lib.SlidingWindow(network, window)
    self._network = network
    self._temperature = temperature
    self._position_scale = position_scale
    self._position_shift = position_shift
    spec = lambda x: tf.TensorSpec(x.shape[1:], x.dtype)
    observation = specs.tensor_specs(observation_spec)
    super().__init__(
        time_step_spec=ts.time_step_spec(observation),
        action_spec=specs.tensor_specs(action_spec),
        policy_state_spec=PolicyState(
            cache=tf.nest.map_structure(spec, network.initial_cache(1)),
            observation=tf.nest.map_structure(
                lambda x: tf.TensorSpec(x.shape, x.dtype), observation),
            action=network.action_space.sample_spec,
            reward=tf.TensorSpec([], tf.float32), done=tf.TensorSpec([], tf.bool),
            steps=tf.TensorSpec([], tf.int32)),
        automatic_state_reset=False, clip=False)

  def _variables(self):
    return self._network.variables

  def _get_initial_state(self, batch_size):
    zeros = lambda spec: tf.zeros([batch_size, *spec.shape], spec.dtype)
    cache = self._network.initial_cache(batch_size)
    return tf.nest.map_structure(zeros, self.policy_state_spec)._replace(cache=cache)

  def _action(self, time_step, policy_state, seed):
    last = policy_state
    reward = last.reward + time_step.reward
    previous = network_lib.Transition(
        last.observation, last.action, reward, last.done | time_step.is_first(),
        self.position(last.steps - 1))
    policy, cache = self._network.step(
        previous, time_step.observation, self.position(last.steps),
        tf.equal(last.steps, 0), last.cache)
    space = self._network.action_space
    if self._temperature:
      policy = tf.nest.map_structure(lambda x: x, policy)._replace(
          logits=policy.logits / self._temperature if space.num_discrete else (),
          scale=policy.scale * self._temperature if space.constraints[-1] == 'scale'
          else ())
      sample = space.sample(policy, seed)
    else:
      sample = space.mode(policy)
    state = PolicyState(
        cache, time_step.observation, sample, tf.zeros_like(reward),
        tf.zeros_like(last.done), last.steps + 1)
    ends = time_step.is_last()
    waiting = last._replace(reward=reward, done=tf.ones_like(last.done))
    state = tf.cond(
        tf.reduce_any(ends),
        lambda: tf.nest.map_structure(
            lambda old, new: tf.where(
                tf.reshape(ends, [-1] + [1] * (new.shape.rank - 1)), old, new),
            waiting, state),
        lambda: state)
    return policy_step.PolicyStep(space.to_environment(sample), state)

  def position(self, steps: tf.Tensor) -> tf.Tensor:
    """What the network is told of steps, int32, that were taken before."""
    position = self._position_scale * tf.cast(steps, tf.float32)
    return tf.cast(tf.round(position), tf.int32) + self._position_shift

  def _distribution(self, time_step, policy_state):
    raise NotImplementedError('only `action` is of use')
