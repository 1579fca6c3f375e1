"""Converts environments of the package gymnasium to dm_env's interface."""

import functools
import importlib
import operator
import os
import re
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence, Tuple
import warnings

from absl import logging
import dm_env
from dm_env import specs
import numpy as np
import tree

from gtrxl_tf.environments import episodic
from gtrxl_tf.environments import instructions
from gtrxl_tf.environments import optional
from gtrxl_tf.environments import rendering
from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.settings import config

# For errors.
OLD_GYM_MEND = (
    'expected a gymnasium.Env, as from a function that returns shimmy.GymV21CompatibilityV0('
    'env=...), of the package shimmy, or GymV26CompatibilityV0 for gym 0.26')

# Where a mask of actions may come from. The last is a method, which sb3-contrib calls.
_OBSERVED_MASK, _INFO_MASK, _MASK_METHOD = (
    f"observation['{specs_lib.MASK}']", f"info['{specs_lib.MASK}']", 'action_masks()')

# Packages that register ids when they are imported, by the beginning of the id.
_REGISTERED_BY = {
    'ALE/': 'ale_py', 'BabyAI-': 'minigrid', 'MiniGrid-': 'minigrid', 'popgym-': 'popgym'}


class FromGymnasium(episodic.Episodic):
  """A dm_env environment that wraps one of gymnasium.

  docs/environments.md says what becomes of spaces and of action masks, for which it looks
  in the observation, in the `info` of `reset` and `step`, and then for the task's method
  `action_masks`. The mask is the observation's entry `action_mask`: int8 `[A]`, or the
  integers or bools that the task has there, see `environments.specs`. At the last step,
  a mask that is missing or allows no action is replaced by one that allows all.

  A terminated episode ends with discount 0, a truncated one with discount 1. Methods
  that this class lacks, such as `episode_success` or a scripted policy, are the task's.

  Attributes:
    name: the task's id; the name of its class if it has none.
  """

  def __init__(self, task: Any, seed: Optional[int] = None,
               max_words: Optional[int] = None, owner: Optional[str] = None):
    """Resets the task, whose first `info` says whether there are action masks.

    Args:
      task: a `gymnasium.Env`.
      seed: given to the first `reset`, whatever the constructor was given.
      max_words: number of words of a text that are observed, as ids of
        `instructions.hash_instruction`; None leaves texts out.
      owner: the name in errors; by default the task's name.
    """
    self.name = task.spec.id if task.spec else type(task.unwrapped).__name__
    self._task = task
    self._owner = owner = owner or self.name
    for name in 'observation_space', 'action_space':
      if not hasattr(task, name):
        raise config.ConfigError(
            f'{owner} has no {name}: expected one of gymnasium.spaces, as its attribute')
    action = _convert(task.action_space, 'action', owner)
    self._checked, self._action_spec = action.decode, action.spec
    self._num_actions = sum(
        sum(specs_lib.num_values(spec)) for spec in tree.flatten(action.spec)
        if spec.dtype.kind in 'iu')
    try:
      returned = task.reset(seed=seed)
    except (Exception, SystemExit) as error:
      takes = re.search("unexpected keyword argument '(seed|options)'", str(error))
      raise config.ConfigError(
          f'{owner}: reset() failed with {config.described(error)}'
          + ': expected `def reset(self, *, seed=None, options=None)`' * bool(takes)
      ) from error
    self._first = seen, info = self._checked_reset(returned)
    observation = _convert(task.observation_space, 'observation', owner, max_words,
                           greatest=_cells(task, seen))
    if observation is None:
      raise config.ConfigError(
          f'{owner} has only texts as observations: expected max_words of '
          'GymnasiumEnvironment, or of environments.FromGymnasium, to be set')
    self._encode, self._observation_spec = observation.encode, observation.spec
    is_dict = isinstance(observation.spec, dict)
    self._action_masks = getattr(self, 'action_masks', None)
    self._mask_name = (
        _OBSERVED_MASK if is_dict and specs_lib.MASK in observation.spec else
        _INFO_MASK if specs_lib.MASK in info else
        _MASK_METHOD if self._action_masks is not None else None)
    self._nested = self._mask_name is not None and not is_dict
    if self._mask_name is not None:
      if not self._num_actions:
        raise config.ConfigError(f'{owner} has {self._mask_name}, but actions of '
                                 f'{task.action_space}: expected discrete ones')
      if self._nested:
        self._observation_spec = {'observation': observation.spec}
      own = getattr(self._observation_spec.get(specs_lib.MASK), 'dtype', np.dtype('f'))
      self._observation_spec[specs_lib.MASK] = specs.BoundedArray(
          [self._num_actions], own if own.kind in 'biu' else np.int8, 0, 1, specs_lib.MASK)

  def __getattr__(self, name: str) -> Any:
    if name.startswith('_'):
      raise AttributeError(name)
    with warnings.catch_warnings():  # gymnasium 0.29 warns as it looks in each wrapper.
      warnings.simplefilter('ignore')
      found = self._task.get_wrapper_attr(name)
    if not callable(found):  # For example, the return so far.
      raise AttributeError(name)
    return found

  def _reset(self) -> dm_env.TimeStep:
    # The constructor has begun the first episode.
    observation, info = self._first or self._checked_reset(self._task.reset())
    self._first = None
    return dm_env.restart(self._observation(observation, info))

  def _step(self, action: Any) -> dm_env.TimeStep:
    stepped = self._task.step(action)
    if not isinstance(stepped, tuple) or len(stepped) != 5:
      raise ValueError(f'{self._owner}.step returned {_shown(stepped)}: expected '
                       'observation, reward, terminated, truncated and info')
    observation, reward, terminated, truncated, info = stepped
    reward = float(self._number('reward', reward, 'a number'))
    terminated = self._number('terminated', terminated, 'True or False')
    truncated = self._number('truncated', truncated, 'True or False')
    observation = self._observation(observation, info, terminated, truncated)
    return episodic.later_step(reward, observation, terminated, truncated)

  def observation_spec(self) -> Any:
    return self._observation_spec

  def action_spec(self) -> Any:
    return self._action_spec

  def render(self) -> np.ndarray:
    """Draws the present state: uint8 [H, W, 3]."""
    if not os.environ.get('DISPLAY'):  # pygame would report what is missing.
      os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')
      os.environ.setdefault('SDL_AUDIODRIVER', 'dummy')
    modes = self._task.metadata.get('render_modes') or []
    if self._task.render_mode is None and 'rgb_array' in modes:
      self._task.unwrapped.render_mode = 'rgb_array'  # As if made with it.
    image = self._task.render() if self._task.render_mode == 'rgb_array' else None
    if not isinstance(image, np.ndarray) or image.ndim != 3:
      raise config.ConfigError(
          f'{self._owner} draws no picture with render_mode = {self._task.render_mode!r}: '
          f"expected 'rgb_array', and the task's render modes are {modes}")
    return image[..., :3].astype(np.uint8, copy=False)

  def close(self) -> None:
    self._task.close()

  def _checked_reset(self, returned: Any) -> Tuple[Any, Mapping[str, Any]]:
    """Returns what the task's `reset` returned, if it is an observation and an info."""
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping):
      return returned
    raise config.ConfigError(
        f'{self._owner}.reset returned {_shown(returned)}: expected observation and info, a '
        'dictionary, as in `return observation, {}`')

  def _number(self, name: str, value: Any, expected: str) -> Any:
    """Returns a number or bool that `step` returned, perhaps in an array of size 1."""
    if isinstance(value, (float, bool)):
      return value
    number = np.asarray(value) if np.ndim(value) == 0 or np.size(value) == 1 else None
    if number is None or number.dtype.kind not in 'biuf':
      raise ValueError(f'{self._owner}.step returned {name} = {_shown(value)}: '
                       f'expected {expected}')
    return number.item()

  def _observation(self, value: Any, info: Mapping[str, Any], terminated: bool = False,
                   truncated: bool = False) -> Any:
    """Returns an observation as the spec has it."""
    observation = self._encode(value)
    if self._mask_name is None:
      return observation
    if self._nested:
      observation = {'observation': observation}
    if self._mask_name == _MASK_METHOD:  # It need not work where no action follows.
      mask = None if terminated else self._action_masks()
    else:
      mask = (info if self._mask_name == _INFO_MASK else observation).get(specs_lib.MASK)
    observation[specs_lib.MASK] = self._mask(mask, bool(terminated or truncated))
    return observation

  def _mask(self, mask: Any, last: bool) -> np.ndarray:
    came = f'{self._owner} returned {self._mask_name}'
    masks = [np.ravel(x) for x in tree.flatten(mask) if x is not None]
    allowed = np.concatenate(masks or [np.zeros(0)]) != 0
    if mask is None or not allowed.any() and len(allowed) == self._num_actions:
      if not last:
        raise ValueError(f'{came} = {_shown(mask)}: expected a mask at every step, as at the '
                         'first, that allows at least one action')
      allowed = np.ones(self._num_actions, bool)
    if len(allowed) != self._num_actions:
      raise ValueError(f'{came} with {len(allowed)} entries: expected {self._num_actions}')
    return allowed.astype(self._observation_spec[specs_lib.MASK].dtype)


