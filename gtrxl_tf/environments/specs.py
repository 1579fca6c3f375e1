"""What array specs say: bounds, numbers of values, images and action masks; random values.

An action mask is the entry `action_mask` of an observation that is a dictionary: bools
or integers `[..., A]`, nonzero where the action is allowed. A is the number of values
of all discrete actions, in the order of the action spec's arrays and their elements.
"""

import collections.abc
from typing import Any, List, Optional, Sequence, Set, Tuple

from dm_env import specs
import numpy as np
import tree

MASK = 'action_mask'

# Bounds this large are limits of a type and not of the action or observation: tasks write
# float32's largest number where there is no bound, and spaces int32's and int64's.
_NO_BOUND, _NO_INTEGER_BOUND = 1e30, 2.0 ** 31 - 1
# The most rows of a table of embeddings. A larger table would have more weights than
# the rest of most networks.
_MOST_ROWS = 2 ** 16
# Floats of this rank and size are images if their last axis can be colour channels, or if
# they are large, as stacked frames are.
SMALLEST_IMAGE = 8
_LARGE_IMAGE = 32
COLOURS = (1, 3, 4)


class NamedActions(specs.DiscreteArray):
  """A `DiscreteArray` that names what each of its values does.

  Two tasks may have the same number of actions with different meanings. Datasets keep
  the names, so that no agent learns from the episodes of the wrong task.

  >>> NamedActions(['left', 'right']).num_values
  2
  """

  def __init__(self, names: Sequence[str], dtype=np.int32, name: str = 'action'):
    """Creates the spec; `names` has one name for each value, from 0 on."""
    super().__init__(len(names), dtype, name)
    self.names = tuple(names)

  def __reduce__(self):
    return NamedActions, (self.names, self.dtype, self.name)


def split_mask(observation: Any) -> Tuple[Any, Any]:
  """Takes the action mask out of an observation, or its spec out of a spec.

  >>> split_mask({'position': 3, 'action_mask': [1, 0]})
  ({'position': 3}, [1, 0])

  Returns:
    The observation without the mask, and the mask, or None if there is none.
  """
  if not isinstance(observation, collections.abc.Mapping) or MASK not in observation:
    return observation, None
  observation = dict(observation)
  mask = observation.pop(MASK)
  return observation, mask


def narrowed(dtype: np.dtype) -> np.dtype:
  """Returns float32 for float64."""
  return np.dtype(np.float32) if dtype == np.float64 else dtype


def is_discrete(spec: Any) -> bool:
  """Returns whether a spec describes bounded integers."""
  return isinstance(spec, specs.BoundedArray) and spec.dtype.kind in 'iu'


def is_image(array: Any) -> bool:
  """Returns whether an array or a spec has the type and shape of an image.

  These are uint8 `[H, W, C]`, floats at least 8 x 8 with 1, 3 or 4 channels, and floats
  at least 32 x 32 with any number of channels; bytes of at most 64 values are indices.
  """
  if len(array.shape) != 3:
    return False
  *size, channels = array.shape
  smallest = SMALLEST_IMAGE if channels in COLOURS else _LARGE_IMAGE
  return (array.dtype == np.uint8 and not is_index(array)
          or array.dtype.kind == 'f' and min(size) >= smallest)


def is_index(spec: Any, most: int = 64) -> bool:
  """Returns whether a spec describes integers with at most `most` values each."""
  return is_discrete(spec) and 0 not in spec.shape and bool(
      np.subtract(spec.maximum, spec.minimum, dtype=np.float64).max() < most)


def kind(spec: specs.Array, max_one_hot: int = 64) -> str:
  """Returns what an array is for networks: the word in the table of `SpecTorso`."""
  if is_image(spec):
    return 'image'
  if spec.dtype == bool or (is_index(spec, 2) and not isinstance(spec, specs.DiscreteArray)):
    return 'bit'
  if not is_discrete(spec) or np.isinf(bounds(spec)).any():
    return 'number'
  if is_index(spec, max_one_hot):
    return 'index'
  return 'row' if 0 < sum(num_values(spec)) <= _MOST_ROWS else 'number'


def num_values(spec: specs.BoundedArray) -> List[int]:
  """Returns the number of values of each element of an array of integers, in order.

  >>> num_values(specs.BoundedArray((2,), np.int32, [0, 1], [2, 5]))
  [3, 5]
  """
  low, high = (np.broadcast_to(bound, spec.shape).reshape(-1).tolist()
               for bound in (spec.minimum, spec.maximum))
  return [most - least + 1 for least, most in zip(low, high)]


def integers(num: Any, start: Any, name: Optional[str] = None) -> specs.BoundedArray:
  """Returns the spec of integers with `num` values each, the least of them `start`."""
  num, start = np.asarray(num, np.int64), np.asarray(start, np.int64)
  greatest = max(num.max(), -start.min(), (start + num).max())
  dtype = np.int32 if greatest <= np.iinfo(np.int32).max else np.int64
  if not num.shape and not start:
    return specs.DiscreteArray(int(num), dtype, name)
  low = start if start.any() else 0
  return specs.BoundedArray(num.shape, dtype, low, low + num - 1, name)


def minimum(spec: specs.BoundedArray) -> np.ndarray:
  """Returns the minimum of each element of an array of integers, int64."""
  return np.broadcast_to(spec.minimum, spec.shape).astype(np.int64)


def shift(old: Any, spec: specs.Array) -> Any:
  """Returns what to add to integers if their old spec only begins elsewhere, else 0."""
  if not (is_discrete(spec) and hasattr(old, 'minimum')
          and (old.shape, old.dtype) == (spec.shape, spec.dtype)):
    return 0
  low, high = spec.minimum - old.minimum, spec.maximum - old.maximum
  return low if np.all(low == high) else 0


