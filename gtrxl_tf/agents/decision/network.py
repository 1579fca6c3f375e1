"""Return, observation and action as tokens before a memory core."""

from typing import Any, NamedTuple, Optional, Tuple

import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf import cores
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import torsos

# Tokens a step: return-to-go, observation, action. The policy is read at the second.
TOKENS_PER_STEP = 3


class DecisionInputs(NamedTuple):
  """What the network sees of recorded steps, each `[B, T, ...]`."""
  return_to_go: tf.Tensor  # Floats: what is still to come, in the network's units.
  observation: Any         # A nest of tensors.
  action: Any              # A sample of `ActionSpace`: taken in answer.
  is_first: tf.Tensor      # Bools: where an episode begins.


@config.configurable
class DecisionNetwork(tf.keras.layers.Layer):
  """A policy that is told what return to reach (Chen et al., 2021; RATE, section 3).

  Steps become tokens (return, observation, action), which a memory core reads; the
  policy is a linear function of its output at the observation, so that it sees the
  returns, observations and actions before, and of its own step return and observation.
  Which model it is, is the core's matter: a Decision Transformer is a core that sees one
  window, RATE one with memory tokens, DLSTM an LSTM.

  Called on unrolls; `step` and `remember_action` go one step in acting and compute the
  same function.

  Args:
    action_spec: of the environment; discrete, continuous, or a nest of both.
    torso: embeds the observation.
    core: remembers. Of one that works in segments, a segment has `TOKENS_PER_STEP`
      tokens a step.
    token_dim: width of the tokens, by default the core's output's.
    squash: whether return and action tokens pass a tanh. RATE's do for images, and its
      actions for T-Maze; by default they do not.

  Attributes:
    action_space: of `action_spec`.
    core: as given.
    token_dim: as given, or as by default.
  """

  def __init__(self, action_spec: Any, torso: torsos.Torso, core: cores.Core,
               token_dim: Optional[config.PositiveInt] = None, squash: bool = False,
               name: Optional[str] = None):
    super().__init__(name=name)
    if core.segment_length > 1 and core.segment_length % TOKENS_PER_STEP:
      raise config.ConfigError(
          f'a core with segments of {core.segment_length} tokens: expected a multiple '
          f'of {TOKENS_PER_STEP}, the tokens of a step')
    self.action_space = action_space.ActionSpace(action_spec)
    self.core = core
    token_dim = token_dim or core.output_size
    activation = 'tanh' if squash else None
    dense = lambda name, activation=None: tf.keras.layers.Dense(
        token_dim, activation, name=name)
    self.token_dim = token_dim
    self._torso = torso
    self._return_token = dense('return_token', activation)
    self._observation_token = dense('observation_token')
    self._action_token = dense('action_token', activation)
    self._policy_head = tf.keras.layers.Dense(
        self.action_space.num_outputs, dtype='float32', name='policy_head')

  def create_variables(self, observation_spec: Any) -> None:
    """Creates all variables.

    Args:
      observation_spec: nest of `dm_env` array specs, of one step's observation.
    """
    zeros = lambda spec: tf.zeros([1, *spec.shape], spec.dtype)
    observation = tf.nest.map_structure(zeros, observation_spec)
    action = tf.nest.map_structure(zeros, self.action_space.sample_spec)
    with tf.name_scope(self.name):
      tokens = (self.embed_return(tf.zeros([1])),
                self.embed_observation(observation, batch_dims=1),
                self.embed_action(action))
      if not self.core.built:
        with tf.name_scope(self.core.name):
          self.core.build(tf.TensorShape([None, None, tokens[0].shape[-1]]))
      self._policy_head.build(tf.TensorShape([None, self.core.output_size]))

  def initial_state(self, batch_size) -> Any:
    """The core's state before anything was seen."""
    return self.core.initial_state(batch_size)

  def initial_cache(self, batch_size) -> Any:
    """The core's cache before anything was seen; once there are variables."""
    return self.core.initial_cache(batch_size)

  def call(self, inputs: DecisionInputs, state: Any, training: Optional[bool] = None
           ) -> Tuple[action_space.Policy, Any]:
    """Unrolls over `inputs` `[B, T, ...]`; dropout, if the core has it, in training.

    Returns:
      The policy at each step, `[B, T, ...]`, and the core's state after the last.
    """
    del training  # Keras hands it on to the core.
    return self.read(self.embed(inputs), inputs.is_first, state)

  def embed(self, inputs: DecisionInputs) -> tf.Tensor:
    """The tokens `[B, T, 3, D]` of each step, in their order."""
    return tf.stack([
        self.embed_return(inputs.return_to_go),
        self.embed_observation(inputs.observation, 2),
        self.embed_action(inputs.action)], axis=2)

  def read(self, tokens: tf.Tensor, is_first: tf.Tensor, state: Any
           ) -> Tuple[action_space.Policy, Any]:
    """`call` on tokens."""
    outputs, state = self.core(*flatten(tokens, is_first), state)
    return self._policy(outputs[:, 1::TOKENS_PER_STEP]), state

  def step(self, return_to_go: tf.Tensor, observation: Any, is_first: tf.Tensor,
           cache: Any) -> Tuple[action_space.Policy, Any]:
    """What to do in answer to an observation; all arguments `[B, ...]`.

    Returns:
      The policy, and the core's cache, which is to be told the action.
    """
    _, cache = self.core.step(self.embed_return(return_to_go), is_first, cache)
    outputs, cache = self.core.step(
        self.embed_observation(observation, batch_dims=1), tf.zeros_like(is_first),
        cache)
    return self._policy(outputs), cache

  def remember_action(self, action: Any, cache: Any) -> Any:
    """The core's cache after the action `[B, ...]` that was taken."""
    token = self.embed_action(action)
    _, cache = self.core.step(token, tf.zeros(tf.shape(token)[:1], tf.bool), cache)
    return cache

  def embed_return(self, return_to_go: tf.Tensor) -> tf.Tensor:
    """The tokens of returns `[...]`."""
    return self._return_token(
        tf.cast(return_to_go, self.compute_dtype)[..., tf.newaxis])

  def embed_observation(self, observation: Any, batch_dims: int) -> tf.Tensor:
    """The tokens of observations, of which `batch_dims` axes are batch."""
    return self._observation_token(self._torso(observation, batch_dims))

  def embed_action(self, action: Any) -> tf.Tensor:
    """The tokens of samples `[...]` of `ActionSpace`."""
    return self._action_token(self.action_space.encode(action, self.compute_dtype))

  def _policy(self, outputs: tf.Tensor) -> action_space.Policy:
    return self.action_space.policy(self._policy_head(outputs))


def flatten(tokens: tf.Tensor, is_first: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
  """What a core reads of tokens `[B, T, 3, D]`: `[B, 3T, D]`, and where episodes begin,
  `[B, 3T]`."""
  batch_size, length, width = tf.shape(tokens)[0], tokens.shape[1], tokens.shape[-1]
  no = tf.zeros_like(is_first)
  is_first = tf.stack([is_first, no, no], axis=2)
  flat = [batch_size, TOKENS_PER_STEP * length]
  return tf.reshape(tokens, [*flat, width]), tf.reshape(is_first, flat)
