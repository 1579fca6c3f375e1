"""Helpers for nests of tensors."""

import math
import sys
from typing import Any, Callable, Iterable, List, Sequence

import numpy as np
import tensorflow as tf


def where(mask: tf.Tensor, x: Any, y: Any) -> Any:
  """Selects from `x` where the mask is true and from `y` elsewhere, leaf by leaf.

  >>> import tensorflow as tf
  >>> mask = tf.constant([True, False])
  >>> where(mask, {'a': tf.ones([2, 3])}, {'a': tf.zeros([2, 3])})['a'].numpy()
  array([[1., 1., 1.],
         [0., 0., 0.]], dtype=float32)

  Args:
    mask: bools `[B...]`. Its axes are the leading axes of every leaf.
    x: a nest of tensors `[B..., ...]`.
    y: a nest with the structure of `x`.

  Returns:
    A nest with the structure of `x`.
  """
  def select(a, b):
    padding = [tf.newaxis] * (a.shape.rank - mask.shape.rank)
    return tf.where(mask[(..., *padding)], a, b)
  return tf.nest.map_structure(select, x, y)


def to_half(nest: Any) -> Any:
  """Rounds float32 tensors to bfloat16, in a nest; others stay as they are.

  The results are uint16, the bits of the bfloat16 numbers, because neither NumPy nor
  Reverb has that type.

  >>> to_half({'a': tf.constant([1 / 3])})['a'].numpy()
  array([16043], dtype=uint16)
  >>> from_half(to_half({'a': tf.constant([1 / 3])}))['a'].numpy()
  array([0.33398438], dtype=float32)
  """
  return tf.nest.map_structure(
      lambda x: tf.bitcast(tf.cast(x, tf.bfloat16), tf.uint16)
      if x.dtype == tf.float32 else x, nest)


def from_half(nest: Any) -> Any:
  """Inverts `to_half` but for the rounding: every uint16 tensor becomes float32."""
  return tf.nest.map_structure(
      lambda x: tf.cast(tf.bitcast(x, tf.bfloat16), tf.float32)
      if x.dtype == tf.uint16 else x, nest)


def free_attributes(tensors: Iterable[Any]) -> None:
  """Frees the memory that TensorFlow 2.15 would leak with eager tensors.

  On Python 3.11, an eager tensor that is deleted leaves behind the storage of its
  Python attributes, 16 bytes, even if it has none (TensorFlow's issue 62551). That
  fills memory in processes that make thousands of tensors a second for days. Call this
  for tensors that are about to be deleted; they remain valid.

  Args:
    tensors: eager tensors. Other values are ignored.
  """
  if sys.version_info < (3, 11):
    return
  eager = tf.__internal__.EagerTensor
  for x in tensors:
    if isinstance(x, eager):
      del x.__dict__


class Packing:
  """Packs arrays or tensors of given shapes and dtypes into one vector per dtype.

  Passing one large tensor is cheaper than passing many small ones.

  >>> import numpy as np
  >>> packing = Packing([np.zeros([2, 2]), np.zeros([]), np.zeros([3], np.int32)])
  >>> floats, integers = packing.pack(
  ...     [np.eye(2), np.array(5.0), np.arange(3, dtype=np.int32)])
  >>> floats
  array([1., 0., 0., 1., 5.])
  >>> packing.unpack([floats, integers])[0]
  array([[1., 0.],
         [0., 1.]])
  """

  def __init__(self, examples: Sequence[Any]):
    """Creates the packing.

    Args:
      examples: have the shapes and dtypes of what is packed.
    """
    dtypes = [tf.as_dtype(x.dtype) for x in examples]
    order = list(dict.fromkeys(dtypes))
    self._members = [[i for i, dtype in enumerate(dtypes) if dtype == one]
                     for one in order]
    ends = [0] * len(order)
    self._places = []
    for x, dtype in zip(examples, dtypes):
      vector, shape = order.index(dtype), tuple(x.shape)
      start, ends[vector] = ends[vector], ends[vector] + math.prod(shape)
      self._places.append((vector, start, ends[vector], shape))

  def pack(self, leaves: Sequence[Any]) -> List[Any]:
    """Returns the vectors of leaves: arrays or tensors, in the order of the examples."""
    if _are_arrays(leaves):
      return [np.concatenate([leaves[i].reshape(-1) for i in members])
              for members in self._members]
    return [tf.concat([tf.reshape(leaves[i], [-1]) for i in members], axis=0)
            for members in self._members]

  def unpack(self, vectors: Sequence[Any]) -> List[Any]:
    """Inverts `pack`."""
    if _are_arrays(vectors):
      return [vectors[vector][start:end].reshape(shape)
              for vector, start, end, shape in self._places]
    return [tf.reshape(vectors[vector][start:end], shape)
            for vector, start, end, shape in self._places]

  def reader(self, variables: Sequence[tf.Variable]) -> Callable[[], List[tf.Tensor]]:
    """Returns a function that packs the values of variables in one compiled call."""
    return tf.function(
        lambda: self.pack([x.value() for x in variables]), autograph=False)


def _are_arrays(values: Sequence[Any]) -> bool:
  """Returns whether all are NumPy's. `tf.is_tensor` takes 10 us for an array."""
  return all(isinstance(x, (np.ndarray, np.generic)) for x in values)
