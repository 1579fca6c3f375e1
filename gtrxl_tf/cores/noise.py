"""Noise in the place of memory, to see what a trained model has in it."""

from typing import Any, Callable, Tuple

import tensorflow as tf


class Noise:
  """Mixes noise into what segments read, by RATE's convex combination (appendix F.1).

  Each row has a number, by which `mix` draws and which goes up from segment to segment.
  The noise depends on nothing else, so that unroll and steps read the same; but what is
  compiled by XLA draws other noise than what is not. Where there is no noise there are
  no numbers: `()`.
  """

  def __init__(self, memory_share: float, cache_share: float,
               cache_shape: Tuple[int, ...]):
    """Creates the noise.

    Args:
      memory_share: of memory tokens, 0 for none to 1 for nothing else.
      cache_share: the same, of the cache.
      cache_shape: `[C, L, D]`, of the hidden states that make a row's cache.
    """
    self._memory_share = memory_share
    self._cache_share = cache_share
    self._cache_shape = cache_shape

  def first_numbers(self, batch_size):
    """`[B]`, int32."""
    if not (self._memory_share or self._cache_share):
      return ()
    return tf.range(batch_size) * 2**16

  def mix(self, numbers: Any, memory: tf.Tensor, cache: Any,
          make_cache: Callable[[tf.Tensor], Any] = tf.identity):
    """What a segment reads, and the next numbers.

    Args:
      numbers: as `first_numbers` or `mix` gave them.
      memory: `[B, m, D]`.
      cache: hidden states `[B, C, L, D]`, or what `make_cache` makes of them.
      make_cache: linear.

    Returns:
      `memory` and `cache`, with noise; `numbers`.
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
  """`[B, *shape]` from N(0, 1): a row's is the one of its number, in either stream."""
  draw = lambda number: tf.random.stateless_normal(
      shape, tf.stack([number, stream]), alg='philox')
  return tf.map_fn(draw, numbers, fn_output_signature=tf.float32)


def _combine(x, noise, share):
  return (1 - share) * x + share * noise
