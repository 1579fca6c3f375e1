"""The specs of environments that are batched."""

from collections import abc
import re
from typing import Any

import dm_env
from dm_env import specs
import numpy as np
import tree

from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.settings import config

_KEY = re.compile(r'[A-Za-z0-9_./-]+')


def named_leaves(root: str, nest) -> list[tuple[str, Any]]:
  """Returns leaves with names like `observation['position']`."""
  return [(root + ''.join(f'[{key!r}]' for key in path), leaf)
          for path, leaf in tree.flatten_with_path(nest)]


def with_narrow_floats(spec: specs.Array) -> specs.Array:
  """Returns `spec` with float32 in place of float64."""
  dtype = specs_lib.narrowed(spec.dtype)
  if dtype == spec.dtype:
    return spec
  with np.errstate(over='ignore'):  # A bound beyond float32 becomes infinite.
    return spec.replace(dtype=dtype)


def check(environments: list[dm_env.Environment]) -> None:
  """Raises a ValueError that says why, if environments cannot be batched."""
  if not environments:
    raise ValueError('environments is empty: expected at least one')
  if len({id(unwrapped(environment)) for environment in environments}) < len(environments):
    raise ValueError(
        'environments holds one environment twice, perhaps under wrappers: each needs '
        'its own episode')
  first = {}  # The specs of environment 0.
  for i, environment in enumerate(environments):
    for method in ('reset', 'step', 'reward_spec', 'observation_spec', 'action_spec'):
      if not callable(getattr(environment, method, None)):
        raise ValueError(
            f'environment {i} is a {type(environment).__name__} without {method}(): '
            'expected a dm_env.Environment; GymnasiumEnvironment makes one of a '
            'gymnasium environment')
    reward_spec = _spec(i, environment, 'reward')
    if not isinstance(reward_spec, specs.Array) or reward_spec.shape:
      raise ValueError(f'environment {i}: reward_spec is {reward_spec}: '
                       'expected a scalar')
    for kind in ('observation', 'action'):
      spec = _spec(i, environment, kind)
      _check_leaves(i, kind, spec)
      if spec != first.setdefault(kind, spec):
        raise ValueError(f'environment {i}: {kind}_spec is {spec}, in environment 0 it is '
                         f'{first[kind]}')


def unwrapped(environment: Any) -> Any:
  """Returns what is within an environment's wrappers, ours and those of gymnasium."""
  while isinstance(inner := getattr(environment, '_environment', None),
                   dm_env.Environment):
    environment = inner
  task = getattr(environment, '_task', None)  # As in `FromGymnasium`.
  return getattr(task, 'unwrapped', environment)


def _spec(i: int, environment: dm_env.Environment, kind: str) -> Any:
  try:
    return getattr(environment, f'{kind}_spec')()
  except Exception as error:
    raise ValueError(f'environment {i}: {kind}_spec() failed with '
                     f'{config.described(error)}') from error


def _check_keys(name: str, nest: Any) -> None:
  """Refuses keys that a SavedModel cannot name, before a run trains what it exports."""
  if isinstance(nest, abc.Mapping):
    for key in nest:
      if not (isinstance(key, str) and _KEY.fullmatch(key)):
        raise ValueError(f'{name} has the key {key!r}: expected a name of letters, digits, '
                         '_, -, . and /')
    if len({key.lower() for key in nest}) < len(nest):
      raise ValueError(f'{name} has the keys {sorted(nest)}: expected names that differ in '
                       'more than case')
    for key, inner in nest.items():
      _check_keys(f'{name}[{key!r}]', inner)
  elif isinstance(nest, (list, tuple)):
    for i, inner in enumerate(nest):
      _check_keys(f'{name}[{i}]', inner)


def _check_leaves(i: int, kind: str, nest: Any) -> None:
  """Refuses specs of observations or actions that no network can have."""
  _check_keys(f'environment {i}: {kind}_spec', nest)
  leaves = named_leaves(kind, nest)
  if kind == 'action' and not leaves:
    raise ValueError(
        f'environment {i}: action_spec is {nest}: expected at least one action')
  for name, spec in leaves:
    if not isinstance(spec, specs.Array):
      raise ValueError(
          f'environment {i}: {kind}_spec has {type(spec).__name__} for {name}: '
          'expected a dm_env.specs.Array, or dictionaries, lists or tuples of them')
    if spec.dtype.kind not in 'biuf':
      raise ValueError(f'environment {i}: {name} has dtype {spec.dtype}: expected '
                       'numbers or bools, and no complex ones')
    if isinstance(spec, specs.BoundedArray) and (
        np.isnan(spec.minimum).any() or np.isnan(spec.maximum).any()):
      raise ValueError(f'environment {i}: {name} has the bounds {spec.minimum} and '
                       f'{spec.maximum}: expected numbers, infinite ones for no bound')
