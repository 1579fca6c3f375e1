"""Writes to caches whose rows fill their slots at different times."""

import tensorflow as tf


def at(slot: tf.Tensor, num_slots: int) -> tf.Tensor:
  """Returns a mask `[B, num_slots]`, true at `slot` `[B]`."""
  return tf.range(num_slots) == slot[:, tf.newaxis]


def put(window: tf.Tensor, row: tf.Tensor, slot: tf.Tensor) -> tf.Tensor:
  """Writes `row` `[B, ..., d]` into `window` `[B, ..., K, d]` at `slot` `[B]`."""
  num_slots = window.shape[-2]
  here = tf.reshape(
      at(slot, num_slots), [-1] + [1] * (window.shape.rank - 3) + [num_slots, 1])
  return tf.where(here, row[..., tf.newaxis, :], window)