@config.configurable
class GymnasiumEnvironment(FromGymnasium):
  """A task of gymnasium, made by its id and converted by `FromGymnasium`.

  The packages that register the ids of POPGym, MiniGrid, BabyAI and Atari are imported;
  for others, `'module:id'` names the module.

  Version 4 of MuJoCo's tasks is version 2, which D4RL recorded, with MuJoCo's own
  bindings; Minari's data sets have version 5.
  """

  def __init__(self, name: str, seed: Optional[config.NonNegativeInt] = None,
               kwargs: Optional[Mapping[str, Any]] = None,
               max_words: Optional[config.PositiveInt] = None):
    """Creates the environment.

    Args:
      name: the id with the version, as in `'Hopper-v4'`.
      seed: seed of everything that is random.
      kwargs: arguments of `gymnasium.make`, such as `{'max_episode_steps': 100}`.
      max_words: number of words of a text that are observed, as ids that
        `InstructionEncoder` reads; None leaves texts out, such as the missions of
        MiniGrid, which matter only in some of its tasks.
    """
    setting = f'GymnasiumEnvironment.name = {name!r}'
    gymnasium = optional.load('gymnasium', needed_by=setting)
    rendering.choose_backend()  # The task may import mujoco.
    module, _, task_id = name.rpartition(':')
    for prefix, package in _REGISTERED_BY.items():
      if task_id.startswith(prefix) and not module:
        optional.load(package, needed_by=setting)
    try:
      with warnings.catch_warnings():  # gymnasium warns of older versions.
        warnings.simplefilter('ignore')
        if module:
          importlib.import_module(module)
        entry_point = gymnasium.spec(task_id).entry_point
        if isinstance(entry_point, str):
          # gymnasium's own error says less about a missing package.
          optional.load(entry_point.partition(':')[0], needed_by=setting)
        task = gymnasium.make(task_id, disable_env_checker=True, **(kwargs or {}))
    except ModuleNotFoundError as error:
      raise config.ConfigError(
          f'{setting}: {config.one_line(error)}: expected a module that registers the '
          'id, in a folder of PYTHONPATH') from error
    except (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound) as error:
      raise config.ConfigError(f'{setting}: {config.one_line(error)} If ' + (
          f'{module} registers it with the old package gym, {OLD_GYM_MEND}' if module else
          "another package registers the id, expected the package's module before it, as "
          "in 'module:id'")) from error
    except (gymnasium.error.Error, TypeError) as error:
      if isinstance(error.__cause__, ModuleNotFoundError):
        optional.load(error.__cause__.name, needed_by=setting)
      raise config.ConfigError(f'{setting}: {config.one_line(error)}') from error
    super().__init__(task, seed, max_words, owner=setting)


