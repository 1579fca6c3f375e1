"""Q values of discrete actions, with or without memory."""

from typing import Any, Optional, Tuple

import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.cores import core as core_lib
from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import memory_network
from gtrxl_tf.networks import spec_torso
from gtrxl_tf.networks import torsos
from gtrxl_tf.settings import config


@config.configurable
class CQLNetwork(memory_network.MemoryNetwork):
  """Q values of discrete actions: a torso, a core and a linear layer.

  `call` unrolls over sequences; `step` takes one step for acting and computes the same
  function.

  If the observation is a dictionary with the entry `action_mask`, actions that it does
  not allow have Q values far below all others, so that no target, no conservative term
  and no policy uses them; see `ActionSpace`. Recorded actions must be allowed.

  Args:
    action_spec: the environment's action spec: one discrete action.
    torso: embeds the observation without the action mask; by default a `SpecTorso`,
      made from the observation's spec.
    core: the memory core; by default `Memoryless`, as the paper's networks have no
      memory.
    previous_action_and_reward: whether they are inputs of the core, as in
      `ActorCritic`. This matters only to a core with memory.
    normalize_observations: as in `DecisionNetwork`.

  Attributes:
    action_space: the `ActionSpace` of `action_spec`.
    core: as given.
  """

  default_core = cores.Memoryless

  def __init__(self, action_spec: Any, torso: Optional[torsos.Torso] = None,
               core: Optional[cores.Core] = None,
               previous_action_and_reward: bool = False, name: Optional[str] = None,
               normalize_observations: bool = False):
    super().__init__(
        action_spec, core or self.default_core(), name, normalize_observations)
    if not self.action_space.is_discrete:
      raise config.ConfigError(
          f'CQLNetwork.action_spec = {action_spec!r}: expected one DiscreteArray')
    self._torso = torso
    self._previous_action_and_reward = previous_action_and_reward
    self._head = tf.keras.layers.Dense(
        self.action_space.num_discrete, dtype='float32', name='q_values')

  def _build_embedding(self, observation_spec: Any) -> int:
    embedded, _ = specs_lib.split_mask(observation_spec)
    if self._torso is None:
      self._torso = spec_torso.SpecTorso(embedded)
    self._torso.expect(embedded)
    inputs = actor_critic.zero_inputs(observation_spec, self.action_space)
    return self._embed(inputs, batch_dims=1).shape[-1]

  def _build_heads(self) -> None:
    core_lib.build_layer(self._head, tf.TensorShape([None, self.core.output_size]))

  def call(self, inputs: actor_critic.NetworkInputs, state: Any
           ) -> Tuple[tf.Tensor, Any]:
    """Unrolls over `inputs` `[B, T, ...]`.

    Returns:
      Q values, float32 `[B, T, A]`, and the core's state after the last step.
    """
    outputs, state = self.core(self._embed(inputs, 2), inputs.is_first, state)
    return self._q_values(outputs, inputs.observation), state

  def step(self, inputs: actor_critic.NetworkInputs, cache: Any
           ) -> Tuple[tf.Tensor, Any]:
    """Takes one step on `inputs` `[B, ...]`.

    Returns:
      Q values, float32 `[B, A]`, and the core's cache after the step.
    """
    outputs, cache = self.core.step(self._embed(inputs, 1), inputs.is_first, cache)
    return self._q_values(outputs, inputs.observation), cache

  def best_action(self, inputs: actor_critic.NetworkInputs, cache: Any
                  ) -> Tuple[Any, Any]:
    """Takes one step on `inputs` `[B, ...]`.

    Returns:
      The action with the highest Q value, a sample of `ActionSpace` `[B]`, and the
      core's cache after the step.
    """
    q_values, cache = self.step(inputs, cache)
    return self.action_space.mode(action_space.Policy(logits=q_values)), cache

  def _embed(self, inputs: actor_critic.NetworkInputs, batch_dims: int) -> tf.Tensor:
    """Computes the core's inputs `[..., D]`."""
    observation, _ = specs_lib.split_mask(self.normalized(inputs.observation))
    embedded = self._torso(observation, batch_dims)
    if not self._previous_action_and_reward:
      return embedded
    previous = actor_critic.previous_action_and_reward(
        inputs, self.action_space, self.compute_dtype)
    return tf.concat([embedded, previous], axis=-1)

  def _q_values(self, outputs: tf.Tensor, observation: Any) -> tf.Tensor:
    """Computes Q values from the core's outputs `[..., D]`, with the action mask."""
    q_values = action_space.Policy(logits=self._head(outputs))
    return self.masked(q_values, observation).logits
