"""Converts environments of the package gymnasium to dm_env's interface."""

import importlib
import itertools
import os
import re
from typing import Any, Mapping, Optional, Tuple
import warnings

import dm_env
from dm_env import specs
import numpy as np
import tree

from gtrxl_tf.environments import gymnasium_spaces as spaces
from gtrxl_tf.environments import memory_task
from gtrxl_tf.environments import optional
from gtrxl_tf.environments import rendering
from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.settings import config

# For errors.
OLD_GYM_MEND = (
    'expected a gymnasium.Env, as from a function that returns shimmy.GymV21CompatibilityV0('
    'env=...), of the package shimmy, or GymV26CompatibilityV0 for gym 0.26')
_RESET = '`def reset(self, *, seed=None, options=None)`'

# Where a mask of actions may come from, in the order in which they are tried. The last is
# a method, which sb3-contrib calls.
_INFO_MASK, _MASK_METHOD = f"info['{specs_lib.MASK}']", 'action_masks()'
_MASKS = f"observation['{specs_lib.MASK}']", _INFO_MASK, _MASK_METHOD

# Packages that register ids when they are imported, by the beginning of the id.
_REGISTERED_BY = {
    'ALE/': 'ale_py', 'BabyAI-': 'minigrid', 'MiniGrid-': 'minigrid',
    'popgym-': 'popgym'}


class FromGymnasium(memory_task.Episodic):
  """A dm_env environment that wraps one of gymnasium.

  | space | spec |
  |---|---|
  | `Box` | `BoundedArray` with its shape, dtype and bounds |
  | `Discrete` | `DiscreteArray`; `BoundedArray` of an integer if its `start` is not 0 |
  | `MultiDiscrete` | `BoundedArray` of integers, from `start` to `start + nvec - 1` |
  | `MultiBinary` | `BoundedArray` of int8, 0 and 1 |
  | `Dict`, `Tuple` | a dictionary or a tuple of these |
  | `Text`, and MiniGrid's missions | word ids, int32 `[max_words]`, see `max_words` |

  A mask of actions comes from the entry `action_mask` of an observation or of the `info`
  that `reset` and `step` return, or else from the task's method `action_masks`, as in
  sb3-contrib. It becomes the entry `action_mask` of the observation: int8 `[A]`, or the
  integers or bools that the task has there, 1 where an action is allowed, see
  `environments.specs`. An array is flattened, and tuples of masks are concatenated; None
  stands for a part without discrete actions. An observation that is not a dictionary
  becomes the entry `observation` of one. At the last step, a mask that is missing or
  allows no action is replaced by one that allows all.

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
    observation = spaces.convert(
        task.observation_space, 'observation', owner, max_words)
    action = spaces.convert(task.action_space, 'action', owner)
    if observation is None:
      raise config.ConfigError(
          f'{owner} has only texts as observations: expected max_words of '
          'GymnasiumEnvironment, or of environments.FromGymnasium, to be set')
    self._decode, self._action_spec = action.decode, action.spec
    self._num_actions = sum(
        sum(specs_lib.num_values(spec)) for spec in tree.flatten(action.spec)
        if spec.dtype.kind in 'iu')
    try:
      returned = task.reset(seed=seed)
    except (Exception, SystemExit) as error:
      takes = re.search("unexpected keyword argument '(seed|options)'", str(error))
      raise config.ConfigError(
          f'{owner}: reset() failed with {config.described(error)}'
          + (f': expected {_RESET}' if takes else '')) from error
    try:
      self._first = seen, info = self._checked_reset(returned)
    except ValueError as error:
      raise config.ConfigError(str(error)) from error
    observation = spaces.convert(task.observation_space, 'observation', owner, max_words,
                                 greatest=spaces.cells(task, seen))
    self._encode, self._observation_spec = observation.encode, observation.spec
    is_dict = isinstance(observation.spec, dict)
    self._action_masks = getattr(self, 'action_masks', None)
    has = (is_dict and specs_lib.MASK in observation.spec, specs_lib.MASK in info,
           self._action_masks is not None)
    self._mask_name = next(itertools.compress(_MASKS, has), None)
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
    with warnings.catch_warnings():  # Of gymnasium 0.29, which looks in each wrapper.
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
      raise ValueError(f'{self._owner}.step returned {_came(stepped)}: expected '
                       'observation, reward, terminated, truncated and info')
    observation, reward, terminated, truncated, info = stepped
    reward = float(self._number('reward', reward, 'a number'))
    terminated = self._number('terminated', terminated, 'True or False')
    truncated = self._number('truncated', truncated, 'True or False')
    observation = self._observation(observation, info, terminated, truncated)
    if terminated:
      return dm_env.termination(reward, observation)
    if truncated:
      return dm_env.truncation(reward, observation)
    return dm_env.transition(reward, observation)

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

  def _checked(self, action: Any) -> Any:
    return self._decode(action)

  def _checked_reset(self, returned: Any) -> Tuple[Any, Mapping[str, Any]]:
    """Returns what the task's `reset` returned, if it is an observation and an info."""
    if isinstance(returned, tuple) and len(returned) == 2:
      if isinstance(returned[1], Mapping):
        return returned
      came = f'info = {spaces.shown(returned[1])}'
    else:
      came = _came(returned)
    raise ValueError(f'{self._owner}.reset returned {came}: expected observation and '
                     'info, a dictionary, as in `return observation, {}`')

  def _number(self, name: str, value: Any, expected: str) -> Any:
    """Returns a number or bool that `step` returned, perhaps in an array of size 1."""
    if isinstance(value, (float, bool)):
      return value
    number = np.asarray(value) if np.ndim(value) == 0 or np.size(value) == 1 else None
    if number is None or number.dtype.kind not in 'biuf':
      raise ValueError(f'{self._owner}.step returned {name} = {spaces.shown(value)}: '
                       f'expected {expected}')
    return number.item()

  def _observation(self, value: Any, info: Mapping[str, Any], terminated: bool = False,
                   truncated: bool = False) -> Any:
    """Returns an observation as the spec has it."""
    observation = self._encode(value)
    if self._mask_name is not None:
      if self._nested:
        observation = {'observation': observation}
      if self._mask_name == _MASK_METHOD:  # It need not work where no action follows.
        mask = None if terminated else self._action_masks()
      else:
        mask = (info if self._mask_name == _INFO_MASK else observation).get(specs_lib.MASK)
      observation[specs_lib.MASK] = self._mask(mask, bool(terminated or truncated))
    return observation

  def _mask(self, mask: Any, last: bool) -> np.ndarray:
    if mask is None:
      if not last:
        raise ValueError(f'{self._owner} returned no {self._mask_name}: expected one at '
                         'every step, as at the first')
      mask = np.ones(self._num_actions)
    masks = [np.ravel(x) for x in tree.flatten(mask) if x is not None]
    allowed = np.concatenate(masks) != 0
    came = f'{self._owner} returned {self._mask_name}'
    if len(allowed) != self._num_actions:
      raise ValueError(f'{came} with {len(allowed)} entries: expected {self._num_actions}')
    if not allowed.any():
      if not last:
        raise ValueError(f'{came} that allows no action: expected at least one')
      allowed[:] = True
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
    kwargs = {} if kwargs is None else kwargs
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
        task = gymnasium.make(task_id, disable_env_checker=True, **kwargs)
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


def _came(returned: Any) -> str:
  """Describes a value that is not the tuple it should be."""
  return (f'{len(returned)} values' if isinstance(returned, tuple)
          else spaces.shown(returned))
