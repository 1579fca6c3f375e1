"""Means over the valid steps of a batch, which may be divided among replicas."""

from typing import Optional

import tensorflow as tf

from gtrxl_tf.losses import shapes


def sum_over_replicas(x: tf.Tensor) -> tf.Tensor:
  """Returns the sum of `x` over all replicas; `x` itself outside a replica context."""
  context = tf.distribute.get_replica_context()  # None where replicas are merged.
  if context is None or context.num_replicas_in_sync == 1:
    return x
  return context.all_reduce(tf.distribute.ReduceOp.SUM, x)


def valid_steps(valid_mask: Optional[tf.Tensor], log_probs: tf.Tensor) -> tf.Tensor:
  """Returns `valid_mask` as bool, in the shape of `log_probs`; all true for None."""
  if valid_mask is None:
    return tf.ones_like(log_probs, tf.bool)
  valid = tf.cast(valid_mask, tf.bool)
  shapes.check('valid_mask', valid, log_probs.shape, 'log_probs')
  return valid


class MaskedMean:
  """`mean(x)` is the mean of `x` over valid steps.

  In a replica context of N > 1 replicas it is the replica's share of the mean over the
  global batch: the sum over replicas is the mean. Without valid steps it is 0. Values
  of `x` at steps that are not valid have no influence.

  >>> mean = MaskedMean(tf.constant([[True, True, False]]))
  >>> float(mean(tf.constant([[1.0, 2.0, float('nan')]])))
  1.5
  """

  def __init__(self, valid: tf.Tensor):
    """Counts the valid steps of all replicas; `valid` is bool, for example `[B, T]`."""
    self._valid = tf.cast(valid, tf.bool)
    self._count = sum_over_replicas(tf.reduce_sum(tf.cast(self._valid, tf.float32)))

  def __call__(self, x: tf.Tensor) -> tf.Tensor:
    """Returns the mean of `x`, a float32 scalar."""
    x = tf.cast(x, tf.float32)
    shapes.check('x', x, self._valid.shape, 'the mask')
    total = tf.reduce_sum(tf.where(self._valid, x, 0.))
    return tf.math.divide_no_nan(total, self._count)
