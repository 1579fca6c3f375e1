"""Plays episodes with a policy, apart from training."""

import pathlib
from typing import Any, Callable, List, NamedTuple, Optional

import numpy as np
import tensorflow as tf

from gtrxl_tf import environments
from gtrxl_tf.training import rollout as rollout_lib
from gtrxl_tf.training import tasks


# Of the seeds of environments: no actor's.
STREAM = 1
# Played side by side, at most.
NUM_ENVIRONMENTS = 50


def make_environments(experiment: tasks.TaskExperiment
                      ) -> environments.BatchedEnvironment:
  """As many of an experiment's environments as its evaluation plays side by side, each
  of its tasks among them."""
  count = min(NUM_ENVIRONMENTS, experiment.evaluation_episodes)
  return experiment.make_environments(max(count, len(experiment.task_names)), STREAM)


class Evaluation(NamedTuple):
  """One entry an episode."""
  returns: List[float]
  successes: List[float]  # 1 or 0; NaN where the environment does not say.
  tasks: List[int]        # Which of the environments' tasks was played.


class Evaluator:
  """Plays episodes with one policy, as often as asked: its weights may change."""

  def __init__(self, policy: Any, environment: environments.BatchedEnvironment):
    """Compiles the policy.

    Args:
      policy: a TF-Agents policy, or one that was loaded.
      environment: E environments, which it resets.
    """
    self._environment = environment
    self._initial_state = policy.get_initial_state(environment.num_environments)
    self._rollout = rollout_lib.Rollout(environment, policy.action, self._initial_state)

  def play(self, num_episodes: int, should_stop: Callable[[], bool] = lambda: False
           ) -> Optional[Evaluation]:
    """Plays at least `num_episodes` episodes, as many in each environment.

    As many in each, and not the first that end, of which too many would be short ones.

    Args:
      num_episodes: rounded up to a multiple of E.
      should_stop: asked before every step.

    Returns:
      None if it should stop before the end.
    """
    num = self._environment.num_environments
    self._rollout.restart(self._initial_state)
    each = -(-num_episodes // num)
    returns = [[] for _ in range(num)]
    successes = [[] for _ in range(num)]
    while min(map(len, returns)) < each:
      if should_stop():
        return None
      seen, _ = self._rollout.step()
      for i in np.flatnonzero(seen.last()):
        returns[i].append(float(seen.episode_return[i]))
        successes[i].append(float(seen.episode_success[i]))
    flatten = lambda rows: [x for row in rows for x in row[:each]]
    return Evaluation(flatten(returns), flatten(successes),
                      np.repeat(self._environment.tasks, each).tolist())


def evaluate(policy: pathlib.Path, environment: environments.BatchedEnvironment,
             num_episodes: int, should_stop: Callable[[], bool] = lambda: False
             ) -> Optional[Evaluation]:
  """Plays `num_episodes` episodes with the SavedModel in the folder `policy`.

  The environments are closed. See `Evaluator.play`.
  """
  evaluation = Evaluator(
      tf.saved_model.load(str(policy)), environment).play(num_episodes, should_stop)
  environment.close()
  return evaluation
