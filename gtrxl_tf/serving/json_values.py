"""Conversion of JSON values to arrays that fit a nest of specs, and back."""

import collections.abc
from typing import Any, Collection, Dict, Mapping, Optional

import numpy as np

# The types that `json.loads` makes for each kind of array, and their names in JSON.
_TYPES = {'f': {int, float}, 'i': {int}, 'u': {int}, 'b': {bool}}
_NAMES = {int: 'integers', float: 'floats', bool: 'true or false', str: 'text',
          dict: 'objects', type(None): 'null'}


class Refused(ValueError):
  """A value that does not fit its spec. The message is one line."""


def _children(nest: Any) -> Optional[Dict[str, Any]]:
  """Returns the parts of a nest by name; None for a leaf."""
  if isinstance(nest, collections.abc.Mapping):
    return {str(key): nest[key] for key in sorted(nest)}
  if isinstance(nest, tuple) and hasattr(nest, '_fields'):
    return dict(zip(nest._fields, nest))
  if isinstance(nest, (tuple, list)):
    return {str(i): part for i, part in enumerate(nest)}
  return None


def _is_list(nest: Any) -> bool:
  return isinstance(nest, (tuple, list)) and not hasattr(nest, '_fields')


def leaves(nest: Any, name: str) -> Dict[str, Any]:
  """Returns the leaves of a nest by their names in a SavedModel's signatures.

  >>> leaves({'image': 1, 'both': (2, 3)}, 'observation')
  {'observation/both/0': 2, 'observation/both/1': 3, 'observation/image': 1}
  """
  parts = _children(nest)
  if parts is None:
    return {name: nest}
  found = {}
  for key, part in parts.items():
    found |= leaves(part, f'{name}/{key}')
  return found


def read(nest: Any, value: Any, name: str) -> Dict[str, np.ndarray]:
  """Converts a JSON value to arrays, named as by `leaves`.

  Objects stand for dictionaries, and arrays for tuples and tensors. Integers must be
  within the bounds of their spec, floats must be finite.

  >>> import tensorflow as tf
  >>> read({'x': tf.TensorSpec([2], tf.float32)}, {'x': [1, 2.5]}, 'observation')
  {'observation/x': array([1. , 2.5], dtype=float32)}

  Args:
    nest: a nest of tensor specs.
    value: as `json.loads` returns it.
    name: the value's name, for the names of arrays and for errors.

  Raises:
    Refused: the value does not fit.
  """
  parts = _children(nest)
  if parts is None:
    return {name: _array(nest, value, name)}
  if _is_list(nest):
    if not isinstance(value, list) or len(value) != len(parts):
      raise Refused(f'{name}: expected an array of {len(parts)} values')
    value = {str(i): part for i, part in enumerate(value)}
  keys(value, name, required=parts)
  found = {}
  for key, part in parts.items():
    found |= read(part, value[key], f'{name}/{key}')
  return found


def keys(value: Any, name: str, required: Collection[str],
         optional: Collection[str] = ()) -> None:
  """Checks the keys of an object.

  Raises:
    Refused: the value is not an object, or a key is missing or unknown.
  """
  if not isinstance(value, dict):
    raise Refused(f'{name}: expected an object with {", ".join(required)}')
  for key in required:
    if key not in value:
      raise Refused(f'{name}: {key} is missing')
  for key in value:
    if key not in required and key not in optional:
      raise Refused(f'{name}: {key[:50]!r} is unknown: expected '
                    f'{", ".join([*required, *optional])}')


def _array(spec: Any, value: Any, name: str) -> np.ndarray:
  """Converts a JSON value to the array of a tensor spec."""
  dtype, shape = np.dtype(spec.dtype.as_numpy_dtype), tuple(spec.shape)
  expected = f'expected {dtype.name} of shape {list(shape)}'
  array = np.asarray(value, object)  # Each cell of a text array has the longest's size.
  types = set(map(type, array.flat))
  if list in types:
    raise Refused(f'{name}: {expected}, got arrays of different lengths')
  kind = 'f' if spec.dtype.is_floating else dtype.kind  # bfloat16's kind is 'V'.
  if array.shape != shape:
    raise Refused(f'{name}: {expected}, got shape {list(array.shape)}')
  if not types <= _TYPES.get(kind, set()):
    raise Refused(f'{name}: {expected}, got '
                  f'{", ".join(sorted(_NAMES.get(x, x.__name__) for x in types))}')
  if kind == 'f':
    try:
      with np.errstate(over='ignore'):
        array = array.astype(np.float64).astype(dtype)
    except OverflowError:  # An integer beyond float64.
      array = np.array(np.inf)
    if not np.isfinite(array.astype(np.float64)).all():
      raise Refused(f'{name}: has numbers that are NaN or infinite')
    return array
  if kind == 'b':
    return array.astype(dtype)
  limits = np.iinfo(dtype)
  low = np.maximum(getattr(spec, 'minimum', limits.min), limits.min)
  high = np.minimum(getattr(spec, 'maximum', limits.max), limits.max)
  if (array < low).any() or (array > high).any():
    raise Refused(f'{name}: expected integers from {_bound(low)} to {_bound(high)}')
  return array.astype(dtype)


def write(nest: Any, arrays: Mapping[str, np.ndarray], name: str) -> Any:
  """Inverts `read`, for `json.dumps`; numbers that are NaN or infinite become None."""
  parts = _children(nest)
  if parts is None:
    return _plain(arrays[name])
  values = {key: write(part, arrays, f'{name}/{key}') for key, part in parts.items()}
  return list(values.values()) if _is_list(nest) else values


def write_flat(arrays: Mapping[str, np.ndarray]) -> Dict[str, Any]:
  """Returns the arrays by their names; numbers that are NaN or infinite become None."""
  return {name: _plain(array) for name, array in arrays.items()}


def describe(nest: Any) -> Any:
  """Describes a nest of tensor specs, for `json.dumps`.

  Bounds that are the same for all elements are one number.
  """
  parts = _children(nest)
  if parts is not None:
    described = {key: describe(part) for key, part in parts.items()}
    return list(described.values()) if _is_list(nest) else described
  found = {'shape': list(nest.shape), 'dtype': nest.dtype.name}
  for bound in 'minimum', 'maximum':
    value = getattr(nest, bound, None)
    if value is not None:
      found[bound] = _bound(value)
  return found


def _bound(array: Any) -> Any:
  array = np.asarray(array)
  same = array.size and (array == array.flat[0]).all()
  return _plain(array.flat[0] if same else array)


def _plain(array: Any) -> Any:
  """Converts an array to a number or to lists of numbers."""
  array = np.asarray(array)
  if array.dtype.kind not in 'biuf':  # bfloat16.
    array = array.astype(np.float32)
  if array.dtype.kind == 'f' and not np.isfinite(array).all():
    return np.where(np.isfinite(array), array.astype(object), None).tolist()
  return array.tolist()
