"""Finds in recorded episodes what a model must remember, for training schemes."""

from typing import NamedTuple

import numpy as np

from gtrxl_tf import config


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


@config.configurable
def t_maze_clue(observation: np.ndarray, mask: np.ndarray) -> Clue:
  """Returns the clues of T-Mazes; the answer's step is that of the flag.

  Args:
    observation: [B, T, 4], of `TMaze`.
    mask: bool [B, T], True where there is a step.
  """
  without = observation.copy()
  without[:, 0, 1] = 0
  flag = (observation[:, :, 2] > 0) & mask
  steps = np.sum(mask, axis=1)
  return Clue(label=observation[:, 0, 1].astype(np.int64), without=without,
              answer=np.where(flag.any(1), flag.argmax(1), steps - 1))