def bounds(spec: specs.Array) -> Tuple[np.ndarray, np.ndarray]:
  """Returns the minimum and the maximum of each element of an array.

  They are float64 with the array's shape, and infinite where there is no bound. Bounds
  of floats from 1e30 on, and of integers from 2**31 - 1 on, count as none.

  >>> bounds(specs.BoundedArray((2,), np.float32, [-1, 0], [1, np.finfo('f').max]))
  (array([-1.,  0.]), array([ 1., inf]))
  """
  low, high = (
      np.broadcast_to(getattr(spec, name, none), spec.shape).astype(np.float64)
      for name, none in (('minimum', -np.inf), ('maximum', np.inf)))
  none = _NO_INTEGER_BOUND if spec.dtype.kind in 'iu' else _NO_BOUND
  return np.where(low <= -none, -np.inf, low), np.where(high >= none, np.inf, high)


def middle_and_half(spec: specs.Array) -> Tuple[np.ndarray, np.ndarray]:
  """Returns the middle and half the width of the bounds of each element.

  An element with one bound has that as its middle; one without bounds has 0. Where the
  width is infinite, or 0 as the bounds are equal, the half is 1.

  >>> middle_and_half(specs.BoundedArray((3,), np.float32, [0, 5, 3], [4, np.inf, 3]))
  (array([2., 5., 3.]), array([2., 1., 1.]))
  """
  low, high = bounds(spec)
  has_low, has_high = np.isfinite(low), np.isfinite(high)
  finite_low = np.where(has_low, low, np.where(has_high, high, 0.))
  finite_high = np.where(has_high, high, finite_low)
  half = (finite_high - finite_low) / 2
  return (finite_high + finite_low) / 2, np.where(half > 0, half, 1.)


def scaling(spec: specs.Array) -> Tuple[np.ndarray, np.ndarray]:
  """Returns what networks subtract from each number of an array, and then divide by.

  Numbers with two bounds end up within [-1, 1], or within [0, 1] if none is negative, so
  that nothing stays nothing. Bounds within [-30, 30] leave floats as they are: networks
  learn from them, and generous bounds would hide them. Acrobot's velocities have bounds of
  28 and are mostly below 3: PPO learned the task in 61,000 to 81,000 steps, but with
  scaled velocities only one seed of three learned it in 500,000.

  >>> scaling(specs.BoundedArray((4,), np.float32, [0, -40, -9, 0], [90, 80, 9, np.inf]))
  (array([ 0., 20.,  0.,  0.]), array([90., 60.,  1.,  1.]))
  """
  (low, high), (middle, half) = bounds(spec), middle_and_half(spec)
  most = 1 if is_discrete(spec) else 30
  stays = (low >= -most) & (high <= most) | np.isinf(high - low)
  return (np.where(stays, 0., middle - half * (low >= 0)),
          np.where(stays, 1., half + half * (low >= 0)))


def is_narrow(spec: specs.Array) -> bool:
  """Returns whether a spec's bounds on integers are tighter than its dtype's."""
  if not is_discrete(spec):
    return False
  limits = np.iinfo(spec.dtype)
  return bool(np.any(spec.minimum > limits.min) or np.any(spec.maximum < limits.max))


def describe_bounds(spec: specs.BoundedArray) -> str:
  """Describes the integers that a spec admits."""
  if isinstance(spec, specs.DiscreteArray):
    return f'an integer in [0, {spec.num_values})'
  low, high = (str(np.unique(x))[1:-1] for x in (spec.minimum, spec.maximum))
  return f'integers from {low:.60} to {high:.60}, as its spec says'


def random_action(action_spec: Any, observation: Any, random: np.random.Generator,
                  tried: Optional[Set[int]] = None) -> Any:
  """Draws an action, which is an allowed one if the observation has an action mask.

  Integers that were not `tried` come first, and are added to it, as places in a mask.
  """
  _, mask = split_mask(observation)
  if mask is None and tried is None:
    return tree.map_structure(lambda spec: random_value(spec, random), action_spec)
  begin = 0  # Where the mask of the next integer begins.

  def draw(spec: specs.Array) -> np.ndarray:
    nonlocal begin
    if not is_discrete(spec):
      return random_value(spec, random)
    values = []
    for num in num_values(spec):
      allowed = range(num)
      if mask is not None and np.any(mask[begin:begin + num]):
        allowed = np.flatnonzero(mask[begin:begin + num])
      value = allowed[random.choice(len(allowed))]
      if tried is not None:
        value = next((x for x in allowed if begin + x not in tried), value)
        tried.add(begin + value)
      values.append(value)
      begin += num
    return (np.reshape(values, spec.shape) + spec.minimum).astype(spec.dtype)[()]
  return tree.map_structure(draw, action_spec)


def random_value(spec: specs.Array, random: np.random.Generator) -> Any:
  """Draws an array, or a NumPy number, within the bounds of `spec`.

  Without bounds, the value is within [-1, 1]; a float with one bound is within 1 of it.
  """
  if spec.dtype.kind == 'f':
    middle, half = middle_and_half(spec)
    low, high = bounds(spec)
    value = random.uniform(np.maximum(low, middle - half),
                           np.minimum(high, middle + half), spec.shape)
  else:
    low, high = getattr(spec, 'minimum', -1), getattr(spec, 'maximum', 1)
    value = random.integers(low, high, spec.shape, endpoint=True)
  return np.asarray(value, spec.dtype)[()]
