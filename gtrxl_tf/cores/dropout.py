"""Stateless dropout: a core's inputs decide what is dropped.

A key is a function of the bits of an unroll's inputs and of their places. This leaves
no state to keep between learner steps. Replicas drop differently because their rows
differ, and a run that resumes from a checkpoint repeats the same masks as long as it
computes the same bits. Equal inputs have equal masks; inputs that differ in a last bit,
as on another device or in another graph, have unrelated ones. Without a key nothing is
dropped.
"""

from typing import Optional

import tensorflow as tf

_NUMBERS = 2**10
_MIXER = 0x1E3779B97F4A7C15  # Odd, with random bits.


def make_key(inputs: tf.Tensor) -> tf.Tensor:
  """Returns a key, int64 `[2]`, for `inputs` of any shape."""
  bits = tf.reshape(tf.bitcast(tf.cast(inputs, tf.float32), tf.int32), [-1])
  # Each place has a weight, which tells apart inputs of the same numbers, such as
  # one-hot vectors. A sum of integers does not depend on the order of its terms, and
  # wraps around. GPUs sum integers only as int64.
  places = tf.range(1, tf.size(bits, tf.int64) + 1) * _MIXER
  weights = tf.bitwise.bitwise_xor(places, tf.bitwise.right_shift(places, 29))
  total = tf.reduce_sum(tf.cast(bits, tf.int64) * weights)
  return tf.stack([total, tf.zeros_like(total)])


def fold(key: Optional[tf.Tensor], number: int) -> Optional[tf.Tensor]:
  """Returns a new key for each `number` below 1000; None if `key` is None.

  Keys may be folded up to six times in a row.
  """
  return None if key is None else key * [1, _NUMBERS] + [0, number + 1]


def drop(x: tf.Tensor, rate: float, key: Optional[tf.Tensor], number: int) -> tf.Tensor:
  """Sets a share `rate` of `x` to zero and scales up the rest.

  Args:
    x: floating point, any shape.
    rate: the share, at most 1.
    key: from `make_key` or `fold`; without one `x` is returned as it is.
    number: distinguishes the places that use the same key.
  """
  if key is None or not rate:
    return x
  if rate == 1:
    return tf.zeros_like(x)
  # tf.nn's dropout draws in the type of x, and bfloat16 does not realize every rate.
  drawn = tf.random.stateless_uniform(tf.shape(x), fold(key, number))
  return tf.where(drawn >= rate, x / (1 - rate), tf.zeros_like(x))
