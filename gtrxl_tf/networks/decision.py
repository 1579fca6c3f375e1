"""Returns, observations and actions as tokens for a memory core."""

from typing import Any, Callable, NamedTuple, Optional, Tuple

import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.cores import core as core_lib
from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import memory_network
from gtrxl_tf.networks import spec_torso
from gtrxl_tf.networks import tensor_specs
from gtrxl_tf.networks import torsos
from gtrxl_tf.settings import config

# Tokens per step: return-to-go, observation, action. The policy is read at the second.
TOKENS_PER_STEP = 3


class Segments(NamedTuple):
  """Recorded steps `[B, T, ...]`: the network's inputs, and what losses need of them.

  A row may begin anywhere in an episode.
  """
  return_to_go: tf.Tensor  # Floats: the remaining return, in the network's units.
  observation: Any         # A nest of tensors.
  action: Any              # A sample of `ActionSpace`, taken at the observation.
  is_first: tf.Tensor      # Bool: where the memory is cleared, as an episode begins.
  timestep: Any = ()       # Int32: steps since the episode began, if embedded.
  # For losses only:
  reward: Any = ()         # Follows the action; in the environment's units.
  discount: Any = ()       # After the action; 0 where it ended the task.
  valid: Any = ()          # Bool: false where a row is padded.
  state: Any = ()          # The network's state before each row; () is the initial one.


