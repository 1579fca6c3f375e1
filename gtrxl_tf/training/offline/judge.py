"""Judges, which evaluate the policy of an offline trainer."""

from typing import Any, Dict, Optional, Sequence

import numpy as np
from typing_extensions import Protocol

from gtrxl_tf.training import evaluation as evaluation_lib
from gtrxl_tf.training import experiment as experiment_lib


class Judge(Protocol):
  """Evaluates one policy, whose weights may change between evaluations.

  Attributes:
    columns: the names of the numbers that `evaluate` returns.
    evaluation: the last evaluation.
  """
  columns: Sequence[str]
  evaluation: Optional[evaluation_lib.Evaluation]

  def evaluate(self) -> Dict[str, float]:
    """Plays, and returns a number for each of the columns."""


class EpisodeJudge:
  """A `Judge` that plays episodes of an experiment's tasks."""

  def __init__(self, experiment: experiment_lib.Experiment, policy: Any):
    """Compiles the policy, whose weights may change.

    Args:
      experiment: the experiment, whose tasks are played.
      policy: a policy, or a SavedModel of one.
    """
    self.evaluation: Optional[evaluation_lib.Evaluation] = None
    self._experiment = experiment
    names = [name for name in experiment.task_names if name]
    self.columns = ['return', 'success', *(f'success_{name}' for name in names)]
    self._evaluator = evaluation_lib.Evaluator(
        policy, experiment.make_evaluation_environments())

  def evaluate(self) -> Dict[str, float]:
    """Plays, and returns mean return and success, and the success in each task."""
    self.evaluation = played = self._evaluator.play(
        self._experiment.evaluation_episodes)
    successes, tasks = np.array(played.successes), np.array(played.tasks)
    of_tasks = [np.mean(successes[tasks == task])
                for task, name in enumerate(self._experiment.task_names) if name]
    return dict(zip(self.columns, map(float, [
        np.mean(played.returns), np.mean(successes), *of_tasks])))
