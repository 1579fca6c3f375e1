"""Tasks of the package gymnasium, such as MuJoCo's HalfCheetah and Hopper."""

import types
from typing import Optional
import warnings

import dm_env
from dm_env import specs
import numpy as np

from gtrxl_tf import config
from gtrxl_tf.environments import optional
from gtrxl_tf.environments import rendering


@config.configurable
class GymnasiumEnvironment(dm_env.Environment):
  """A task of gymnasium, by name.

  Observations must be one array, and actions one array of floating-point numbers or an
  integer from 0 on. An episode that gymnasium calls terminated ends with discount 0;
  one that it calls truncated is cut off, with discount 1.

  Version 4 of MuJoCo's tasks is what D4RL recorded as version 2, with MuJoCo's own
  bindings; Minari's data sets have version 5.
  """

  def __init__(self, name: str, seed: Optional[config.NonNegativeInt] = None):
    """Creates the environment.

    Args:
      name: with the version, as in `'Hopper-v4'`.
      seed: of everything that is drawn.

    Raises:
      config.ConfigError: there is no such task, it has other kinds of observations or
        actions, or a package that it needs is not installed.
    """
    setting = f'GymnasiumEnvironment.name = {name!r}'
    gymnasium = optional.load('gymnasium', needed_by=setting)
    rendering.choose_backend()  # The task may import mujoco.
    try:
      task = gymnasium.spec(name)
      # gymnasium itself would say less about a package that is missing.
      optional.load(task.entry_point.partition(':')[0], needed_by=setting)
      with warnings.catch_warnings():  # gymnasium warns of versions but the newest.
        warnings.simplefilter('ignore')
        self._task = gymnasium.make(name, disable_env_checker=True)
    except gymnasium.error.Error as error:
      raise config.ConfigError(f'{setting}: {config.one_line(error)}') from error
    spaces = gymnasium.spaces
    if not isinstance(self._task.observation_space, spaces.Box):
      raise config.ConfigError(f'{setting} has observations of '
                               f'{self._task.observation_space}: expected a Box')
    self._observation_spec = _spec(self._task.observation_space, 'observation')
    self._action_spec = _action_spec(spaces, self._task.action_space, setting)
    self._seed = seed
    self._reset_next_step = True

  def reset(self) -> dm_env.TimeStep:
    self._reset_next_step = False
    observation, _ = self._task.reset(seed=self._seed)
    self._seed = None  # Given again, it would begin the same stream again.
    return dm_env.restart(observation)

  def step(self, action) -> dm_env.TimeStep:
    if self._reset_next_step:
      return self.reset()
    observation, reward, terminated, truncated, _ = self._task.step(action)
    self._reset_next_step = terminated or truncated
    if terminated:
      return dm_env.termination(float(reward), observation)
    if truncated:
      return dm_env.truncation(float(reward), observation)
    return dm_env.transition(float(reward), observation)

  def observation_spec(self) -> specs.BoundedArray:
    return self._observation_spec

  def action_spec(self) -> specs.Array:
    return self._action_spec

  def close(self) -> None:
    self._task.close()


def _action_spec(spaces: types.ModuleType, space, setting: str) -> specs.Array:
  if isinstance(space, spaces.Discrete) and space.start == 0:
    return specs.DiscreteArray(int(space.n), name='action')
  if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
    return _spec(space, 'action')
  raise config.ConfigError(f'{setting} has actions of {space}: expected a Box of '
                           'floating-point numbers, or a Discrete from 0 on')


def _spec(box, name: str) -> specs.BoundedArray:
  return specs.BoundedArray(box.shape, box.dtype, box.low, box.high, name)
