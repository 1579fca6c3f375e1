"""Conversion of JSON values to arrays that fit a nest of specs, and back."""

import collections.abc
from typing import Any, Callable, Collection, Dict, Iterator, Mapping, Optional, Tuple

import numpy as np

# The types that `json.loads` makes for each kind of array, and their names in JSON.
_TYPES = {'f': {int, float}, 'i': {int}, 'u': {int}, 'b': {bool}}
_NAMES = {int: 'integers', float: 'floats', bool: 'true or false', str: 'text',
          dict: 'objects', list: 'arrays', type(None): 'null'}


class Refused(ValueError):
  """A client sent a value that does not fit; `status` is the HTTP status of the answer."""

  def __init__(self, message: str, status: int = 400):
    super().__init__(message)
    self.status = status


def _children(nest: Any) -> Optional[Dict[str, Any]]:
  """Returns the parts of a nest by name; None for a leaf."""
  if isinstance(nest, collections.abc.Mapping):
    return {str(key): nest[key] for key in sorted(nest)}
  if isinstance(nest, (tuple, list)):
    return dict(zip(getattr(nest, '_fields', map(str, range(len(nest)))), nest))
  return None


def _is_list(nest: Any) -> bool:
  return isinstance(nest, (tuple, list)) and not hasattr(nest, '_fields')


def _mapped(function: Callable[[Any, str], Any], nest: Any, name: str) -> Any:
  """Returns what a function makes of each leaf and its name, nested as for `json.dumps`."""
  parts = _children(nest)
  if parts is None:
    return function(nest, name)
  values = {key: _mapped(function, part, f'{name}/{key}') for key, part in parts.items()}
  return list(values.values()) if _is_list(nest) else values


def leaves(nest: Any, name: str) -> Dict[str, Any]:
  """Returns the leaves of a nest by their names in a SavedModel's signatures.

  >>> leaves({'image': 1, 'both': (2, 3)}, 'observation')
  {'observation/both/0': 2, 'observation/both/1': 3, 'observation/image': 1}
  """
  found = {}
  _mapped(lambda leaf, name: found.update({name: leaf}), nest, name)
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
  return {name: _array(spec, part, name) for name, spec, part in matched(nest, value, name)}


def matched(nest: Any, value: Any, name: str, extras: bool = False
            ) -> Iterator[Tuple[str, Any, Any]]:
  """Yields the name, the spec and the value of each leaf of a nest of specs.

  Raises `Refused` where the value has another structure; with `extras`, dictionaries
  may have further entries, which are left out.
  """
  parts = _children(nest)
  if parts is None:
    yield name, nest, value
    return
  if _is_list(nest) or isinstance(value, tuple):
    if not isinstance(value, (tuple, list)) or len(value) != len(parts):
      raise Refused(f'{name}: expected an array of {len(parts)} values')
    value = dict(zip(parts, value))
  keys(value, name, parts, value if extras else ())
  for key, part in parts.items():
    yield from matched(part, value[key], f'{name}/{key}', extras)


def keys(value: Any, name: str, required: Collection[str],
         optional: Collection[str] = ()) -> None:
  """Refuses what is not an object, and one where a key is missing or unknown."""
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
  array = np.asarray(value, object)  # Each cell of a text array has the longest's size.
  expected = f'{name}: expected {spec.dtype.name} of shape {list(spec.shape)}'
  if array.shape != tuple(spec.shape):
    raise Refused(f'{expected}, got shape {list(array.shape)}')
  # bfloat16's kind is 'V'.
  kind = 'f' if spec.dtype.is_floating else np.dtype(spec.dtype.as_numpy_dtype).kind
  types = set(map(type, array.flat))
  if not types <= _TYPES.get(kind, set()):
    raise Refused(
        f'{expected}, got {", ".join(sorted(_NAMES.get(x, x.__name__) for x in types))}')
  return cast(spec, array, name)


def cast(spec: Any, array: np.ndarray, name: str) -> np.ndarray:
  """Casts numbers to the dtype of a tensor spec; refuses those that do not fit it."""
  dtype = np.dtype(spec.dtype.as_numpy_dtype)
  if spec.dtype.is_floating:
    try:
      with np.errstate(over='ignore'):
        array = array.astype(np.float64).astype(dtype)
    except OverflowError:  # An integer beyond float64.
      array = np.array(np.inf)
    if not np.isfinite(array.astype(np.float64)).all():
      raise Refused(f'{name}: has numbers that are NaN or infinite')
  elif dtype.kind in 'iu':
    limits = np.iinfo(dtype)
    low = np.maximum(getattr(spec, 'minimum', limits.min), limits.min)
    high = np.minimum(getattr(spec, 'maximum', limits.max), limits.max)
    if (array < low).any() or (array > high).any():
      raise Refused(f'{name}: expected integers from {_bound(low)} to {_bound(high)}')
  return array.astype(dtype)


def write(nest: Any, arrays: Mapping[str, np.ndarray], name: str) -> Any:
  """Inverts `read`, for `json.dumps`; numbers that are NaN or infinite become None."""
  return _mapped(lambda _, name: _plain(arrays[name]), nest, name)


def write_flat(arrays: Mapping[str, np.ndarray]) -> Dict[str, Any]:
  """Returns the arrays by their names; numbers that are NaN or infinite become None."""
  return {name: _plain(array) for name, array in arrays.items()}


def describe(nest: Any) -> Any:
  """Describes a nest of tensor specs, for `json.dumps`.

  Bounds that are the same for all elements are one number.
  """
  def described(spec, _):
    bounds = {bound: getattr(spec, bound, None) for bound in ('minimum', 'maximum')}
    return {'shape': list(spec.shape), 'dtype': spec.dtype.name,
            **{bound: _bound(x) for bound, x in bounds.items() if x is not None}}

  return _mapped(described, nest, '')


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
