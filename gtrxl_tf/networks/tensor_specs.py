"""Conversions between array specs, tensor specs and tensors."""

from typing import Any, Sequence, Union

from dm_env import specs
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import tensor_spec


def tensor_specs(nest: Any) -> Any:
  """Converts `dm_env.specs` to tensor specs; bounds are kept.

  >>> tensor_specs(specs.Array((3,), np.float32))
  TensorSpec(shape=(3,), dtype=tf.float32, name=None)
  """
  def convert(spec: specs.Array) -> tf.TensorSpec:
    dtype = tf.as_dtype(spec.dtype)
    if isinstance(spec, specs.BoundedArray):
      return tensor_spec.BoundedTensorSpec(
          spec.shape, dtype, np.asarray(spec.minimum, spec.dtype),
          np.asarray(spec.maximum, spec.dtype), name=spec.name)
    return tf.TensorSpec(spec.shape, dtype, name=spec.name)
  return tf.nest.map_structure(convert, nest)


def without_batch(nest: Any) -> Any:
  """Returns the tensor specs of one row of tensors `[B, ...]`.

  >>> without_batch(tf.zeros([2, 3]))
  TensorSpec(shape=(3,), dtype=tf.float32, name=None)
  """
  return tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape[1:], x.dtype), nest)


def with_batch(nest: Any) -> Any:
  """Returns the specs of tensors `[B, ...]` with any B, for specs of one row.

  >>> with_batch(tf.TensorSpec([3]))
  TensorSpec(shape=(None, 3), dtype=tf.float32, name=None)
  """
  return tf.nest.map_structure(
      lambda spec: tf.TensorSpec([None, *spec.shape], spec.dtype), nest)


def zeros(nest: Any, leading: Sequence[Union[int, tf.Tensor]]) -> Any:
  """Returns zeros `[*leading, ...]` for a nest of array specs or tensor specs.

  >>> zeros(specs.Array((3,), np.float32), [2]).numpy()
  array([[0., 0., 0.],
         [0., 0., 0.]], dtype=float32)
  """
  return tf.nest.map_structure(
      lambda spec: tf.zeros([*leading, *spec.shape], spec.dtype), nest)
