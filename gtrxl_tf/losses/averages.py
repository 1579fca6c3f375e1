"""Means over the steps that count, of the whole batch wherever its parts are."""

import tensorflow as tf


class MaskedMean:
  """`mean(x)`: the mean of `x` over valid steps.

  In a replica context of N > 1 replicas it is the mean over the global batch, of which
  every replica returns its share: the sum over replicas is the mean. With no valid step
  it is 0. What `x` holds at steps that are not valid has no influence.
  """

  def __init__(self, valid: tf.Tensor):
    """Counts the valid steps of all replicas; `valid` is bool, say `[B, T]`."""
    self._valid = valid
    count = tf.reduce_sum(tf.cast(valid, tf.float32))
    context = tf.distribute.get_replica_context()  # None where replicas are merged.
    if context is not None and context.num_replicas_in_sync > 1:
      count = context.all_reduce(tf.distribute.ReduceOp.SUM, count)
    self._count = count

  def __call__(self, x: tf.Tensor) -> tf.Tensor:
    """A float32 scalar; `x` has the shape of the mask."""
    total = tf.reduce_sum(tf.where(self._valid, tf.cast(x, tf.float32), 0.))
    return tf.math.divide_no_nan(total, self._count)
