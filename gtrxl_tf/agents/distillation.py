"""Distillation of an algorithm from its learning histories: agent and policy."""

import functools
from typing import Any, Dict, NamedTuple, Optional, Tuple, Union

import dm_env
import tensorflow as tf

from gtrxl_tf import nests
from gtrxl_tf.agents import agent as agent_lib
from gtrxl_tf.agents import imitation
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.agents import windows
from gtrxl_tf.networks import distillation
from gtrxl_tf.networks import tensor_specs
from gtrxl_tf.settings import config


class HistoryBatch(NamedTuple):
  """A batch of parts of learning histories."""
  histories: distillation.Histories  # With actions as the environment had them.
  valid: tf.Tensor  # Bool [B, T]: false where a row is padded.
  state: Any = ()   # The network's state before each row; () is the initial one.


@config.configurable
class DistillationAgent(agent_lib.OfflineAgent):
  """Imitates the actions of a learning algorithm.

  The loss is the cross-entropy of discrete actions plus the squared error of the mean
  of continuous ones ("Memory-Efficient Algorithm Distillation", equation 1).

  Gradients flow through all steps of a batch that the core lets them reach: with a
  `SegmentTransformer` whose `memory_gradient` is not stopped, through all segments.

  Args:
    network: the network that learns; its variables must exist.
    label_smoothing: fraction of the target that is spread over all actions (Table S3).
  """

  def __init__(self, network: distillation.DistillationNetwork,
               label_smoothing: config.UnitInterval = 0.1):
    super().__init__('distillation', network)
    self._label_smoothing = label_smoothing

  def loss(self, batch: HistoryBatch) -> Tuple[tf.Tensor, Dict[str, Any]]:
    """Computes the loss of a batch, and metrics; on a replica, that replica's share.

    Values at steps that are not valid have no influence, but must be finite.

    Returns:
      The loss, and metrics. If the batch has states, the metrics contain `carried`: the
      nest of states after the last step.
    """
    space, network = self.network.action_space, self.network
    inputs = batch.histories._replace(
        action=space.from_environment(batch.histories.action))
    # Histories store discrete actions as bytes, which the losses do not accept.
    action = tf.nest.map_structure(
        lambda x: x[:, 1:] if x.dtype.is_floating else tf.cast(x[:, 1:], tf.int32),
        inputs.action)
    # Padding is 0 in the environment's units, which may be no action.
    action = nests.where(
        batch.valid, action, tf.nest.map_structure(tf.zeros_like, action))
    carries = bool(tf.nest.flatten(batch.state))
    state = batch.state if carries else network.core.empty_state(
        tf.shape(batch.valid)[0])
    policy, state = network(inputs, state, training=True)
    loss, metrics = imitation.loss(
        space, policy, action, batch.valid, self._label_smoothing)
    if carries:
      metrics['carried'] = state
    return loss, metrics


class DistillationState(NamedTuple):
  """The memory between steps, and the last step as far as it is known.

  Reward and end of the last step are known only if the episode's last time step was
  shown. Otherwise they are 0 and False.
  """
  cache: Any           # The network's or the window's.
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
      `windows.DistillationWindow`; the context if the core has no recurrence. By
      default the network uses the core's memory.
    temperature: the temperature of action sampling, see `imitation.sample`; 0 takes the
      most likely action. Label smoothing keeps a network from ever becoming certain.
    position_scale: the network receives the position `scale * step + shift`, rounded.
      A larger value makes it exploit sooner, a smaller one explore longer (Figure 7).
    position_shift: see `position_scale`.
  """

  def __init__(self,
               network: Union[distillation.DistillationNetwork,
                              windows.DistillationWindow],
               observation_spec: Any, action_spec: Any,
               window: Optional[config.PositiveInt] = None,
               temperature: config.NonNegativeFloat = 1.0,
               position_scale: config.NonNegativeFloat = 1.0,
               position_shift: int = 0):
    if window is not None:
      network = windows.DistillationWindow(network, window)
    self._temperature = temperature
    self._position_scale = position_scale
    self._position_shift = position_shift
    super().__init__(network, observation_spec, action_spec)
    # `network` may already be a window, which needs no other.
    self._make = functools.partial(
        DistillationPolicy, network, observation_spec, action_spec, None,
        position_scale=position_scale, position_shift=position_shift)

  def with_temperature(self, temperature: float) -> 'DistillationPolicy':
    """Makes the policy that acts at another temperature."""
    return self._make(temperature=temperature)

  def greedy(self) -> 'DistillationPolicy':
    """Makes the policy that always takes the most likely action instead."""
    return self.with_temperature(0.0)

  def get_initial_state(self, batch_size: Any) -> DistillationState:
    return DistillationState(
        cache=self._network.initial_cache(batch_size),
        observation=tensor_specs.zeros(self.time_step_spec.observation, [batch_size]),
        action=tensor_specs.zeros(self._network.action_space.sample_spec, [batch_size]),
        reward=tf.zeros([batch_size]), done=tf.zeros([batch_size], tf.bool),
        steps=tf.zeros([batch_size], tf.int32))

  def action(self, time_step: dm_env.TimeStep, policy_state: DistillationState,
             seed: Any = None) -> policy_lib.PolicyStep:
    last = policy_state
    reward = last.reward + time_step.reward
    previous = distillation.Transition(
        last.observation, last.action, reward, last.done | time_step.first(),
        self.position(last.steps - 1))
    policy, cache = self._network.step(
        previous, time_step.observation, self.position(last.steps),
        tf.equal(last.steps, 0), last.cache)
    space = self._network.action_space
    if self._temperature:
      sample = imitation.sample(
          space, space.with_temperature(policy, self._temperature), seed)
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
    """Returns the int32 position that the network receives after a number of steps."""
    position = self._position_scale * tf.cast(steps, tf.float32)
    return tf.cast(tf.round(position), tf.int32) + self._position_shift