@config.configurable
class DecisionNetwork(memory_network.MemoryNetwork):
  """A policy conditioned on a return (Chen et al., 2021; RATE, section 3).

  Each step becomes three tokens (return, observation, action) for a memory core. The
  policy is a linear function of the core's output at the observation. It therefore
  depends on all earlier steps, and on the return and observation of the current one.
  The core determines the model: a Decision Transformer is a core that sees one window,
  RATE is a core with memory tokens, DLSTM is an LSTM.

  `call` unrolls over sequences; `step` and `remember_action` take one step for acting
  and compute the same function.

  If the observation is a dictionary with the entry `action_mask`, the policy gives
  probability 0 to the actions that it does not allow; see `ActionSpace`. Recorded
  actions must be allowed.

  Args:
    action_spec: the environment's action spec: discrete, continuous, or a nest of both.
    torso: embeds the observation without the action mask; by default a `SpecTorso`,
      made from the observation's spec.
    core: the memory core; required. If it works in segments, a segment holds
      `TOKENS_PER_STEP` tokens per step.
    token_dim: width of the tokens; by default that of the core's output.
    squash: whether return and action tokens pass a tanh, as RATE's do for images and
      its action tokens do for T-Maze. By default they do not.
    squash_observations: whether observation tokens pass a tanh, as those of images do
      in Decision Transformer's code.
    num_timesteps: if given, a learned embedding of a step's number in the episode is
      added to its tokens, as in Decision Transformer (Chen et al., 2021). Steps from
      this number on share the last embedding. By default only the core sees the order
      of steps.
    oracle: makes a Decision Transformer an OracleDT, which is told what it should
      remember (RATE, Table 5). Called with the first observations of B episodes, it
      returns a bit for each. The memory tokens of the core, a `RATE` of one segment,
      are multiplied by the bit: zeros or a learned vector stand before the context and
      after it. The paper has ones for the learned vector, but norms before the
      sublayers turn any constant vector into zeros. Trajectories must begin where
      episodes do, and acting needs `DecisionPolicy.window`.
    see_actions: whether action tokens hold the actions; otherwise they are zeros. In
      many datasets the previous action predicts the next one, and a model that copies
      it ignores everything else (de Haan et al., 2019). This is worst where the
      recorded action is not the one that was played, see `Collector.record`.
    normalize_observations: whether numbers and images in observations are brought to
      mean 0 and deviation 1 by the statistics of the experiment's dataset, see
      `ObservationStatistics`, as RATE's code does in MuJoCo.

  Attributes:
    action_space: the `ActionSpace` of `action_spec`.
    core: as given.
    token_dim: as given, or the default.
    oracle: as given.
  """

  def __init__(self, action_spec: Any, torso: Optional[torsos.Torso] = None,
               core: Optional[cores.Core] = None,
               token_dim: Optional[config.PositiveInt] = None, squash: bool = False,
               squash_observations: bool = False, name: Optional[str] = None,
               num_timesteps: Optional[config.PositiveInt] = None,
               oracle: Optional[Callable[[Any], tf.Tensor]] = None,
               see_actions: bool = True, normalize_observations: bool = False):
    super().__init__(action_spec, core, name, normalize_observations)
    if core.segment_length > 1 and core.segment_length % TOKENS_PER_STEP:
      raise config.ConfigError(
          f'a core with segments of {core.segment_length} tokens: expected a multiple '
          f'of {TOKENS_PER_STEP}, the tokens of a step')
    if oracle is not None and not (
        isinstance(core, cores.RATE) and core.initial_state(1).memory.shape[1]):
      raise config.ConfigError(
          f'DecisionNetwork.oracle with {type(core).__name__}: expected a RATE '
          'with memory tokens, which the oracle turns on and off')
    token_dim = token_dim or core.output_size
    activation = 'tanh' if squash else None
    self.token_dim = token_dim
    self.oracle = oracle
    self._torso = torso
    self._num_timesteps = num_timesteps
    self._return_token = tf.keras.layers.Dense(
        token_dim, activation, name='return_token')
    self._observation_token = tf.keras.layers.Dense(
        token_dim, 'tanh' if squash_observations else None, name='observation_token')
    self._action_token = None
    if see_actions:
      self._action_token = tf.keras.layers.Dense(
          token_dim, activation, name='action_token')
    self._policy_head = tf.keras.layers.Dense(
        self.action_space.num_outputs, dtype='float32', name='policy_head')

  def _build_embedding(self, observation_spec: Any) -> int:
    embedded, _ = specs_lib.split_mask(observation_spec)
    if self._torso is None:
      self._torso = spec_torso.SpecTorso(embedded)
    self._torso.expect(embedded)
    if self._num_timesteps:
      self.timestep_table = self.add_weight(
          'timestep_table', (self._num_timesteps, self.token_dim),
          initializer=tf.keras.initializers.RandomNormal(stddev=0.02))
    self.embed_return(tf.zeros([1]))
    self.embed_observation(tensor_specs.zeros(observation_spec, [1]), batch_dims=1)
    self.embed_action(tensor_specs.zeros(self.action_space.sample_spec, [1]))
    return self.token_dim

  def _build_heads(self) -> None:
    core_lib.build_layer(
        self._policy_head, tf.TensorShape([None, self.core.output_size]))

  def call(self, inputs: Segments, state: Any, training: Optional[bool] = None
           ) -> Tuple[action_space.Policy, Any]:
    """Unrolls over `inputs` `[B, T, ...]`; in training with the core's dropout, if any.

    Returns:
      The policy at each step, `[B, T, ...]`, and the core's state after the last.
    """
    del training  # Keras passes it on to the core.
    policy, state = self.read(self.embed(inputs), *self.with_oracle(inputs, state))
    return self.masked(policy, inputs.observation), state

  def embed(self, inputs: Segments) -> tf.Tensor:
    """Embeds each step as its three tokens, in their order: `[B, T, 3, D]`."""
    tokens = tf.stack([
        self.embed_return(inputs.return_to_go),
        self.embed_observation(inputs.observation, 2),
        self.embed_action(inputs.action)], axis=2)
    time = self.embed_timestep(inputs.timestep)
    return tokens if time is None else tokens + time[:, :, tf.newaxis]

  def with_oracle(self, inputs: Segments, state: Any) -> Tuple[tf.Tensor, Any]:
    """Asks the oracle, if there is one; returns `is_first` and state for the core."""
    if self.oracle is None:
      return inputs.is_first, state
    num_steps = inputs.is_first.shape[1]
    if TOKENS_PER_STEP * num_steps > self.core.segment_length:
      raise config.ConfigError(
          f'DecisionNetwork.oracle with {num_steps} steps: expected one segment, of '
          f'RATE.segment_length = {self.core.segment_length} tokens')
    first = tf.nest.map_structure(lambda x: x[:, 0], inputs.observation)
    return self.with_answer(self.oracle(first), inputs.is_first, state)

  def with_answer(self, answer: tf.Tensor, is_first: tf.Tensor, state: Any
                  ) -> Tuple[tf.Tensor, Any]:
    """Multiplies the core's memory tokens by the oracle's answer `[B]`.

    Returns:
      `is_first` and state for the core. `is_first` is all false, so that the core keeps
      these tokens even where an episode begins.
    """
    answer = tf.cast(answer, state.memory.dtype)[:, tf.newaxis, tf.newaxis]
    memory = tf.cast(self.core.initial_memory, state.memory.dtype)
    return tf.zeros_like(is_first), state._replace(
        memory=answer * memory, begun=tf.ones_like(state.begun))

  def read(self, tokens: tf.Tensor, is_first: tf.Tensor, state: Any
           ) -> Tuple[action_space.Policy, Any]:
    """Computes `call` from tokens `[B, T, 3, D]`, without oracle and action mask."""
    outputs, state = self.core(*flatten(tokens, is_first), state)
    outputs = tf.reshape(
        outputs, [-1, tokens.shape[1], TOKENS_PER_STEP, outputs.shape[-1]])
    return self._policy(tf.unstack(outputs, axis=2)[1]), state

  def step(self, return_to_go: tf.Tensor, observation: Any, is_first: tf.Tensor,
           cache: Any, timestep: Any = ()) -> Tuple[action_space.Policy, Any]:
    """Computes the policy for an observation; all arguments are `[B, ...]`.

    Returns:
      The policy, and the core's cache. Pass the cache to `remember_action`, with the
      action that is taken, before the next step.
    """
    first = self.with_timestep(self.embed_return(return_to_go), timestep)
    second = self.with_timestep(self.embed_observation(observation, batch_dims=1), timestep)
    _, cache = self.core.step(first, is_first, cache)
    outputs, cache = self.core.step(second, tf.zeros_like(is_first), cache)
    return self.masked(self._policy(outputs), observation), cache

  def remember_action(self, action: Any, cache: Any, timestep: Any = ()) -> Any:
    """Returns the core's cache after the action `[B, ...]` that was taken."""
    token = self.with_timestep(self.embed_action(action), timestep)
    _, cache = self.core.step(token, tf.zeros(tf.shape(token)[:1], tf.bool), cache)
    return cache

  def embed_timestep(self, timestep: Any) -> Optional[tf.Tensor]:
    """Embeds timesteps `[...]` as `[..., D]`; returns None if none are embedded."""
    if not self._num_timesteps:
      return None
    if isinstance(timestep, tuple):
      raise ValueError('timestep is left out: expected integers, since '
                       f'DecisionNetwork.num_timesteps = {self._num_timesteps}')
    return tf.gather(tf.cast(self.timestep_table, self.compute_dtype),
                     tf.minimum(timestep, self._num_timesteps - 1))

  def with_timestep(self, token: tf.Tensor, timestep: Any) -> tf.Tensor:
    """Adds the embedding of its timestep `[B]`, if any, to a token `[B, D]`."""
    time = self.embed_timestep(timestep)
    return token if time is None else token + time

  def embed_return(self, return_to_go: tf.Tensor) -> tf.Tensor:
    """Embeds returns `[...]` as tokens `[..., D]`."""
    return self._return_token(
        tf.cast(return_to_go, self.compute_dtype)[..., tf.newaxis])

  def embed_observation(self, observation: Any, batch_dims: int) -> tf.Tensor:
    """Embeds observations, whose first `batch_dims` axes are batch axes, as tokens."""
    observation, _ = specs_lib.split_mask(self.normalized(observation))
    return self._observation_token(self._torso(observation, batch_dims))

  def embed_action(self, action: Any) -> tf.Tensor:
    """Embeds samples `[...]` of `ActionSpace` as tokens `[..., D]`."""
    outputs = self.action_space.encode(action, self.compute_dtype)
    if self._action_token is None:
      return tf.zeros_like(outputs[..., :1]) * tf.zeros([self.token_dim], outputs.dtype)
    return self._action_token(outputs)

  def _policy(self, outputs: tf.Tensor) -> action_space.Policy:
    return self.action_space.policy(self._policy_head(outputs))


def flatten(tokens: tf.Tensor, is_first: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
  """Flattens tokens `[B, T, 3, D]` into a core's inputs.

  Args:
    tokens: the tokens of each step.
    is_first: `[B, T]`, where an episode begins.

  Returns:
    The inputs `[B, 3T, D]`, and where an episode begins in them, `[B, 3T]`.
  """
  batch_size, length, width = tf.shape(tokens)[0], tokens.shape[1], tokens.shape[-1]
  no = tf.zeros_like(is_first)
  is_first = tf.stack([is_first, no, no], axis=2)
  flat = [batch_size, TOKENS_PER_STEP * length]
  return tf.reshape(tokens, [*flat, width]), tf.reshape(is_first, flat)
