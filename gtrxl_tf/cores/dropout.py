"""Dropout without a state: what is dropped depends on what a core was given.

A key is a function of the bits of an unroll's inputs. So nothing is to be kept between
learner steps, replicas drop differently as their rows differ, and a run that goes on
from a checkpoint drops what it would have dropped, where it computes the same bits.
Where there is no key, nothing is dropped.
"""

from typing import Optional

import tensorflow as tf

_NUMBERS = 2**10


def make_key(inputs: tf.Tensor) -> tf.Tensor:
  """`[2]`, int64, for `inputs` of any shape."""
  bits = tf.bitcast(tf.cast(inputs, tf.float32), tf.int32)
  # A sum of integers does not depend on their order. GPUs sum them only as int64.
  total = tf.reduce_sum(tf.cast(bits, tf.int64))
  return tf.stack([total, tf.zeros_like(total)])


def fold(key: Optional[tf.Tensor], number: int) -> Optional[tf.Tensor]:
  """Another key for each number below 1000, up to six times over; None of None."""
  return None if key is None else key * [1, _NUMBERS] + [0, number + 1]


def drop(x: tf.Tensor, rate: float, key: Optional[tf.Tensor], number: int) -> tf.Tensor:
  """`x` with a share of `rate` zeros where `fold(key, number)` says, and scaled up."""
  if key is None or not rate:
    return x
  # Not tf.nn's, which draws in the type of x: in bfloat16 a rate is not what it says.
  drawn = tf.random.stateless_uniform(tf.shape(x), fold(key, number))
  return tf.where(drawn >= rate, x / (1 - rate), tf.zeros_like(x))
