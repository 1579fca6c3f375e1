"""Plays episodes with a SavedModel, apart from training."""

import pathlib
from typing import List, NamedTuple

import numpy as np
import tensorflow as tf

from gtrxl_tf import environments
from gtrxl_tf.training import rollout as rollout_lib


# Of the seeds of environments: no actor's.
STREAM = 1
# Played side by side, at most.
NUM_ENVIRONMENTS = 50


class Evaluation(NamedTuple):
  """One entry an episode."""
  returns: List[float]
  successes: List[float]  # 1 or 0; NaN where the environment does not say.
  tasks: List[int]        # Which of the environments' tasks was played.


def evaluate(policy: pathlib.Path, environment: environments.BatchedEnvironment,
             num_episodes: int) -> Evaluation:
  """Plays at least `num_episodes` episodes, as many in each environment.

  As many in each, and not the first that end, of which too many would be short ones.

  Args:
    policy: folder of a SavedModel that `serving.export` wrote.
    environment: E environments; they are closed.
    num_episodes: rounded up to a multiple of E.
  """
  loaded = tf.saved_model.load(str(policy))
  num = environment.num_environments
  rollout = rollout_lib.Rollout(
      environment, loaded.action, loaded.get_initial_state(num))
  each = -(-num_episodes // num)
  returns = [[] for _ in range(num)]
  successes = [[] for _ in range(num)]
  while min(map(len, returns)) < each:
    seen, _ = rollout.step()
    for i in np.flatnonzero(seen.last()):
      returns[i].append(float(seen.episode_return[i]))
      successes[i].append(float(seen.episode_success[i]))
  environment.close()
  flatten = lambda rows: [x for row in rows for x in row[:each]]
  return Evaluation(flatten(returns), flatten(successes),
                    np.repeat(environment.tasks, each).tolist())
