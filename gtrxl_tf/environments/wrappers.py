"""Wrappers that change any environment: the settings of `Experiment.wrappers`.

Each is called with an environment and returns the wrapped one. A list of them is
applied in order. Environments of gymnasium are converted first. Use gymnasium's own
wrappers in a function that makes a `gymnasium.Env`.

Logs, evaluations and scores report the returns of unclipped and unscaled rewards.
"""

import collections
from typing import Annotated, Any, Callable, Optional

import dm_env
from dm_env import specs
import numpy as np
import tree

from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.settings import config


class Wrapper(dm_env.Environment):
  """An environment that behaves like the one it wraps; subclasses change some methods.

  Attributes that dm_env does not define, such as `episode_success` and `render`, are
  those of the wrapped environment.
  """

  def __init__(self, environment: Any):
    if not hasattr(environment, 'observation_spec'):
      raise config.ConfigError(
          f'{type(self).__name__} of {environment!r}: expected a dm_env.Environment; '
          'environments.FromGymnasium makes one of an environment of gymnasium')
    self._environment = environment

  def __getattr__(self, name: str) -> Any:
    if name.startswith('_'):
      raise AttributeError(name)
    return getattr(self._environment, name)

  @property
  def name(self) -> str:
    """Name of the wrapped environment, or of its class if it has none."""
    return getattr(self._environment, 'name', type(self._environment).__name__)

  def reset(self) -> dm_env.TimeStep:
    return self._changed(self._environment.reset())

  def step(self, action) -> dm_env.TimeStep:
    return self._changed(self._environment.step(action))

  def _changed(self, time_step: dm_env.TimeStep) -> dm_env.TimeStep:
    """Returns the time step that the agent sees."""
    return time_step

  def observation_spec(self) -> Any:
    return self._environment.observation_spec()

  def action_spec(self) -> Any:
    return self._environment.action_spec()

  def close(self) -> None:
    self._environment.close()


class _Rewards(Wrapper):
  """Changes rewards, and reports the return of the unchanged ones."""

  def __init__(self, environment: Any, change: Callable[[float], float]):
    super().__init__(environment)
    self._change = change
    self._return = 0.0

  def episode_return(self) -> float:
    """Returns the return before the change; called after the last step."""
    wrapped = getattr(self._environment, 'episode_return', None)
    return wrapped() if callable(wrapped) else self._return

  def _changed(self, time_step: dm_env.TimeStep) -> dm_env.TimeStep:
    if time_step.first():
      self._return = 0.0
      return time_step
    self._return += time_step.reward
    return time_step._replace(reward=float(self._change(time_step.reward)))


@config.configurable
class ClipReward(_Rewards):
  """Clips each reward to bounds; the returns that are reported stay unclipped.

  Args:
    low: the least reward, or None. -1 and 1 are those of DQN (Mnih et al., 2015).
    high: the greatest reward, or None.
  """

  def __init__(self, environment: Any, low: Optional[float] = -1.0, high: Optional[float] = 1.0):
    least, most = -np.inf if low is None else low, np.inf if high is None else high
    if least > most:
      raise config.ConfigError(
          f'ClipReward.low = {low}: expected at most ClipReward.high = {high}')
    super().__init__(environment, lambda reward: min(max(reward, least), most))


@config.configurable
class ScaleReward(_Rewards):
  """Multiplies each reward by `factor`; the returns that are reported stay unscaled."""

  def __init__(self, environment: Any, factor: float):
    super().__init__(environment, lambda reward: reward * factor)


@config.configurable
class RepeatAction(Wrapper):
  """Repeats each action and sums its rewards.

  It stops early where the episode ends or a discount is 0. The agent sees the last of the
  observations. A run counts the agent's steps, see
  `OnlineExperiment.frames_per_action`.

  Args:
    repeats: how many times each action is taken. 4 is DQN's.
  """

  def __init__(self, environment: Any, repeats: config.PositiveInt = 4):
    super().__init__(environment)
    self._repeats = repeats

  def step(self, action) -> dm_env.TimeStep:
    reward, discount = 0.0, 1.0
    for _ in range(self._repeats):
      # A copy, since an environment may write into its action.
      time_step = self._environment.step(tree.map_structure(
          lambda x: x.copy() if isinstance(x, np.ndarray) else x, action))
      if time_step.first():  # The step before was an episode's last.
        return time_step
      reward += time_step.reward
      discount *= time_step.discount
      if time_step.last() or not discount:
        break  # Rewards that follow a discount of 0 do not count for the action.
    return time_step._replace(reward=reward, discount=discount)


@config.configurable
class StepLimit(Wrapper):
  """Cuts episodes off after a number of steps, with the discount of that step.

  Args:
    steps: length of the longest episode.
  """

  def __init__(self, environment: Any, steps: config.PositiveInt):
    super().__init__(environment)
    self._limit = steps
    self._steps = 0

  def reset(self) -> dm_env.TimeStep:
    self._steps = 0
    return self._environment.reset()

  def step(self, action) -> dm_env.TimeStep:
    if self._steps >= self._limit:
      return self.reset()
    time_step = self._environment.step(action)
    self._steps = 0 if time_step.first() else self._steps + 1
    if self._steps >= self._limit:
      time_step = time_step._replace(step_type=dm_env.StepType.LAST)
    return time_step


