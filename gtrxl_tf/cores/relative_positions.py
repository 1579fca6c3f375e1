"""Sinusoidal encodings of distances, as relative attention reads them."""

import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf


@functools.lru_cache(maxsize=32)  # Sequences may have any number of lengths.
def sinusoids(num_positions: int, width: int, lookahead: int = 0) -> np.ndarray:
  """Returns sinusoidal encodings of the distances `num_positions - 1 .. -lookahead`.

  Each is `width` wide: first sines, then cosines, as in Dai et al. (2019).
  """
  return _sinusoids(num_positions, width, lookahead)[:, :width]


def _sinusoids(num_positions: int, width: int, lookahead: int = 0) -> np.ndarray:
  """Returns `sinusoids` with as many cosines as sines, even if `width` is odd."""
  distances = np.arange(num_positions - 1, -1 - lookahead, -1.0)[:, np.newaxis]
  frequencies = 1 / 10000 ** (np.arange(0, width, 2) / width)
  angles = distances * frequencies
  return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def slot_positions(query_slot: tf.Tensor, num_slots: int, width: int) -> tf.Tensor:
  """Returns positions for `step` where the slot of the query differs by row.

  Args:
    query_slot: the query's slot, `[B]`.
    num_slots: number of cached slots.
    width: D.

  Returns:
    `[B, num_slots+1, width]`: encodings of the distances from the query to each slot
    and, last, of distance 0. Slots after the query's count as distance 0.
  """
  table = sinusoids(num_slots + 1, width)[::-1]
  distances = query_slot[:, tf.newaxis] - tf.range(num_slots)
  distances = tf.pad(tf.maximum(distances, 0), [[0, 0], [0, 1]])
  return tf.gather(tf.constant(table.copy()), distances)


class Distances(NamedTuple):
  """Encodings of the distances from a step to a window and to a tail of keys.

  The distances to a window differ by row, because rows move their windows at different
  steps. The sinusoids of a sum of two angles are those of one angle, rotated by the
  other, and rotating the query is less work than encoding each row's distances.
  """
  window: tf.Tensor  # [W, M], for the first step after a move. W is D or D + 1, even.
  tail: tf.Tensor    # [W, K]
  cosine: tf.Tensor  # [B, 1, W], for the rotation by the steps since the move.
  sine: tf.Tensor    # [B, 1, W], negative in its first half.


def distances(memory_length: int, tail_length: int, width: int, count: tf.Tensor,
              dtype: tf.DType) -> Distances:
  """Returns the encodings for `step_with_tail`.

  Args:
    memory_length: M.
    tail_length: K.
    width: D.
    count: steps since each row's window moved, int32 `[B]` in `0..K-1`.
    dtype: the encodings' type.
  """
  table = _sinusoids(tail_length, width)
  sine, cosine = tf.split(
      tf.gather(tf.constant(table[::-1].copy()), count)[:, tf.newaxis], 2, axis=-1)
  return Distances(*(tf.cast(x, dtype) for x in (
      _sinusoids(memory_length + 1, width)[:-1].T, table.T,
      tf.concat([cosine, cosine], axis=-1), tf.concat([-sine, sine], axis=-1))))
