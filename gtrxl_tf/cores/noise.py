"""Noise in place of memory, to test what a trained model stores in its memory."""

from typing import Any, Callable, Tuple

import tensorflow as tf

from gtrxl_tf.cores import core


class Noise:
  """Mixes noise into what segments read: RATE's convex combination (appendix F.1).

  Each row has a number that seeds its noise and goes up by one each segment. The noise
  depends on nothing else, so unrolls and steps read the same. Code compiled by XLA
  draws different noise from code that is not. Without noise the numbers are `()`.
  """

  def __init__(self, memory_share: float, cache_share: float,
               cache_shape: Tuple[int, ...]):
    """Creates the noise.

    Args:
      memory_share: share of noise in memory tokens, from 0 (none) to 1 (only noise).
      cache_share: share of noise in the cache.
      cache_shape: `[C, L, D]`, the shape of the hidden states behind a row's cache.
    """
    self._memory_share = memory_share
    self._cache_share = cache_share
    self._cache_shape = cache_shape

  def first_numbers(self, batch_size: core.BatchSize) -> Any:
    """Returns the numbers of the first segments, int32 `[B]`, or `()` without noise."""
    if not (self._memory_share or self._cache_share):
      return ()
    return tf.range(batch_size) * 2**16

  def mix(self, numbers: Any, memory: tf.Tensor, cache: Any,
          make_cache: Callable[[tf.Tensor], Any] = tf.identity
          ) -> Tuple[tf.Tensor, Any, Any]:
    """Adds noise to memory and cache.

    Args:
      numbers: from `first_numbers` or the last `mix`.
      memory: `[B, m, D]`.
      cache: hidden states `[B, C, L, D]`, or the result of `make_cache` for them.
      make_cache: a linear function.

    Returns:
      `memory` and `cache` with noise, and the numbers of the next segments.
    """
    if self._memory_share:
      noise = _normal(numbers, memory.shape[1:], 0)
      memory = _combine(memory, noise, self._memory_share)
    if self._cache_share:
      noise = make_cache(_normal(numbers, self._cache_shape, 1))
      cache = tf.nest.map_structure(
          lambda x, y: _combine(x, y, self._cache_share), cache, noise)
    return memory, cache, tf.nest.map_structure(lambda number: number + 1, numbers)


def _normal(numbers, shape, stream):
  """Draws `[B, *shape]` from N(0, 1); row numbers and the stream, 0 or 1, are seeds."""
  def draw(number):
    return tf.random.stateless_normal(
        shape, tf.stack([number, stream]), alg='philox')
  return tf.map_fn(draw, numbers, fn_output_signature=tf.float32)


def _combine(x, noise, share):
  return (1 - share) * x + share * noise
