"""Checks the shapes of a loss's arguments while it is traced, and converts indices."""

from typing import Any

import tensorflow as tf


def check(name: str, tensor: tf.Tensor, expected: Any, source: str = '') -> None:
  """Raises an error if a tensor's static shape contradicts the expected shape.

  Args:
    name: the argument's name, for the message.
    tensor: the argument.
    expected: its shape; None is any size.
    source: where the expected shape comes from, for the message.
  """
  expected = tf.TensorShape(expected)
  shape = tf.TensorShape(tensor.shape)
  if not shape.is_compatible_with(expected):
    raise ValueError(f'{name}: expected the shape {expected}'
                     f'{f" of {source}" if source else ""}, got {shape}')


def indices(x: tf.Tensor) -> tf.Tensor:
  """Returns integers as int32, since lookups do not take all dtypes, such as uint8."""
  x = tf.convert_to_tensor(x)
  return tf.cast(x, tf.int32) if x.dtype.is_integer else x
