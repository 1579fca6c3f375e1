"""The actor-critic network: torso, previous action and reward, core, heads."""

from typing import Any, Callable, NamedTuple, Optional, Tuple

import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf import cores
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import heads
from gtrxl_tf.networks import language
from gtrxl_tf.networks import popart as popart_lib
from gtrxl_tf.networks import torsos


class NetworkInputs(NamedTuple):
  """What the network sees: `[B, T, ...]` of an unroll, `[B, ...]` of a step."""
  observation: Any             # A nest of tensors.
  previous_action: Any         # A sample of `ActionSpace`: what led to the observation.
  reward: tf.Tensor            # Floats: what came with the observation.
  is_first: tf.Tensor          # Bools; where true, the two before are not read.


class NetworkOutputs(NamedTuple):
  """What it says, in float32: `[B, T, ...]` of an unroll, `[B, ...]` of a step."""
  policy: action_space.Policy
  value: tf.Tensor         # [..., num_values]: normalized, if there is PopArt.
  pixel_control: Any = ()  # [B, T, H, W, A], Q values: of unrolls, if there is a head.


@config.configurable
class ActorCritic(tf.keras.layers.Layer):
  """A policy and value functions on a memory core.

  Called on unrolls; `step` goes one step in acting and computes the same function.

  The core sees, side by side, the instruction's code if there are instructions, the
  torso's output, the previous action (discrete ones as one-hot) and the previous
  reward. The last two are zeros on the first step of an episode. The V-MPO paper feeds
  both and does not speak of clipping, so the reward enters as it is.

  Args:
    action_spec: of the environment; discrete, continuous, or a nest of both.
    torso: embeds the observation, without the instruction.
    core: remembers.
    previous_action_and_reward: whether the core sees them.
    head_units: width of the hidden layer of policy and value head (appendix A).
    num_values: number of value functions: one a task.
    popart: makes the statistics by which each value function is normalized; called with
      `num_tasks`. None does not normalize.
    instruction_encoder: encodes instructions.
    instruction_key: where observations, then dictionaries, hold the word ids.
    pixel_control_head: gives the Q values of the auxiliary loss.

  Attributes:
    action_space: of `action_spec`.
    core: as given.
    num_values: as given.
    value_head: a `heads.MLPHead`.
    popart: the statistics, or None.
    has_pixel_control: whether there is such a head.

  Raises:
    ConfigError: an `action_spec` that no policy is for, or a `pixel_control_head` for
      actions that are not discrete or not as many.
  """

  def __init__(self,
               action_spec: Any,
               torso: torsos.Torso,
               core: cores.Core,
               previous_action_and_reward: bool = True,
               head_units: config.PositiveInt = 256,
               num_values: config.PositiveInt = 1,
               popart: Optional[Callable[..., popart_lib.PopArt]] = None,
               instruction_encoder: Optional[language.InstructionEncoder] = None,
               instruction_key: str = 'instruction',
               pixel_control_head: Optional[heads.PixelControlHead] = None,
               name: Optional[str] = None):
    super().__init__(name=name)
    space = action_space.ActionSpace(action_spec)
    if pixel_control_head is not None:
      if not space.is_discrete:
        raise config.ConfigError(
            f'ActorCritic.action_spec = {action_spec!r}: expected a DiscreteArray, as '
            'there is a pixel_control_head')
      if pixel_control_head.num_actions != space.num_discrete:
        raise config.ConfigError(
            f'PixelControlHead.num_actions = {pixel_control_head.num_actions}: expected '
            f'the {space.num_discrete} of ActorCritic.action_spec')
    self.action_space = space
    self.core = core
    self.num_values = num_values
    self.value_head = heads.MLPHead(num_values, head_units, name='value_head')
    self.popart = popart(num_tasks=num_values) if popart is not None else None
    self.has_pixel_control = pixel_control_head is not None
    self._policy_head = heads.MLPHead(
        space.num_outputs, head_units, name='policy_head')
    self._pixel_control_head = pixel_control_head
    self._torso = torso
    self._instruction_encoder = instruction_encoder
    self._instruction_key = instruction_key
    self._previous_action_and_reward = previous_action_and_reward

  def create_variables(self, observation_spec: Any) -> None:
    """Creates all variables, in one step on zeros.

    Args:
      observation_spec: nest of `dm_env` array specs, of one step's observation.
    """
    inputs = NetworkInputs(
        observation=tf.nest.map_structure(
            lambda spec: tf.zeros([1, *spec.shape], spec.dtype), observation_spec),
        previous_action=tf.nest.map_structure(
            lambda spec: tf.zeros([1, *spec.shape], spec.dtype),
            self.action_space.sample_spec),
        reward=tf.zeros([1]),
        is_first=tf.ones([1], tf.bool))
    with tf.name_scope(self.name):
      embedded = self._embed(inputs, batch_dims=1)
      if not self.core.built:
        with tf.name_scope(self.core.name):
          self.core.build(tf.TensorShape([None, None, embedded.shape[-1]]))
      core_outputs, _ = self.core.step(
          embedded, inputs.is_first, self.initial_cache(1))
      self._policy_and_value(core_outputs)
      if self._pixel_control_head is not None:
        self._pixel_control_head(core_outputs)

  def initial_state(self, batch_size) -> Any:
    """The core's state before anything was seen."""
    return self.core.initial_state(batch_size)

  def initial_cache(self, batch_size) -> Any:
    """The core's cache before anything was seen; once there are variables."""
    return self.core.initial_cache(batch_size)

  def call(self, inputs: NetworkInputs, state: Any) -> Tuple[NetworkOutputs, Any]:
    """Unrolls over `inputs` `[B, T, ...]`.

    Returns:
      Outputs `[B, T, ...]` and the core's state after the last step.
    """
    core_outputs, state = self.core(
        self._embed(inputs, batch_dims=2), inputs.is_first, state)
    outputs = self._policy_and_value(core_outputs)
    if self._pixel_control_head is not None:
      outputs = outputs._replace(
          pixel_control=self._pixel_control_head(core_outputs))
    return outputs, state

  def step(self, inputs: NetworkInputs, cache: Any) -> Tuple[NetworkOutputs, Any]:
    """One step: `inputs` `[B, ...]`.

    Returns:
      Outputs `[B, ...]`, without pixel control, and the core's cache after the step.
    """
    core_outputs, cache = self.core.step(
        self._embed(inputs, batch_dims=1), inputs.is_first, cache)
    return self._policy_and_value(core_outputs), cache

  def _embed(self, inputs: NetworkInputs, batch_dims: int) -> tf.Tensor:
    """What the core sees, `[..., D]`."""
    observation = inputs.observation
    parts = []
    if self._instruction_encoder is not None:
      observation = dict(observation)
      parts.append(self._instruction_encoder(observation.pop(self._instruction_key)))
    parts.append(self._torso(observation, batch_dims))
    if self._previous_action_and_reward:
      action = self.action_space.encode(inputs.previous_action, self.compute_dtype)
      reward = tf.cast(inputs.reward, self.compute_dtype)[..., tf.newaxis]
      both = tf.concat([action, reward], axis=-1)
      # Selected, not multiplied by zero: on first steps there may be anything, NaN too.
      parts.append(
          tf.where(inputs.is_first[..., tf.newaxis], tf.zeros_like(both), both))
    return tf.concat(parts, axis=-1)

  def _policy_and_value(self, core_outputs: tf.Tensor) -> NetworkOutputs:
    return NetworkOutputs(
        self.action_space.policy(self._policy_head(core_outputs)),
        self.value_head(core_outputs))
