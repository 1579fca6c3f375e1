"""Transitions of a learning history as tokens for a memory core."""

from typing import Any, List, Literal, NamedTuple, Optional, Tuple

from dm_env import specs
import numpy as np
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import nests
from gtrxl_tf.cores import core as core_lib
from gtrxl_tf.cores import relative_positions
from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import memory_network
from gtrxl_tf.networks import tensor_specs
from gtrxl_tf.networks import torsos
from gtrxl_tf.settings import config


class Histories(NamedTuple):
  """Parts of learning histories: T steps, preceded by the step before the first.

  The preceding step is ignored where a history begins with the first step.
  """
  observation: Any         # Nest of [B, T+1, ...].
  action: Any              # Samples of `ActionSpace`, [B, T+1, ...].
  reward: tf.Tensor        # [B, T+1], the rewards of the actions.
  done: tf.Tensor          # Bool [B, T+1]: whether an episode ended with the action.
  is_first: tf.Tensor      # Bool [B, T]: where a history begins.
  position: tf.Tensor      # Int32 [B, T]: index of the step in its history.


class Transition(NamedTuple):
  """One step of acting: the fields of `Histories`, each `[B, ...]`."""
  observation: Any
  action: Any
  reward: tf.Tensor
  done: tf.Tensor
  position: tf.Tensor


class DistillationCache(NamedTuple):
  """The memory between steps of acting."""
  core: Any         # The core's cache.
  count: tf.Tensor  # [B] int32: number of steps so far.


