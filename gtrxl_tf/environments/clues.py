"""What recorded episodes of a task ask to be remembered, for `training.schemes`."""

from typing import NamedTuple

import numpy as np

from gtrxl_tf import config


class Clue(NamedTuple):
  """Of B recorded episodes."""
  label: np.ndarray    # [B] integers: what is to be remembered.
  without: np.ndarray  # [B, T, ...] the observations, with the clue hidden.
  answer: np.ndarray   # [B] the step in which the answer comes in sight.


@config.configurable
def t_maze_clue(observation: np.ndarray, mask: np.ndarray) -> Clue:
  """The clue of a T-Maze, and the step of its flag.

  Args:
    observation: [B, T, 4] of `TMaze`.
    mask: [B, T], true where there is a step.
  """
  without = observation.copy()
  without[:, 0, 1] = 0
  flag = (observation[:, :, 2] > 0) & mask
  steps = np.sum(mask, axis=1)
  return Clue(label=observation[:, 0, 1].astype(np.int64), without=without,
              answer=np.where(flag.any(1), flag.argmax(1), steps - 1))
