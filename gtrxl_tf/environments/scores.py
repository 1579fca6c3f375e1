"""Human-normalized scores: 0 is a random policy's mean return, 100 is a human's.

The returns of both, without discount, are in the tables of `data/`:

| file          | tasks            | source                                            |
|---------------|------------------|---------------------------------------------------|
| `dmlab30.csv` | levels, 30       | google-research/seed_rl, `dmlab/games.py`; the    |
|               |                  | same in google-deepmind/scalable_agent            |
| `atari57.csv` | games, 57        | google-deepmind/dqn_zoo, `dqn_zoo/atari_data.py`: |
|               |                  | episodes begin with up to 30 no-ops               |

DMLab-30 has two levels, `rooms_collect_good_objects` and
`rooms_exploit_deferred_effects`, each in a version to train on and one to test on.
Returns were published only for the versions to test on; by convention they score the
versions to train on too.

`Experiment.score` may be bound to any of the scores below. Each takes mean returns by
task and returns a number, or several by name; a benchmark's official score needs all
its tasks. A score is NaN if there is no task to score, or if a return is NaN.
"""

import csv
import importlib.resources
import math
from typing import Dict, Mapping, NamedTuple, Sequence

import numpy as np

from gtrxl_tf.settings import config


class Reference(NamedTuple):
  """Mean undiscounted returns on one task."""
  random: float
  human: float


def _load(file: str) -> Dict[str, Reference]:
  path = importlib.resources.files('gtrxl_tf.environments') / 'data' / file
  _, *rows = csv.reader(path.read_text(encoding='utf-8').splitlines())
  return {task: Reference(float(random), float(human)) for task, random, human in rows}


DMLAB_30 = _load('dmlab30.csv')  # In the order of IMPALA's code.
ATARI_57 = _load('atari57.csv')

# The two columns of GTrXL's Table 13.
MEMORY_LEVELS = (
    'rooms_select_nonmatching_object',
    'rooms_watermaze',
    'explore_obstructed_goals_small',
    'explore_goal_locations_small',
    'explore_object_rewards_few',
    'explore_obstructed_goals_large',
    'explore_goal_locations_large',
    'explore_object_rewards_many',
)
REACTIVE_LEVELS = tuple(level for level in DMLAB_30 if level not in MEMORY_LEVELS)


def human_normalized(returns: Mapping[str, float], table: Mapping[str, Reference]
                     ) -> Dict[str, float]:
  """Returns 100 * (return - random) / (human - random), by task, of mean returns."""
  unknown = [task for task in returns if task not in table]
  if unknown:
    raise ValueError(f'no human return is known for {", ".join(map(repr, unknown))}: '
                     f'expected tasks among {", ".join(map(repr, table))}')
  return {task: 100 * (value - table[task].random)
                / (table[task].human - table[task].random)
          for task, value in returns.items()}


@config.configurable
def dmlab30_scores(returns: Mapping[str, float]) -> Dict[str, float]:
  """Returns the columns of GTrXL's Table 1 and the two parts of its Figure 2.

  Capped, a level's score is at most 100: superhuman levels do not compensate for others.
  """
  scores = human_normalized(returns, DMLAB_30)
  memory, reactive = ([score for level, score in scores.items()
                       if (level in MEMORY_LEVELS) == is_memory] for is_memory in (True, False))
  return {'score': _mean(list(scores.values())),
          'score_capped': _mean(np.minimum(list(scores.values()), 100)),
          'score_memory': _mean(memory), 'score_reactive': _mean(reactive)}


@config.configurable
def atari57_score(returns: Mapping[str, float]) -> float:
  """Returns the median over the given games (GTrXL, appendix E)."""
  scores = human_normalized(returns, ATARI_57)
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
