"""Checks of a core's arguments."""

import contextlib
import re
from typing import Any, Optional, Sequence

import numpy as np
import tensorflow as tf
import tree


def from_list(x: Any) -> Any:
  """Returns a nested list as a tensor, and anything else unchanged.

  It leaves a ragged list, or a list of several arguments, for `check` to refuse.
  """
  if isinstance(x, list):
    with contextlib.suppress(  # Symbolic, ragged, or of several dtypes.
        TypeError, ValueError, tf.errors.InvalidArgumentError):
      return tf.convert_to_tensor(x)
  return x


def check(name: str, x: Any, sizes: Sequence[Optional[int]], expected: str
          ) -> Sequence[Optional[int]]:
  """Checks an argument's shape; returns its axes' sizes, None where they are unknown.

  Args:
    name: the argument's name, for the message.
    x: tensor, array, or nested list. The shape of a list of tensors is not known.
    sizes: the expected size of each axis; None admits any.
    expected: the expected shape as text, for the message.
  """
  leaves = tf.nest.flatten(x)
  ranks = {None if leaf is None else tf.TensorShape(getattr(leaf, 'shape', ())).rank
           for leaf in leaves}
  # A state, or several arguments in one list or tuple, which Keras' own layers take.
  if x is None or isinstance(x, (tuple, dict)) or len(ranks) > 1:
    raise ValueError(f'{name} of type {type(x).__name__}: expected {expected}')
  if not any(hasattr(leaf, 'shape') for leaf in leaves):
    try:
      x = np.asarray(x)  # A list of numbers, or a number.
    except ValueError:
      raise ValueError(f'{name} is a ragged list: expected {expected}') from None
  shape = tf.TensorShape(getattr(x, 'shape', None))
  if shape.rank is None:
    return (None,) * len(sizes)
  if not shape.is_compatible_with(sizes):
    known = ' with ' + ', '.join(
        f'{letter} = {size}'
        for letter, size in zip(re.findall('[BTD]', expected), sizes) if size)
    raise ValueError(f'{name} of shape {tuple(shape)}: expected {expected}'
                     f'{known if any(sizes) else ""}')
  return tuple(shape)


def fitted(name: str, nest: Any, specs: Any, batch_size: Optional[int], source: str
           ) -> Any:
  """Returns a state or cache with the structure of its specs.

  Args:
    name: the argument's name, for the message.
    nest: the argument. Keras loads functional models with lists for named tuples.
    specs: nest of `tf.TensorSpec`.
    batch_size: the expected batch size; None admits any.
    source: the methods that make such a nest, as text for the message.
  """
  plain = isinstance(nest, (list, tuple)) and not hasattr(nest, '_fields')
  leaves = tf.nest.flatten(nest)
  if plain and len(leaves) == len(tf.nest.flatten(specs)):
    nest = tf.nest.pack_sequence_as(specs, leaves)
  try:
    tf.nest.assert_same_structure(nest, specs)
    kinds = [(tf.TensorShape(x.shape), tf.as_dtype(x.dtype)) for x in leaves]
  except (AttributeError, TypeError, ValueError):
    kind = ('a tensor' if isinstance(specs, tf.TensorSpec) else
            type(specs).__name__ if specs else '()')
    raise ValueError(
        f'{name} of type {type(nest).__name__}: expected {kind}, as from {source}'
    ) from None
  for (path, spec), (shape, dtype) in zip(tree.flatten_with_path(specs), kinds):
    expected = tf.TensorShape([batch_size, *spec.shape[1:]])
    fits = expected.is_compatible_with(shape)
    if fits and dtype == spec.dtype:
      continue
    part = ''.join(f'[{x}]' if isinstance(x, int) else f'.{x}' for x in path)
    found, wanted = (('type ' + dtype.name, spec.dtype.name) if fits else
                     (f'shape {tuple(shape)}', tuple(expected)))
    raise ValueError(f'{name}{part} of {found}: expected {wanted}, as from {source}')
  return tf.nest.map_structure(
      lambda x: tf.constant(x) if isinstance(x, np.ndarray) else x, nest)
