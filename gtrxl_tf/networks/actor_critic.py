"""The actor-critic network: torso, previous action and reward, core, heads."""

from typing import Any, Callable, Mapping, NamedTuple, Optional, Tuple

import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import heads
from gtrxl_tf.networks import language
from gtrxl_tf.networks import memory_network
from gtrxl_tf.networks import popart as popart_lib
from gtrxl_tf.networks import predictor as predictor_lib
from gtrxl_tf.networks import spec_torso
from gtrxl_tf.networks import tensor_specs
from gtrxl_tf.networks import torsos
from gtrxl_tf.settings import config


class NetworkInputs(NamedTuple):
  """Inputs of a network: `[B, T, ...]` of an unroll, `[B, ...]` of a step."""
  observation: Any             # A nest of tensors.
  previous_action: Any         # A sample of `ActionSpace`; it led to the observation.
  reward: tf.Tensor            # Floats, which came with the observation.
  is_first: tf.Tensor          # Bools: where true, the two fields above are ignored.


class NetworkOutputs(NamedTuple):
  """Float32 outputs: `[B, T, ...]` of an unroll, `[B, ...]` of a step."""
  policy: action_space.Policy
  value: tf.Tensor         # [..., num_values]: normalized if there is PopArt.
  pixel_control: Any = ()  # [B, T, H, W, A] Q values, for unrolls if there is a head.
  predictions: Any = ()    # `Predictions`, for unrolls if there is a predictor.


def zero_inputs(observation_spec: Any, space: action_space.ActionSpace
                ) -> NetworkInputs:
  """Returns zeros `[1, ...]` as the inputs of an episode's first step."""
  return NetworkInputs(
      observation=tensor_specs.zeros(observation_spec, [1]),
      previous_action=tensor_specs.zeros(space.sample_spec, [1]),
      reward=tf.zeros([1]), is_first=tf.ones([1], tf.bool))


def previous_action_and_reward(
    inputs: NetworkInputs, space: action_space.ActionSpace, dtype: tf.DType
) -> tf.Tensor:
  """Returns features `[..., D]` of previous action and reward; zeros on first steps."""
  axes = tf.TensorShape(inputs.is_first.shape)
  for name, value in inputs._asdict().items():
    for x in tf.nest.flatten(value):
      shape = tf.TensorShape(x.shape)
      if not shape[:axes.rank].is_compatible_with(axes):
        raise ValueError(f'{name} of shape {tuple(shape)}: expected {tuple(axes)} as its '
                         'first axes, which is_first has')
  action = space.encode(inputs.previous_action, dtype)
  reward = tf.cast(inputs.reward, dtype)[..., tf.newaxis]
  both = tf.concat([action, reward], axis=-1)
  # Selection instead of multiplication by zero: first steps may hold NaN.
  return tf.where(inputs.is_first[..., tf.newaxis], tf.zeros_like(both), both)


