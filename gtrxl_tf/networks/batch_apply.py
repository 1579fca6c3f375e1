"""Application of a function with one batch axis to tensors with several."""

from typing import Any, Callable

import tensorflow as tf


def batch_apply(function: Callable[[Any], tf.Tensor], inputs: Any,
                batch_dims: int) -> tf.Tensor:
  """Flattens leading axes into one, applies `function`, and restores the axes.

  Args:
    function: maps a nest of tensors `[N, ...]` to one tensor `[N, ...]`.
    inputs: a nest of tensors that share their first `batch_dims` axes.
    batch_dims: number of leading axes, for example 2 for `[B, T, ...]`.

  Returns:
    The function's result, with the leading axes in place of N.
  """
  inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
  leaves = tf.nest.flatten(inputs)
  for leaf in leaves:
    if leaf.shape.rank < batch_dims:
      raise ValueError(
          f'batch_dims = {batch_dims}: a tensor has the shape {leaf.shape}')
    if not leaf.shape[:batch_dims].is_compatible_with(leaves[0].shape[:batch_dims]):
      raise ValueError(
          f'batch_dims = {batch_dims}: tensors have the shapes {leaves[0].shape} and '
          f'{leaf.shape}: expected the same first axes')
  flat = tf.nest.map_structure(
      lambda x: tf.reshape(x, [-1, *x.shape[batch_dims:]]), inputs)
  outputs = function(flat)
  leading = tf.shape(leaves[0])[:batch_dims]
  return tf.reshape(outputs, tf.concat([leading, outputs.shape[1:]], axis=0))
