"""The base class of sliding windows, which show a network only the last steps."""

from typing import Any, Sequence

import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf import nests


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
    """The tokens `[B, K, n, D]` before the first step."""
    return tf.zeros(
        [batch_size, self._length, *self._step_shape], self._network.compute_dtype)

  def _make_room(self, x: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Moves `x` `[B, K, ...]` by one step in rows whose `count` `[B]` of steps is K."""
    return nests.where(tf.equal(count, self._length), tf.roll(x, -1, axis=1), x)

  def _next_index(self, count: tf.Tensor) -> tf.Tensor:
    """The index `[B]` of the next step in rows of `count` steps, after `_make_room`."""
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