def _shown(value: Any) -> str:
  """Returns the beginning of a value's text, in one line."""
  num = f'{len(value)} values, ' if isinstance(value, tuple) else ''
  return f'{num}{" ".join(repr(value).split()):.80}'


def _cells(task: Any, seen: Any) -> dict[int, int]:
  """Returns the greatest value of arrays of MiniGrid's cells, by the `id` of their space."""
  # MiniGrid declares cells, indices of kind, colour and state, as bytes from 0 to 255. What
  # a wrapper of the task puts in their place counts as cells, such as crops and stacks,
  # unless `seen`, the first observation, has the larger values of pictures.
  base = task.unwrapped
  if not any(x.__module__.startswith('minigrid.') for x in type(base).__mro__):
    return {}
  kinds = importlib.import_module('minigrid.core.constants').OBJECT_TO_IDX

  def greatest(env: Any) -> dict[int, int]:  # The greatest value of each array of bytes.
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


class _Converted(NamedTuple):
  """A space as a nest of specs, and functions that convert its values."""
  spec: Any
  encode: Callable[[Any], Any]  # From gymnasium's to the spec's.
  decode: Callable[[Any], Any]  # From the spec's to gymnasium's.


def _convert(space: Any, kind: str, owner: str, max_words: Optional[int] = None,
             path: Sequence[Any] = (), greatest: Mapping[int, int] = {}
             ) -> Optional[_Converted]:
  """Converts a space of a `kind`, 'observation' or 'action'; None if it is left out."""
  name = str(path[-1]) if path else kind
  where = kind + ''.join(f'[{key!r}]' for key in path)
  spaces = importlib.import_module('gymnasium').spaces
  if isinstance(space, (spaces.Dict, spaces.Tuple)) and space.spaces:
    items = space.spaces.items() if hasattr(space, 'keys') else enumerate(space.spaces)
    parts = {key: _convert(inner, kind, owner, max_words, [*path, key], greatest)
             for key, inner in items}
    parts = {key: part for key, part in parts.items() if part is not None}
    join = dict if hasattr(space, 'keys') else lambda values: tuple(values.values())
    return _nest(parts, join, f'{owner}: {where}') if parts else None
  if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)) and 0 not in space.shape:
    num = space.nvec if space.shape else space.n
    converted = _same(specs_lib.integers(num, space.start, name), space)
    # Tasks use a single integer as an index.
    return converted if space.shape else converted._replace(decode=space.dtype.type)
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
    return _Converted(
        specs.BoundedArray([max_words], np.int32, 0, instructions.VOCABULARY_SIZE, name),
        lambda value: instructions.hash_instruction(str(value), max_words), str)
  raise config.ConfigError(
      f'{owner} has {kind}s{where[len(kind):]} of {space}: expected Box, Discrete, '
      'MultiDiscrete, MultiBinary, or Dict or Tuple of these, from gymnasium.spaces; a '
      'wrapper such as FilterObservation leaves out others')


def _nest(parts: Mapping[Any, _Converted], join: Callable[[dict], Any], where: str) -> _Converted:
  """Joins the parts of a Dict or a Tuple, which `where` names in errors."""
  def encode(value: Any) -> Any:
    try:
      entries = {key: value[key] for key in parts}
    except (KeyError, IndexError, TypeError) as error:
      raise ValueError(f'{where} = {_shown(value)}: expected a dictionary or a tuple with the '
                       f'entries {list(parts)}') from error
    return join({key: part.encode(entries[key]) for key, part in parts.items()})

  return _Converted(
      join({key: part.spec for key, part in parts.items()}), encode,
      lambda value: join({k: part.decode(value[k]) for k, part in parts.items()}))


def _same(spec: specs.Array, space: Any) -> _Converted:
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

  return _Converted(spec, encode, lambda value: np.asarray(value, space.dtype))
