"""Q values of discrete actions, on a memory core or without memory."""

from typing import Any, Optional, Tuple

import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf import cores
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import torsos


@config.configurable
class CQLNetwork(tf.keras.layers.Layer):
  """Q values: torso, core, a linear layer.

  Called on unrolls; `step` goes one step in acting and computes the same function.

  Args:
    action_spec: of the environment; one discrete action.
    torso: embeds the observation.
    core: remembers; by default a `Memoryless` one, as the paper's networks have no
      memory.
    previous_action_and_reward: whether the core sees them too, as that of `ActorCritic`
      does. It matters to a core that remembers only.

  Attributes:
    action_space: of `action_spec`.
    core: as given.

  Raises:
    ConfigError: an action that is not discrete.
  """

  def __init__(self, action_spec: Any, torso: torsos.Torso,
               core: Optional[cores.Core] = None,
               previous_action_and_reward: bool = False, name: Optional[str] = None):
    super().__init__(name=name)
    self.action_space = action_space.ActionSpace(action_spec)
    if not self.action_space.is_discrete:
      raise config.ConfigError(
          f'CQLNetwork.action_spec = {action_spec!r}: expected one DiscreteArray')
    self.core = core or cores.Memoryless()
    self._torso = torso
    self._previous_action_and_reward = previous_action_and_reward
    self._head = tf.keras.layers.Dense(
        self.action_space.num_discrete, dtype='float32', name='q_values')

  def create_variables(self, observation_spec: Any) -> None:
    """Creates all variables.

    Args:
      observation_spec: nest of `dm_env` array specs, of one step's observation.
    """
    zeros = lambda spec: tf.zeros([1, *spec.shape], spec.dtype)
    inputs = actor_critic.NetworkInputs(
        observation=tf.nest.map_structure(zeros, observation_spec),
        previous_action=zeros(self.action_space.sample_spec),
        reward=tf.zeros([1]), is_first=tf.ones([1], tf.bool))
    with tf.name_scope(self.name):
      embedded = self._embed(inputs, batch_dims=1)
      if not self.core.built:
        with tf.name_scope(self.core.name):
          self.core.build(tf.TensorShape([None, None, embedded.shape[-1]]))
      self._head.build(tf.TensorShape([None, self.core.output_size]))

  def initial_state(self, batch_size) -> Any:
    """The core's state before anything was seen."""
    return self.core.initial_state(batch_size)

  def initial_cache(self, batch_size) -> Any:
    """The core's cache before anything was seen; once there are variables."""
    return self.core.initial_cache(batch_size)

  def call(self, inputs: actor_critic.NetworkInputs, state: Any
           ) -> Tuple[tf.Tensor, Any]:
    """Unrolls over `inputs` `[B, T, ...]`.

    Returns:
      Q values, float32 `[B, T, A]`, and the core's state after the last step.
    """
    outputs, state = self.core(self._embed(inputs, 2), inputs.is_first, state)
    return self._head(outputs), state

  def step(self, inputs: actor_critic.NetworkInputs, cache: Any
           ) -> Tuple[tf.Tensor, Any]:
    """One step: `inputs` `[B, ...]`.

    Returns:
      Q values, float32 `[B, A]`, and the core's cache after the step.
    """
    outputs, cache = self.core.step(self._embed(inputs, 1), inputs.is_first, cache)
    return self._head(outputs), cache

  def best_action(self, inputs: actor_critic.NetworkInputs, cache: Any
                  ) -> Tuple[Any, Any]:
    """One step: the action of the highest Q value, a sample of `ActionSpace` `[B]`."""
    q_values, cache = self.step(inputs, cache)
    return self.action_space.mode(action_space.Policy(logits=q_values)), cache

  def _embed(self, inputs: actor_critic.NetworkInputs, batch_dims: int) -> tf.Tensor:
    """What the core sees, `[..., D]`."""
    embedded = self._torso(inputs.observation, batch_dims)
    if not self._previous_action_and_reward:
      return embedded
    action = self.action_space.encode(inputs.previous_action, self.compute_dtype)
    reward = tf.cast(inputs.reward, self.compute_dtype)[..., tf.newaxis]
    both = tf.concat([action, reward], axis=-1)
    return tf.concat([
        embedded,
        tf.where(inputs.is_first[..., tf.newaxis], tf.zeros_like(both), both)], axis=-1)
