"""Evaluates policies: by episodes here, by learning processes in `offline`.

All evaluators have one protocol, `Evaluator`. Training, the evaluator process and
`gtrxl evaluate` call nothing else.
"""

import math
import types
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Protocol, Sequence

from absl import logging
import numpy as np

from gtrxl_tf import environments
from gtrxl_tf.training import curves
from gtrxl_tf.training import rollout

# Steps without the end of an episode after which a warning says so.
_MANY_STEPS = 10_000
# The most environments that are played side by side.
NUM_ENVIRONMENTS = 50


class Evaluation(NamedTuple):
  """The results of episodes or learning processes: lists with an entry for each."""
  returns: List[float]
  successes: List[float]   # 1 or 0; NaN if the environment does not report success.
  tasks: List[int]         # The number of the task that was played.
  means: Dict[str, float]  # Keys are the evaluator's `columns`.
  lengths: Sequence[int] = ()  # Actions of each episode; none of learning processes.

  def __repr__(self) -> str:
    return describe(self, None)


class Evaluator(Protocol):
  """Evaluates one policy, whose weights may change between evaluations.

  Attributes:
    columns: the names of the means of an evaluation, as columns of `metrics.csv`.
  """
  columns: Sequence[str]

  def evaluate(self, should_stop: Callable[[], bool] = lambda: False,
               after_training: bool = False) -> Optional[Evaluation]:
    """Plays; returns None if it should stop. Some columns may need `after_training`."""

  def close(self) -> None:
    """Closes the environments, if there are any."""


class EpisodeEvaluator(Evaluator):
  """An `Evaluator` that plays episodes."""

  def __init__(self, policy: Any, environment: environments.BatchedEnvironment,
               num_episodes: int, task_names: Sequence[str] = ('',)):
    """Compiles the policy.

    Args:
      policy: a policy, or a SavedModel of one.
      environment: E environments, which it resets.
      num_episodes: episodes of an evaluation, rounded up to a multiple of E.
      task_names: the name of each task; one empty name if there is only one task.
    """
    self._task_names = [name for name in task_names if name]
    self.columns = [
        'return', 'success', 'episode_length', *(f'success_{name}' for name in self._task_names)]
    self._num_episodes = num_episodes
    self._environment = environment
    self._initial_state = policy.get_initial_state(environment.num_environments)
    self._rollout = rollout.Rollout(environment, policy.action, self._initial_state)

  def evaluate(self, should_stop: Callable[[], bool] = lambda: False,
               after_training: bool = False) -> Optional[Evaluation]:
    """Plays equally many episodes in each environment, or returns None if it should stop.

    Taking the first episodes that end, wherever they do, would favour short ones. The
    means are of return, success and length, and of the success in each of several tasks.
    """
    del after_training
    num = self._environment.num_environments
    self._rollout.restart(self._initial_state)
    each = -(-self._num_episodes // num)
    returns = [[] for _ in range(num)]
    successes = [[] for _ in range(num)]
    lengths, length = [[] for _ in range(num)], np.zeros(num, int)
    steps = 0  # Steps without the end of an episode; infinite after the first end.
    while min(map(len, returns)) < each:
      if should_stop():
        return None
      seen, _ = self._rollout.step()
      steps = math.inf if seen.last().any() else steps + 1
      warn_of_no_end(steps)
      length = np.where(seen.first(), 0, length + 1)
      for i in np.flatnonzero(seen.last()):
        returns[i].append(float(seen.episode_return[i]))
        successes[i].append(float(seen.episode_success[i]))
        lengths[i].append(int(length[i]))
    returns, successes, lengths = (np.array([row[:each] for row in played])
                                   for played in (returns, successes, lengths))
    per_task = [np.mean(successes[self._environment.tasks == task])
                for task in range(len(self._task_names))]
    means = map(float, (*map(np.mean, (returns, successes, lengths)), *per_task))
    return Evaluation(
        returns.ravel().tolist(), successes.ravel().tolist(),
        np.repeat(self._environment.tasks, each).tolist(),
        dict(zip(self.columns, means)), lengths.ravel().tolist())

  def close(self) -> None:
    self._environment.close()


def warn_of_no_end(steps: float) -> None:
  """Logs a warning once `steps` have been played and no episode has ended."""
  if steps == _MANY_STEPS:
    logging.warning(
        'evaluation: no episode has ended after %d steps: if they never do, '
        'Experiment.wrappers = [@StepLimit] with StepLimit.steps cuts them off', steps)


def describe(evaluation: Evaluation, informed: Optional[float],
             task_names: Sequence[str] = ('',),
             scores: Mapping[str, float] = types.MappingProxyType({})) -> str:
  """Describes an evaluation in a line, and each of several tasks in another."""
  num = len(evaluation.returns)
  line = (f'Evaluation over {num} episodes: return '
          f'{curves.mean_and_error(evaluation.returns)}{" (s.e.)" * (num > 1)}')
  if informed is not None:
    line += f', informed policy {informed:.2f}'
  if not np.any(np.isnan(evaluation.successes)):
    line += f', success {np.mean(evaluation.successes):.2f}'
  if evaluation.lengths:
    line += f', length {np.mean(evaluation.lengths):.1f}'
  line += ''.join(f', {name} {score:.1f}' for name, score in scores.items())
  lines = [line]
  if len(task_names) > 1:
    for task, name in enumerate(task_names):
      played = np.array(evaluation.tasks) == task
      line = (f'  {name}: {np.mean(np.array(evaluation.returns)[played]):.2f} over '
              f'{np.sum(played)} episodes')
      success = np.mean(np.array(evaluation.successes)[played])
      lines.append(line + ('' if np.isnan(success) else f', success {success:.2f}'))
  return '\n'.join(lines)
