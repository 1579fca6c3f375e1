"""Sliding windows, which show a network only the last steps."""

from typing import Any, NamedTuple, Sequence, Tuple

import tensorflow as tf

from gtrxl_tf import nests
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import decision
from gtrxl_tf.networks import distillation
from gtrxl_tf.settings import config


class SlidingWindow(tf.Module):
  """Acts with a network that sees the last K steps and no memory from before them.

  The network's `step` continues from its memory, and a core in segments starts a new
  segment at the same steps as in training. With a core of a single segment, such as a
  Decision Transformer, it would forget everything whenever the segment is full. The
  window instead moves by one step (Chen et al., 2021; RATE's code does the same). When
  a step leaves the window, the layers' outputs at all other steps change, so each step
  runs the core over the complete window again. Tokens are kept, so an image passes the
  torso only once.

  Within the first K steps the result equals that of the network's `step`. Each row
  counts its steps separately. After fewer than K steps, the rest of a row may hold
  anything, since a causal network does not see it.
  """

  def __init__(self, network: Any, length: int, tokens_per_step: int, token_dim: int):
    """Creates the window.

    Args:
      network: reads tokens `[B, K, n, D]`; its variables must exist.
      length: K. If the core works in segments, the window must hold complete ones.
      tokens_per_step: n.
      token_dim: D.
    """
    segment = network.core.segment_length
    if tokens_per_step * length % segment:
      raise config.ConfigError(
          f'a window of {length} steps, {tokens_per_step} tokens each: expected a '
          f'multiple of the core\'s segments of {segment} tokens')
    super().__init__(name='sliding_window')
    self.action_space = network.action_space
    self._network = network
    self._length = length
    self._step_shape = [tokens_per_step, token_dim]

  @property
  def variables(self) -> Sequence[tf.Variable]:
    """The network's variables."""
    return self._network.variables

  def _no_tokens(self, batch_size) -> tf.Tensor:
    """Returns the tokens `[B, K, n, D]` before the first step."""
    return tf.zeros(
        [batch_size, self._length, *self._step_shape], self._network.compute_dtype)

  def _make_room(self, x: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Moves `x` `[B, K, ...]` by one step in rows whose `count` `[B]` of steps is K."""
    return nests.where(tf.equal(count, self._length), tf.roll(x, -1, axis=1), x)

  def _next_index(self, count: tf.Tensor) -> tf.Tensor:
    """Returns the next step's index `[B]` after `count` steps and `_make_room`."""
    return tf.minimum(count, self._length - 1)


def put(tokens: tf.Tensor, new: tf.Tensor, index: tf.Tensor, kind: int) -> tf.Tensor:
  """Replaces one token of each row.

  Args:
    tokens: `[B, K, n, D]`.
    new: `[B, D]`, the new token of each row.
    index: `[B]`, the token's step.
    kind: the token's place among the n tokens of the step.
  """
  step = tf.equal(tf.range(tokens.shape[1]), index[:, tf.newaxis])
  here = step[:, :, tf.newaxis] & tf.equal(tf.range(tokens.shape[2]), kind)
  return tf.where(here[..., tf.newaxis], new[:, tf.newaxis, tf.newaxis], tokens)


def take(nest: Any, index: tf.Tensor) -> Any:
  """Takes the step `index` `[B]` from each row of a nest of `[B, K, ...]`."""
  return tf.nest.map_structure(
      lambda x: tf.gather(x, index, axis=1, batch_dims=1), nest)


class DecisionWindowCache(NamedTuple):
  """The last K steps of every row, oldest first."""
  tokens: tf.Tensor  # [B, K, 3, D]; an action's token is valid once it was taken.
  count: tf.Tensor   # [B] int32 in 0..K: number of steps.
  answer: Any = ()   # [B], the answer at the episode's first step, with an oracle.


class DecisionWindow(SlidingWindow):
  """Acts on an episode's last K steps."""

  def __init__(self, network: decision.DecisionNetwork, length: int):
    super().__init__(network, length, decision.TOKENS_PER_STEP, network.token_dim)

  def initial_cache(self, batch_size) -> DecisionWindowCache:
    """Returns the cache before the first step."""
    answer = () if self._network.oracle is None else tf.zeros([batch_size])
    return DecisionWindowCache(
        self._no_tokens(batch_size), tf.zeros([batch_size], tf.int32), answer)

  def step(self, return_to_go: tf.Tensor, observation: Any, is_first: tf.Tensor,
           cache: DecisionWindowCache, timestep: Any = ()
           ) -> Tuple[action_space.Policy, DecisionWindowCache]:
    """Computes the policy of the next step, as `DecisionNetwork.step` does.

    Returns:
      The policy, and the cache after the step.
    """
    count = tf.where(is_first, 0, cache.count)
    index = self._next_index(count)
    tokens = self._make_room(cache.tokens, count)
    for i, token in enumerate((self._network.embed_return(return_to_go),
                               self._network.embed_observation(observation, 1))):
      tokens = put(tokens, self._network.with_timestep(token, timestep), index, i)
    begins = tf.equal(tf.range(self._length), 0) & tf.ones_like(is_first)[:, tf.newaxis]
    state = self._network.initial_state(tf.shape(count)[0])
    answer = cache.answer
    if self._network.oracle is not None:
      new = tf.cast(self._network.oracle(observation), tf.float32)
      answer = tf.where(is_first, new, answer)
      begins, state = self._network.with_answer(answer, begins, state)
    policies, _ = self._network.read(tokens, begins, state)
    policy = self._network.masked(take(policies, index), observation)
    return policy, DecisionWindowCache(tokens, index + 1, answer)

  def remember_action(self, action: Any, cache: DecisionWindowCache, timestep: Any = ()
                      ) -> DecisionWindowCache:
    """Returns the cache after the action that was taken."""
    token = self._network.with_timestep(self._network.embed_action(action), timestep)
    return cache._replace(tokens=put(cache.tokens, token, cache.count - 1, 2))


class DistillationWindowCache(NamedTuple):
  """The last K steps of every row, oldest first."""
  tokens: tf.Tensor    # [B, K, n, D], without positions.
  position: tf.Tensor  # [B, K] int32, in the history.
  count: tf.Tensor     # [B] int32 in 0..K: number of steps.


class DistillationWindow(SlidingWindow):
  """Acts on a history's last K steps.

  The network was trained on windows that begin anywhere in a history. It acts on the
  window that ends with the current step.
  """

  def __init__(self, network: distillation.DistillationNetwork, length: int):
    super().__init__(
        network, length, network.tokens_per_transition, network.core.output_size)

  def initial_cache(self, batch_size) -> DistillationWindowCache:
    """Returns the cache before the first step."""
    return DistillationWindowCache(
        self._no_tokens(batch_size), tf.zeros([batch_size, self._length], tf.int32),
        tf.zeros([batch_size], tf.int32))

  def step(self, previous: distillation.Transition, observation: Any,
           position: tf.Tensor, is_first: tf.Tensor, cache: DistillationWindowCache
           ) -> Tuple[action_space.Policy, DistillationWindowCache]:
    """Computes the policy of the next step, as `DistillationNetwork.step` does.

    Returns:
      The policy, and the cache after the step.
    """
    network = self._network
    token, late = network.embed_step(previous, observation, is_first)
    count = tf.where(is_first, 0, cache.count)
    tokens = cache.tokens
    for kind, new in enumerate(late, 1):
      tokens = put(tokens, new, count - 1, kind)
    index = self._next_index(count)
    tokens = put(self._make_room(tokens, count), token, index, 0)
    here = tf.equal(tf.range(self._length), index[:, tf.newaxis])
    positions = tf.where(here, position[:, tf.newaxis],
                         self._make_room(cache.position, count))
    policies, _ = network.read(
        tokens, positions, tf.zeros_like(here),
        network.core.empty_state(tf.shape(count)[0]))
    return take(policies, index), DistillationWindowCache(tokens, positions, index + 1)
