"""Helpers for nests of tensors."""

from typing import Any

import tensorflow as tf


def where(mask: tf.Tensor, x: Any, y: Any) -> Any:
  """Selects from `x` where the mask is true and from `y` elsewhere, leaf by leaf.

  >>> import tensorflow as tf
  >>> mask = tf.constant([True, False])
  >>> where(mask, {'a': tf.ones([2, 3])}, {'a': tf.zeros([2, 3])})['a'].numpy()
  array([[1., 1., 1.],
         [0., 0., 0.]], dtype=float32)

  Args:
    mask: Bools `[B...]`. Its axes are the leading axes of every leaf.
    x: A nest of tensors `[B..., ...]`.
    y: A nest with the structure of `x`.

  Returns:
    A nest with the structure of `x`.
  """
  def select(a, b):
    padding = [tf.newaxis] * (a.shape.rank - mask.shape.rank)
    return tf.where(mask[(..., *padding)], a, b)
  return tf.nest.map_structure(select, x, y)