@config.configurable
class ShrinkImages(Wrapper):
  """Makes images smaller: each pixel becomes the mean of a square of pixels.

  Images are the arrays [H, W, C] of uint8 in the observation; those of 210 x 160 become
  105 x 80. Rows and columns that do not fill a square are left out. Learning time is
  about proportional to the number of pixels.

  Args:
    factor: height and width of a square, in pixels.
  """

  def __init__(self, environment: Any, factor: Annotated[int, config.Range(2, 16)] = 2):
    super().__init__(environment)
    self._factor = factor
    spec = environment.observation_spec()
    if not any(map(_shrinks, tree.flatten(spec))):
      raise config.ConfigError(
          f'ShrinkImages: the observation is {spec}: expected an image, uint8 [H, W, C]')
    self._source_spec = spec
    self._spec = tree.map_structure(self._shrunk_spec, spec)

  def observation_spec(self) -> Any:
    return self._spec

  def _changed(self, time_step: dm_env.TimeStep) -> dm_env.TimeStep:
    return time_step._replace(observation=tree.map_structure_up_to(
        self._source_spec, self._shrunk, self._source_spec, time_step.observation))

  def _shrunk_spec(self, spec: specs.Array) -> specs.Array:
    if not _shrinks(spec):
      return spec
    height, width, channels = spec.shape
    shape = (height // self._factor, width // self._factor, channels)
    if not all(shape):
      raise config.ConfigError(
          f'ShrinkImages.factor = {self._factor}: expected at most the height and width '
          f'of an image of {height} x {width}')
    return specs.BoundedArray(shape, np.uint8, 0, 255, spec.name)

  def _shrunk(self, spec: specs.Array, image: Any) -> Any:
    if not _shrinks(spec) or not _shrinks(image):
      return image
    factor = self._factor
    height, width = (size // factor for size in image.shape[:2])
    # Sums of slices take a tenth of the time of `mean` over two axes. The largest sum,
    # 256 times 255, fits.
    total = sum(
        image[i:height * factor:factor, j:width * factor:factor].astype(np.uint16)
        for i in range(factor) for j in range(factor))
    return (total // factor ** 2).astype(np.uint8)


def _shrinks(array: Any) -> bool:
  """Returns whether an array, or the array of a spec, is an image of bytes."""
  return getattr(array, 'dtype', None) == np.uint8 and specs_lib.is_image(array)


@config.configurable
class FrameStack(Wrapper):
  """Concatenates the last observations, the newest last.

  Arrays are concatenated along their last axis: images [H, W, C] become
  [H, W, `frames` x C], vectors [D] become [`frames` x D], and single numbers become
  vectors. Only the newest action mask is kept. Observations before the episode are 0,
  as in `Atari` and with `OfflineExperiment.frame_stack`, which stacks recorded episodes
  in the same way.

  Args:
    frames: the number of observations. 4 is DQN's.
  """

  def __init__(self, environment: Any, frames: Annotated[int, config.Range(1, 1000)] = 4):
    super().__init__(environment)
    self._frames = collections.deque(maxlen=frames)
    self._spec = stacked_spec(environment.observation_spec(), frames)

  def observation_spec(self) -> Any:
    return self._spec

  def _changed(self, time_step: dm_env.TimeStep) -> dm_env.TimeStep:
    # A copy, since an environment may write into the array that it returned.
    observation = tree.map_structure_up_to(
        self._spec, np.array, time_step.observation)  # An array may be a list.
    if time_step.first():
      self._frames.extend([tree.map_structure(np.zeros_like, observation)] * self._frames.maxlen)
    self._frames.append(observation)
    return time_step._replace(observation=_stacked(self._frames, _stacked_arrays))


def stacked_spec(observation_spec: Any, frames: int) -> Any:
  """Returns the nest of specs of `frames` observations, stacked as by `FrameStack`."""
  return _stacked([observation_spec] * frames, _stacked_spec)


def _stacked(frames: Any, stack: Any) -> Any:
  """Stacks nests of arrays or of specs; of action masks it keeps the last."""
  stacked = tree.map_structure(lambda *x: stack(x), *frames)
  if isinstance(stacked, dict) and specs_lib.MASK in stacked:
    stacked[specs_lib.MASK] = frames[-1][specs_lib.MASK]
  return stacked


def _stacked_arrays(arrays: Any) -> np.ndarray:
  return np.concatenate([np.atleast_1d(x) for x in arrays], axis=-1)


def _stacked_spec(frames: Any) -> specs.Array:
  """Returns the spec of stacked arrays; `frames` has one spec, repeated."""
  spec, *_ = frames
  *rest, last = spec.shape or (1,)
  shape = (*rest, last * len(frames))
  if not isinstance(spec, specs.BoundedArray):
    return specs.Array(shape, spec.dtype, spec.name)
  bounds = [_stacked_arrays([np.broadcast_to(bound, spec.shape)] * len(frames))
            for bound in (np.minimum(spec.minimum, 0).astype(spec.dtype),
                          np.maximum(spec.maximum, 0).astype(spec.dtype))]
  return specs.BoundedArray(shape, spec.dtype, *bounds, spec.name)