@config.configurable
class ActorCritic(memory_network.MemoryNetwork):
  """A policy and value functions on a memory core.

  `call` unrolls over sequences; `step` takes one step for acting and computes the same
  function.

  The core's input is a concatenation: the instruction's encoding if there are
  instructions, the torso's output, the previous action (discrete actions as one-hot
  vectors) and the previous reward. Action and reward are zeros on the first step of an
  episode. The V-MPO paper feeds both and does not mention clipping, so the reward is
  not clipped.

  If the observation is a dictionary with the entry `action_mask`, only the actions that
  it allows have a probability above 0, in acting and in learning; see `ActionSpace`.
  Pixel control gives the other actions Q values far below those of all allowed ones.
  The torso does not see the mask.

  >>> from dm_env import specs
  >>> import numpy as np
  >>> import tensorflow as tf
  >>> from gtrxl_tf import cores
  >>> from gtrxl_tf import networks
  >>> network = networks.ActorCritic(
  ...     specs.DiscreteArray(3), networks.VectorTorso([8]),
  ...     cores.TransformerXL(1, 8, num_heads=2, head_dim=4, memory_length=4))
  >>> network.create_variables(specs.Array((5,), np.float32))
  >>> inputs = networks.NetworkInputs(
  ...     observation=tf.zeros([2, 6, 5]), previous_action=tf.zeros([2, 6], tf.int32),
  ...     reward=tf.zeros([2, 6]), is_first=tf.zeros([2, 6], tf.bool))
  >>> outputs, state = network(inputs, network.initial_state(2))
  >>> outputs.policy.logits.shape, outputs.value.shape
  (TensorShape([2, 6, 3]), TensorShape([2, 6, 1]))

  Args:
    action_spec: the environment's action spec: discrete, continuous, or a nest of both.
    torso: embeds the observation without the instruction and the action mask; by
      default a `SpecTorso`, made from the observation's spec.
    core: the memory core; required.
    previous_action_and_reward: whether they are inputs of the core.
    head_units: width of the hidden layer of the policy and value heads (appendix A).
    num_values: number of value functions, one per task.
    popart: makes the statistics that normalize each value function; called with
      `num_tasks`. By default values are not normalized.
    instruction_encoder: encodes instructions.
    instruction_key: key of the word ids in observations, which must be dictionaries.
    pixel_control_head: computes the Q values of the auxiliary loss.
    normalize_observations: whether numbers in observations are brought to mean 0 and
      deviation 1 by the statistics of all steps so far, and not scaled by their bounds;
      see `ObservationStatistics`. The agent updates them after each learner step.
    predictor: computes the auxiliary losses of the core, which must be `MERLIN`.

  Attributes:
    action_space: the `ActionSpace` of `action_spec`.
    core: as given.
    num_values: as given.
    value_head: a `heads.MLPHead`.
    popart: the statistics, or None.
    observation_statistics: the statistics that normalize observations, or None; see
      `MemoryNetwork`.
    has_pixel_control: whether there is a pixel-control head.
    predictor: as given, or None.
  """
  running_statistics = True

  def __init__(self,
               action_spec: Any,
               torso: Optional[torsos.Torso] = None,
               core: Optional[cores.Core] = None,
               previous_action_and_reward: bool = True,
               head_units: config.PositiveInt = 256,
               num_values: config.PositiveInt = 1,
               popart: Optional[Callable[..., popart_lib.PopArt]] = None,
               instruction_encoder: Optional[language.InstructionEncoder] = None,
               instruction_key: str = 'instruction',
               pixel_control_head: Optional[heads.PixelControlHead] = None,
               name: Optional[str] = None,
               normalize_observations: bool = False,
               predictor: Optional[predictor_lib.Predictor] = None):
    super().__init__(action_spec, core, name, normalize_observations)
    space = self.action_space
    if predictor is not None and not isinstance(core, cores.MERLIN):
      raise config.ConfigError(
          f'ActorCritic.core = {type(core).__name__}: expected MERLIN, as there is a '
          'predictor')
    if pixel_control_head is not None:
      if not space.is_discrete:
        raise config.ConfigError(
            f'ActorCritic.action_spec = {action_spec!r}: expected a DiscreteArray, as '
            'there is a pixel_control_head')
      if pixel_control_head.num_actions != space.num_discrete:
        raise config.ConfigError(
            f'PixelControlHead.num_actions = {pixel_control_head.num_actions}: '
            f'expected the {space.num_discrete} of ActorCritic.action_spec')
    self.num_values = num_values
    self.value_head = heads.MLPHead(num_values, head_units, name='value_head')
    self.popart = popart(num_tasks=num_values) if popart is not None else None
    self.has_pixel_control = pixel_control_head is not None
    self.predictor = predictor
    self._policy_head = heads.MLPHead(
        space.num_outputs, head_units, name='policy_head')
    self._pixel_control_head = pixel_control_head
    self._torso = torso
    self._instruction_encoder = instruction_encoder
    self._instruction_key = instruction_key
    self._previous_action_and_reward = previous_action_and_reward

  def _build_embedding(self, observation_spec: Any) -> int:
    _, embedded = self._split(observation_spec)
    if self._torso is None:
      self._torso = spec_torso.SpecTorso(embedded)
    self._torso.expect(embedded)
    if self.predictor is not None:
      self.predictor.create_variables(
          self.core, embedded, self.action_space, self.num_values)
    inputs = zero_inputs(observation_spec, self.action_space)
    return self._embed(inputs, batch_dims=1).shape[-1]

  def _build_heads(self) -> None:
    core_outputs = tf.zeros([1, self.core.output_size], self.compute_dtype)
    self._policy_head(core_outputs)
    self.value_head(core_outputs)
    if self._pixel_control_head is not None:
      self._pixel_control_head(core_outputs)

  def call(self, inputs: NetworkInputs, state: Any) -> Tuple[NetworkOutputs, Any]:
    """Unrolls over `inputs` `[B, T, ...]`.

    Returns:
      Outputs `[B, T, ...]` and the core's state after the last step.
    """
    embedded, predictions = self._embed(inputs, batch_dims=2), ()
    if self.predictor is None:
      core_outputs, state = self.core(embedded, inputs.is_first, state)
    else:
      core_outputs, state, beliefs = self.core.infer(embedded, inputs.is_first, state)
      predictions = self.predictor(
          beliefs, self._split(self.normalized(inputs.observation))[1],
          inputs.previous_action, inputs.reward, inputs.is_first)
    outputs = self._policy_and_value(core_outputs, inputs.observation)._replace(
        predictions=predictions)
    if self._pixel_control_head is not None:
      outputs = outputs._replace(pixel_control=self._pixel_control(
          core_outputs, inputs.observation))
    return outputs, state

  def step(self, inputs: NetworkInputs, cache: Any, move: bool = True
           ) -> Tuple[NetworkOutputs, Any]:
    """Takes one step on `inputs` `[B, ...]`; `move` is as for the core's `step`.

    Returns:
      Outputs `[B, ...]`, without pixel control, and the core's cache after the step.
    """
    core_outputs, cache = self.core.step(
        self._embed(inputs, batch_dims=1), inputs.is_first, cache, move)
    return self._policy_and_value(core_outputs, inputs.observation), cache

  def _embed(self, inputs: NetworkInputs, batch_dims: int) -> tf.Tensor:
    """Computes the core's inputs `[..., D]`."""
    instruction, _ = self._split(inputs.observation)  # Word ids stay integers.
    _, observation = self._split(self.normalized(inputs.observation))
    parts = []
    if instruction is not None:
      parts.append(self._instruction_encoder(instruction))
    parts.append(self._torso(observation, batch_dims))
    if self._previous_action_and_reward:
      parts.append(previous_action_and_reward(
          inputs, self.action_space, self.compute_dtype))
    return tf.concat(parts, axis=-1)

  def _split(self, observation: Any) -> Tuple[Any, Any]:
    """Splits an observation, or its spec, without the action mask.

    Returns:
      The instruction, or None; and what the torso embeds.
    """
    observation, _ = specs_lib.split_mask(observation)
    if self._instruction_encoder is None:
      return None, observation
    if not (isinstance(observation, Mapping) and self._instruction_key in observation):
      raise config.ConfigError(
          f'ActorCritic.instruction_key = {self._instruction_key!r}: expected an entry '
          f'of the observation, which is {observation!r:.200}')
    observation = dict(observation)
    instruction = observation.pop(self._instruction_key)
    return instruction, observation

  def _pixel_control(self, core_outputs: tf.Tensor, observation: Any) -> tf.Tensor:
    """Computes the cells' Q values; forbidden actions' are far below all others."""
    q_values = self._pixel_control_head(core_outputs)
    _, mask = specs_lib.split_mask(observation)
    if mask is None:
      return q_values
    return self.action_space.masked(
        action_space.Policy(logits=q_values),
        mask[:, :, tf.newaxis, tf.newaxis]).logits

  def _policy_and_value(self, core_outputs: tf.Tensor, observation: Any
                        ) -> NetworkOutputs:
    policy = self.action_space.policy(self._policy_head(core_outputs))
    return NetworkOutputs(
        self.masked(policy, observation), self.value_head(core_outputs))