@config.configurable
class DistillationNetwork(memory_network.MemoryNetwork):
  """A policy that continues a learning history (Laskin et al., 2023).

  It follows "Memory-Efficient Algorithm Distillation", equation 1. Each step is one
  token: the sum of embeddings of the observation, of the action, reward and end of
  episode before it, and of its position. The policy is a linear function of a memory
  core's output at the token. With four tokens per step (observation, action, reward and
  end of episode), the policy is read at the first. The paper mentions four in its
  introduction, but the memory use that it reports fits one.

  Memory persists across episodes. It is cleared only where a history begins.

  Args:
    action_spec: the environment's action spec: discrete, continuous, or a nest of both.
    core: the memory core. If it works in segments, a segment holds
      `tokens_per_transition` tokens per step.
    torso: embeds observations. Without a torso, each integer of an array with bounds
      has its own embedding table, and numbers are scaled by their bounds.
    tokens_per_transition: 1 or 4, see above.
    previous_observation: whether the token also embeds the observation of the step
      before. Small models then learn the effect of an action sooner. The paper does not
      have it.
    positions: which position is embedded, and how. `global` is the step's index in the
      history, which shows how long the agent has been learning; `local` is its index in
      the segment. The embedding is a `learnable` table or `sinusoidal` functions. The
      paper uses the default and compares all in its Figure 6.
    num_positions: number of global positions, the steps of a history. Later steps share
      the last position.
    reward_scale: rewards are divided by it.

  Attributes:
    action_space: the `ActionSpace` of `action_spec`.
    core: as given.
    context_length: number of steps in a segment of the core.
    tokens_per_transition: as given.
  """

  def __init__(
      self, action_spec: Any, core: cores.Core, torso: Optional[torsos.Torso] = None,
      tokens_per_transition: Literal[1, 4] = 1, previous_observation: bool = False,
      positions: Literal['global_learnable', 'global_sinusoidal', 'local_learnable',
                         'local_sinusoidal', 'none'] = 'global_learnable',
      num_positions: config.PositiveInt = 2500,
      reward_scale: config.PositiveFloat = 1.0, name: Optional[str] = None):
    super().__init__(action_spec, core, name)
    if core.segment_length > 1 and core.segment_length % tokens_per_transition:
      raise config.ConfigError(
          f'a core with segments of {core.segment_length} tokens: expected a multiple '
          f'of {tokens_per_transition}, DistillationNetwork.tokens_per_transition')
    self.context_length = max(core.segment_length // tokens_per_transition, 1)
    self._positions, _, self._table = positions.partition('_')
    if self._positions == 'local' and self.context_length == 1:
      raise config.ConfigError(
          f"DistillationNetwork.positions = '{positions}': expected global ones, as "
          'the core does not work in segments')
    self.tokens_per_transition = tokens_per_transition
    self._torso = torso
    self._previous_observation = previous_observation
    self._num_positions = (
        self.context_length if self._positions == 'local' else num_positions)
    self._reward_scale = reward_scale
    # One layer per token: the sum of embeddings is one embedding of the concatenation.
    self._tokens = [
        tf.keras.layers.Dense(core.output_size, name=f'{kind}_token')
        for kind in ('transition', 'action', 'reward', 'done')[:tokens_per_transition]]
    self._policy_head = tf.keras.layers.Dense(
        self.action_space.num_outputs, dtype='float32', name='policy_head')

  def _build_embedding(self, observation_spec: Any) -> int:
    if specs_lib.split_mask(observation_spec)[1] is not None:
      raise config.ConfigError(
          f'observation_spec has {specs_lib.MASK!r}: expected none, as '
          'DistillationNetwork does not mask actions')
    self._observation_spec = observation_spec
    if self._torso is not None:
      self._torso.expect(observation_spec)
    if self._table == 'learnable':
      self.position_table = self.add_weight(
          'position_table', (self._num_positions, self.core.output_size),
          initializer=tf.keras.initializers.RandomNormal(stddev=0.02))
    no = tf.zeros([1, 2], tf.bool)
    tokens = self.embed(Histories(
        tensor_specs.zeros(observation_spec, [1, 2]),
        tensor_specs.zeros(self.action_space.sample_spec, [1, 2]),
        reward=tf.zeros([1, 2]), done=no, is_first=no[:, 1:],
        position=tf.zeros([1, 1], tf.int32)))
    return tokens.shape[-1]

  def _build_heads(self) -> None:
    core_lib.build_layer(
        self._policy_head, tf.TensorShape([None, self.core.output_size]))

  def initial_cache(self, batch_size) -> DistillationCache:
    """Returns the cache before the first step. The variables must exist."""
    return DistillationCache(
        super().initial_cache(batch_size), tf.zeros([batch_size], tf.int32))

  def call(self, inputs: Histories, state: Any, training: Optional[bool] = None
           ) -> Tuple[action_space.Policy, Any]:
    """Unrolls over `inputs`; in training with the core's dropout, if any.

    Returns:
      The policy at each of the T steps, and the core's state after the last.
    """
    del training  # Keras passes it on to the core.
    return self.read(self.embed(inputs), inputs.position, inputs.is_first, state)

  def embed(self, inputs: Histories) -> tf.Tensor:
    """Embeds each step as n tokens, `[B, T, n, D]`, without positions."""
    observation = self._encode(inputs.observation)
    before, now = (slice(None), slice(-1)), (slice(None), slice(1, None))
    outcome = [
        self.action_space.encode(inputs.action, self.compute_dtype),
        self._feature(tf.cast(inputs.reward, tf.float32) / self._reward_scale),
        self._feature(inputs.done)]
    is_first = inputs.is_first[..., tf.newaxis]

    def known(x: tf.Tensor) -> tf.Tensor:
      """Returns features of the step before, which a history's first step lacks."""
      return tf.where(is_first, tf.zeros([], x.dtype), x[before])

    features = [observation[now]]
    if self._previous_observation:
      features.append(known(observation))
    if self.tokens_per_transition > 1:
      features = [tf.concat(features, axis=-1), *(x[now] for x in outcome)]
    else:
      features += [*map(known, outcome), tf.cast(is_first, self.compute_dtype)]
      features = [tf.concat(features, axis=-1)]
    return tf.stack([token(x) for token, x in zip(self._tokens, features)], axis=2)

  def read(self, tokens: tf.Tensor, position: tf.Tensor, is_first: tf.Tensor,
           state: Any) -> Tuple[action_space.Policy, Any]:
    """Computes `call` from tokens `[B, T, n, D]`."""
    outputs, state = self.core(*self._flattened(tokens, position, is_first), state)
    num_steps, num_tokens, _ = tokens.shape[1:]
    outputs = tf.reshape(outputs, [-1, num_steps, num_tokens, outputs.shape[-1]])
    return self._policy(tf.unstack(outputs, axis=2)[0]), state

  def attention_weights(self, inputs: Histories, state: Any) -> Any:
    """Returns the attention weights of the core, which must have them, in an unroll."""
    return self.core.attention_weights(
        *self._flattened(self.embed(inputs), inputs.position, inputs.is_first), state)

  def _flattened(self, tokens: tf.Tensor, position: tf.Tensor, is_first: tf.Tensor
               ) -> Tuple[tf.Tensor, tf.Tensor]:
    """Flattens tokens `[B, T, n, D]`, with positions, into the core's inputs.

    Returns:
      The inputs `[B, T n, D]`, and where histories begin in them, `[B, T n]`.
    """
    num_steps, num_tokens, width = tokens.shape[1:]
    place = tf.range(num_steps)[tf.newaxis] % self.context_length
    tokens = self._place(tokens, position, place)
    first = tf.pad(is_first[..., tf.newaxis], [[0, 0], [0, 0], [0, num_tokens - 1]])
    flat = [tf.shape(tokens)[0], num_steps * num_tokens]
    return tf.reshape(tokens, [*flat, width]), tf.reshape(first, flat)

  def step(self, previous: Transition, observation: Any, position: tf.Tensor,
           is_first: tf.Tensor, cache: DistillationCache
           ) -> Tuple[action_space.Policy, DistillationCache]:
    """Computes the policy for an observation.

    Args:
      previous: the step before.
      observation: nest of `[B, ...]`.
      position: `[B]`, the position of this step.
      is_first: `[B]`, whether a history begins with this step.
      cache: the cache that the step before returned.

    Returns:
      The policy `[B, ...]`, and the cache after the step.
    """
    tokens, late = self.embed_step(previous, observation, is_first)
    core_cache, count = cache
    no = tf.zeros_like(is_first)
    place = tf.maximum(count - 1, 0) % self.context_length
    for token in late:
      token = self._place(token, previous.position, place)
      _, core_cache = self.core.step(token, no, core_cache)
    cache = tf.cond(
        tf.reduce_any(is_first),
        lambda: nests.where(
            is_first, self.initial_cache(tf.shape(is_first)[0]),
            DistillationCache(core_cache, count)),
        lambda: DistillationCache(core_cache, count))
    token = self._place(tokens, position, cache.count % self.context_length)
    outputs, core_cache = self.core.step(token, no, cache.core)
    return self._policy(outputs), DistillationCache(core_cache, cache.count + 1)

  def embed_step(self, previous: Transition, observation: Any, is_first: tf.Tensor
                 ) -> Tuple[tf.Tensor, List[tf.Tensor]]:
    """Embeds one step of acting, without positions.

    Returns:
      The token `[B, D]` of the step, and the `n - 1` tokens of the step before that
      were unknown when it was taken.
    """
    def pair(*x: tf.Tensor) -> tf.Tensor:
      return tf.stack(x, axis=1)

    tokens = self.embed(Histories(
        tf.nest.map_structure(pair, previous.observation, observation),
        # The outcome of this step is not known yet. Its placeholder is not read.
        *tf.nest.map_structure(
            lambda x: pair(x, x), (previous.action, previous.reward, previous.done)),
        is_first=is_first[:, tf.newaxis], position=previous.position[:, tf.newaxis]))
    token, *late = tf.unstack(tokens[:, 0], axis=1)
    return token, late

  def _place(self, tokens: tf.Tensor, position: tf.Tensor, place: tf.Tensor
             ) -> tf.Tensor:
    """Adds the embedding of positions, if any, to tokens `[..., n, D]` or `[..., D]`.

    Args:
      tokens: the tokens of steps `[...]`.
      position: index of each step in the history.
      place: index of each step in the segment.
    """
    if not self._table:
      return tokens
    if self._table == 'learnable':
      # The reshape makes the gradient a tensor. A lookup alone gives `IndexedSlices`,
      # whose norm is undefined.
      table = tf.reshape(self.position_table, self.position_table.shape)
    else:
      table = tf.constant(np.ascontiguousarray(relative_positions.sinusoids(
          self._num_positions, tokens.shape[-1])[::-1]))
    index = place if self._positions == 'local' else position
    index = tf.clip_by_value(index, 0, self._num_positions - 1)
    added = tf.cast(tf.gather(table, index), tokens.dtype)
    # The gradient of `[:, :, tf.newaxis]` takes as long as half of a small step.
    return tokens + (added if tokens.shape.rank < 4 else tf.expand_dims(added, 2))

  def _encode(self, observation: Any) -> tf.Tensor:
    """Encodes observations as features `[B, T, F]`."""
    if self._torso is not None:
      return self._torso(observation, 2)
    leaves = zip(tf.nest.flatten(self._observation_spec), tf.nest.flatten(observation))
    return tf.concat(
        [_numbers(spec, x, self.compute_dtype) for spec, x in leaves], axis=-1)

  def _feature(self, x: tf.Tensor) -> tf.Tensor:
    """Converts numbers `[B, T]` to features `[B, T, 1]`."""
    return tf.cast(x, self.compute_dtype)[..., tf.newaxis]

  def _policy(self, outputs: tf.Tensor) -> action_space.Policy:
    return self.action_space.policy(self._policy_head(outputs))


def _numbers(spec: specs.Array, x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
  """Converts `x` `[B, T, ...]` to features `[B, T, F]`; bounded integers to one-hot."""
  shape = tf.concat([tf.shape(x)[:2], [int(np.prod(spec.shape))]], axis=0)
  if not specs_lib.is_discrete(spec) or specs_lib.kind(spec) == 'number':
    return tf.cast(tf.reshape(torsos.scaled(spec, x), shape), dtype)
  x = tf.cast(tf.reshape(x, shape), tf.int64) - specs_lib.minimum(spec).reshape(-1)
  return tf.concat([
      tf.one_hot(x[..., i], num, dtype=dtype)
      for i, num in enumerate(specs_lib.num_values(spec))], axis=-1)
