"""Films of episodes, as animated GIFs."""

import pathlib
from typing import Any, List

import dm_env
import numpy as np
from PIL import Image
import tree

from gtrxl_tf import environments
from gtrxl_tf.settings import config

MOST_FRAMES = 1000  # The frames of a film; later steps of an episode are left out.
_FRAMES_PER_SECOND = 12
_LEAST_SIDE, _MOST_SIDE = 160, 480  # Pixels of a film's longer side.


class Filmed(environments.Wrapper):
  """An environment that keeps the pictures of its first episode.

  A picture is what the environment's `render()` returns or, without this method, the
  one image in the observation.

  Attributes:
    frames: the episode so far, each uint8 [H, W, 3].
  """

  def __init__(self, environment: dm_env.Environment):
    super().__init__(environment)
    self.frames: List[np.ndarray] = []
    self._is_over = False

  def reset(self) -> dm_env.TimeStep:
    self.frames, self._is_over = [], False
    return self._filmed(super().reset())

  def step(self, action) -> dm_env.TimeStep:
    return self._filmed(super().step(action))

  def _filmed(self, time_step: dm_env.TimeStep) -> dm_env.TimeStep:
    if not self._is_over and len(self.frames) < MOST_FRAMES:
      self.frames.append(_picture(self._environment, time_step.observation))
    self._is_over |= time_step.last()
    return time_step


def _picture(environment: dm_env.Environment, observation: Any) -> np.ndarray:
  """Returns a picture of the environment's current state, uint8 [H, W, 3].

  Raises:
    config.ConfigError: the environment cannot be drawn.
  """
  picture, why = None, 'no such method'
  try:
    if callable(getattr(environment, 'render', None)):
      picture = np.asarray(environment.render())
      why = f'{picture.dtype} {list(picture.shape)}'
  except config.ConfigError as error:
    why = str(error)
  if picture is None or not _is_image(picture) or picture.shape[-1] != 3:
    images = [x for x in map(np.asarray, tree.flatten(observation)) if _is_image(x)]
    if len(images) != 1:
      raise config.ConfigError(
          f'--video: {type(environment).__name__} cannot be drawn: expected a method '
          'render() that returns uint8 [H, W, 3], or one image in the observation; got '
          f'{len(images)} images, and from render(): {why}')
    picture, = images
  channels = picture.shape[-1]
  newest = 1 if channels in (1, 4) else 3  # The last of stacked frames is the newest.
  return np.broadcast_to(
      picture[..., channels - newest:], (*picture.shape[:2], 3)).copy()


def _is_image(x: np.ndarray) -> bool:
  return (x.dtype == np.uint8 and x.ndim == 3 and min(x.shape) > 0
          and (x.shape[-1] in (1, 4) or x.shape[-1] % 3 == 0))


def write(path: pathlib.Path, frames: List[np.ndarray]) -> None:
  """Writes pictures, uint8 [H, W, 3], as an animated GIF that repeats."""
  images = []
  for frame in frames:
    image, side = Image.fromarray(frame), max(frame.shape[:2])
    if side < _LEAST_SIDE:
      scale = -(-_LEAST_SIDE // side)
      image = image.resize(
          (image.width * scale, image.height * scale), Image.Resampling.NEAREST)
    elif side > _MOST_SIDE:
      image.thumbnail((_MOST_SIDE, _MOST_SIDE))
    images.append(image)
  path.parent.mkdir(parents=True, exist_ok=True)
  images[0].save(path, save_all=True, append_images=images[1:], loop=0,
                 duration=1000 // _FRAMES_PER_SECOND)
