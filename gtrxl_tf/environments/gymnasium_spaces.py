"""Conversion of gymnasium's spaces, and of their values, to specs and back."""

import functools
import importlib
import operator
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence

from absl import logging
from dm_env import specs
import numpy as np
import tree

from gtrxl_tf.environments import instructions
from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.settings import config


class Converted(NamedTuple):
  """A space as a nest of specs, and functions that convert its values."""
  spec: Any
  encode: Callable[[Any], Any]  # From gymnasium's to the spec's.
  decode: Callable[[Any], Any]  # From the spec's to gymnasium's.


def cells(task: Any, seen: Any) -> dict[int, int]:
  """Returns the greatest value of arrays of MiniGrid's cells, by the `id` of their space.

  MiniGrid declares cells, indices of kind, colour and state, as bytes from 0 to 255. What
  a wrapper of the task, a `gymnasium.Env`, puts in their place counts as cells, such as
  crops and stacks, unless `seen`, the first observation, has the larger values of pictures.
  """
  base = task.unwrapped
  if not any(x.__module__.startswith('minigrid.') for x in type(base).__mro__):
    return {}
  kinds = importlib.import_module('minigrid.core.constants').OBJECT_TO_IDX

  def greatest(env: Any) -> dict[int, int]:  # Of all arrays of bytes.
    bytes_ = [id(space) for space in tree.flatten(env.observation_space)
              if np.any(getattr(space, 'high', 0) == 255)]
    if env is base:
      return dict.fromkeys(bytes_, max(kinds.values()))
    inner, names = greatest(env.env), {x.__name__ for x in type(env).__mro__}
    replaced = [inner[x] for x in inner.keys() - bytes_]
    most = 1 if 'OneHotPartialObsWrapper' in names else min(replaced, default=255)
    return {x: inner.get(x, most) for x in bytes_}

  found = greatest(task)
  return {id(x): found[id(x)] for path, x in tree.flatten_with_path(task.observation_space)
          if id(x) in found and np.max(
              functools.reduce(operator.getitem, path, seen)) <= found[id(x)]}


def convert(space: Any, kind: str, owner: str, max_words: Optional[int] = None,
            path: Sequence[Any] = (), greatest: Mapping[int, int] = {}
            ) -> Optional[Converted]:
  """Converts a space.

  Args:
    space: a `gymnasium.Space`.
    kind: 'observation' or 'action'.
    owner: the name in errors.
    max_words: see `FromGymnasium`.
    path: keys of the space within others.
    greatest: see `cells`.

  Returns:
    The conversion, or None for texts that are left out.
  """
  name = str(path[-1]) if path else kind
  where = kind + ''.join(f'[{key!r}]' for key in path)
  spaces = importlib.import_module('gymnasium').spaces
  if isinstance(space, (spaces.Dict, spaces.Tuple)) and space.spaces:
    is_dict = isinstance(space, spaces.Dict)
    items = space.spaces.items() if is_dict else enumerate(space.spaces)
    parts = {}
    for key, inner in items:
      part = convert(inner, kind, owner, max_words, [*path, key], greatest)
      if part is not None:
        parts[key] = part
    return _nest(parts, is_dict, owner, where) if parts else None
  if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)) and 0 not in space.shape:
    return _integers(space, name)
  if isinstance(space, spaces.MultiBinary):
    return _same(specs.BoundedArray(space.shape, np.int8, 0, 1, name), space)
  if isinstance(space, spaces.Box) and space.dtype.kind in 'biuf':
    bounds = space.low, np.where(
        space.high == 255, greatest.get(id(space), 255), space.high).astype(space.dtype)
    if space.dtype.kind in 'iu' and all(np.all(x == x.flat[:1]) for x in bounds):
      bounds = [x.flat[0] for x in bounds]  # Arrays would be as large as an image.
    return _same(specs.BoundedArray(space.shape, space.dtype, *bounds, name), space)
  # Texts are known by their dtype: MiniGrid's missions are not of class `Text`.
  dtype = getattr(space, 'dtype', None)
  if kind == 'observation' and getattr(dtype, 'kind', None) == 'U':
    if max_words is None:
      logging.log_first_n(
          logging.WARNING, '%s: the text %s is left out; max_words of '
          'GymnasiumEnvironment or environments.FromGymnasium keeps texts', 1, owner,
          where)
      return None
    return Converted(
        specs.BoundedArray([max_words], np.int32, 0, instructions.VOCABULARY_SIZE,
                           name),
        lambda value: instructions.hash_instruction(str(value), max_words), str)
  raise config.ConfigError(
      f'{owner} has {kind}s{where[len(kind):]} of {space}: expected Box, Discrete, '
      'MultiDiscrete, MultiBinary, or Dict or Tuple of these, from gymnasium.spaces; a '
      'wrapper such as FilterObservation leaves out others')


def _nest(parts: Mapping[Any, Converted], is_dict: bool, owner: str, where: str
          ) -> Converted:
  """Joins the parts of a Dict or a Tuple, which `where` names in errors."""
  def join(values: dict) -> Any:
    return values if is_dict else tuple(values.values())

  def encode(value: Any) -> Any:
    try:
      entries = {key: value[key] for key in parts}
    except (KeyError, IndexError, TypeError) as error:
      came = (f'has the entries {list(value)}' if isinstance(value, Mapping)
              else f'= {shown(value)}')
      expected = (f'a dictionary with the entries {list(parts)}' if is_dict
                  else f'a tuple of {len(parts)} values')
      raise ValueError(
          f'{owner}: {where} {came:.200}: expected {expected}') from error
    return join({key: part.encode(entries[key]) for key, part in parts.items()})

  return Converted(
      join({key: part.spec for key, part in parts.items()}), encode,
      lambda value: join({k: part.decode(value[k]) for k, part in parts.items()}))


def _integers(space: Any, name: str) -> Converted:
  """Converts a Discrete or a MultiDiscrete; both sides have the same numbers."""
  if space.shape:
    return _same(specs_lib.integers(space.nvec, space.start, name), space)
  converted = _same(specs_lib.integers(space.n, space.start, name), space)
  return converted._replace(decode=space.dtype.type)  # Tasks use it as an index.


def _same(spec: specs.Array, space: Any) -> Converted:
  """Converts the dtype of arrays only."""
  def encode(value: Any) -> Any:
    try:
      value = np.asarray(value)
    except ValueError:  # Its parts have different lengths.
      return value
    # Many tasks return float64 for float32. `BatchedEnvironment` refuses the rest.
    if value.dtype != spec.dtype and np.can_cast(value.dtype, spec.dtype, 'same_kind'):
      cast = value.astype(spec.dtype)
      # Integers that do not fit wrap.
      if value.dtype.kind == 'f' or (cast == value).all():
        return cast
    return value

  return Converted(spec, encode, lambda value: np.asarray(value, space.dtype))


def shown(value: Any) -> str:
  """Returns the beginning of a value's text, in one line."""
  return f'{" ".join(repr(value).split()):.80}'
