"""Finds what a model must remember, for samplers and for OracleDT."""

from typing import Any, Mapping, NamedTuple, Tuple

import numpy as np

from gtrxl_tf.settings import config


class Clue(NamedTuple):
  """The clues of B recorded episodes.

  Attributes:
    label: integers [B], the clue to remember.
    without: [B, T, ...], the observations with the clue hidden.
    answer: [B], the step in which the answer is asked for.
  """
  label: np.ndarray
  without: np.ndarray
  answer: np.ndarray


def _check_unstacked(found: int, expected: int) -> None:
  if found != expected:
    raise config.ConfigError(
        f'an observation has {found} numbers or channels: expected {expected}, as with '
        'OfflineExperiment.frame_stack = 1')


@config.configurable
def t_maze_clue(observation: np.ndarray, mask: np.ndarray) -> Clue:
  """Returns the clues of T-Mazes; the answer's step is that of the flag.

  Args:
    observation: [B, T, 4], of `TMaze`.
    mask: bool [B, T], True where there is a step.
  """
  _check_unstacked(observation.shape[-1], 4)
  without = observation.copy()
  without[:, 0, 1] = 0
  flag = (observation[:, :, 2] > 0) & mask
  steps = np.sum(mask, axis=1)
  return Clue(label=observation[:, 0, 1].astype(np.int64), without=without,
              answer=np.where(flag.any(1), flag.argmax(1), steps - 1))


@config.configurable
def t_maze_bit(observation: Any) -> Any:
  """Returns what OracleDT is told of first observations [B, 4]: 1 for up, 0 for down."""
  import tensorflow as tf  # pylint: disable=g-import-not-at-top
  _check_unstacked(observation.shape[-1], 4)
  return tf.cast(observation[:, 1] > 0, tf.float32)


@config.configurable
def two_colors_clue(observation: Mapping[str, np.ndarray], mask: np.ndarray,
                    pillar_steps: config.PositiveInt) -> Clue:
  """Returns the clues of ViZDoom-Two-Colors: 1 for a green pillar, 0 for a red one.

  Pictures that may show the pillar are black in `without`. The answer is asked for in
  every step, so its step is the last.

  Args:
    observation: has `image`, uint8 [B, T, H, W, 3], from the episode's first step on.
    mask: bool [B, T], True where there is a step.
    pillar_steps: the environment's `pillar_steps`.
  """
  image = observation['image']
  _check_unstacked(image.shape[-1], 3)
  without = image.copy()
  without[:, :pillar_steps] = 0
  height, width = image.shape[2:4]
  red, green, _ = np.moveaxis(
      image[(slice(None), 0, *_middle(height, width))].mean(axis=(1, 2)), -1, 0)
  return Clue(label=(green > red).astype(np.int64),
              without={**observation, 'image': without},
              answer=np.sum(mask, axis=1) - 1)


@config.configurable
def two_colors_bit(observation: Mapping[str, Any]) -> Any:
  """Returns what OracleDT is told of ViZDoom-Two-Colors: 1 for green, 0 for red, [B].

  `observation` has the tensor `image`, uint8 [B, H, W, 3], of episodes' first steps, in
  which the pillar is in the middle of the picture.
  """
  import tensorflow as tf  # pylint: disable=g-import-not-at-top
  image = observation['image']
  _check_unstacked(image.shape[-1], 3)
  height, width = image.shape[1:3]
  middle = image[(slice(None), *_middle(height, width))]
  red, green, _ = tf.unstack(tf.reduce_mean(tf.cast(middle, tf.float32), [1, 2]), axis=-1)
  return tf.cast(green > red, tf.float32)


def _middle(height: int, width: int) -> Tuple[slice, slice]:
  """Returns the rows and columns of a picture in which the pillar stands at first."""
  return (slice(height * 3 // 8, height * 5 // 8), slice(width * 15 // 32, width * 17 // 32))
