"""Human-normalized scores: 0 is a random policy's return, 100 is a human's.

The returns of both are in `human_returns`.

`Experiment.score` may be bound to any of the scores below. Each takes mean returns by
task and returns a number, or several by name; a benchmark's official score needs all
its tasks. A score is NaN if there is no task to score, or if a return is NaN.
"""

import math
from typing import Dict, Mapping, Sequence

import numpy as np

from gtrxl_tf.environments import dmlab
from gtrxl_tf.environments import human_returns
from gtrxl_tf.settings import config


def human_normalized(
    returns: Mapping[str, float], table: Mapping[str, human_returns.Reference]
    ) -> Dict[str, float]:
  """Returns 100 * (return - random) / (human - random), by task.

  Args:
    returns: the mean return on each task.
    table: `human_returns.DMLAB_30` or `human_returns.ATARI_57`.

  Raises:
    ValueError: the table does not have a task.
  """
  unknown = [task for task in returns if task not in table]
  if unknown:
    raise ValueError(f'no human return is known for {", ".join(map(repr, unknown))}: '
                     f'expected tasks among {", ".join(map(repr, table))}')
  return {task: 100 * (value - table[task].random)
                / (table[task].human - table[task].random)
          for task, value in returns.items()}


@config.configurable
def dmlab30_score(returns: Mapping[str, float], capped: bool = False) -> float:
  """Returns the mean score over the given levels (GTrXL, Table 1 and figure 2).

  Args:
    returns: the mean return on each level.
    capped: whether a level's score is at most 100, as in Table 1's second column, so
      that superhuman levels do not compensate for others.
  """
  scores = list(human_normalized(returns, human_returns.DMLAB_30).values())
  return _mean(np.minimum(scores, 100) if capped else scores)


@config.configurable
def dmlab30_scores(returns: Mapping[str, float]) -> Dict[str, float]:
  """Returns the columns of GTrXL's Table 1 and the two parts of its Figure 2.

  Table 13 says which levels need memory and which are reactive.
  """
  scores = human_normalized(returns, human_returns.DMLAB_30)

  def mean(levels: Sequence[str]) -> float:
    return _mean([score for level, score in scores.items() if level in levels])

  return {'score': dmlab30_score(returns, capped=False),
          'score_capped': dmlab30_score(returns, capped=True),
          'score_memory': mean(dmlab.MEMORY_LEVELS),
          'score_reactive': mean(dmlab.REACTIVE_LEVELS)}


@config.configurable
def atari57_score(returns: Mapping[str, float]) -> float:
  """Returns the median over the given games (GTrXL, appendix E)."""
  scores = human_normalized(returns, human_returns.ATARI_57)
  return float(np.median(list(scores.values()))) if scores else math.nan


@config.configurable
def d4rl_score(returns: Mapping[str, float], low: float, high: float) -> float:
  """Returns D4RL's score, 100 * (return - low) / (high - low) (RATE, Table 4).

  Args:
    returns: the mean return on each task; their mean counts.
    low: the return of random actions, from D4RL's `infos.py`.
    high: the return of an expert, from the same file.
  """
  if high <= low:
    raise config.ConfigError(
        f'd4rl_score.high = {high}: expected more than d4rl_score.low = {low}')
  return 100 * (_mean(list(returns.values())) - low) / (high - low)


def _mean(scores: Sequence[float]) -> float:
  return float(np.mean(scores)) if len(scores) else math.nan
