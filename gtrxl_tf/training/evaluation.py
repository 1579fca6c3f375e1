"""Evaluates a policy by playing episodes that are not trained on."""

import math
import pathlib
import types
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Sequence

from absl import logging
import numpy as np

from gtrxl_tf import environments
from gtrxl_tf.serving import exported
from gtrxl_tf.training import rollout

# Steps without the end of an episode after which a warning says so.
_MANY_STEPS = 10_000
# The most environments that are played side by side.
NUM_ENVIRONMENTS = 50


class Evaluation(NamedTuple):
  """Episodes that were played, one entry for each."""
  returns: List[float]
  successes: List[float]  # 1 or 0; NaN if the environment does not report success.
  tasks: List[int]        # The number of the task that was played.


class Evaluator:
  """Plays episodes with one policy, whose weights may change in between."""

  def __init__(self, policy: Any, environment: environments.BatchedEnvironment):
    """Compiles the policy.

    Args:
      policy: a policy, or a SavedModel of one.
      environment: E environments, which it resets.
    """
    self._environment = environment
    self._initial_state = policy.get_initial_state(environment.num_environments)
    self._rollout = rollout.Rollout(environment, policy.action, self._initial_state)

  def play(self, num_episodes: int, should_stop: Callable[[], bool] = lambda: False
           ) -> Optional[Evaluation]:
    """Plays at least `num_episodes` episodes, equally many in each environment.

    Taking the first episodes that end, wherever they do, would favour short ones.

    Args:
      num_episodes: rounded up to a multiple of E.
      should_stop: called before every step.

    Returns:
      None if it should stop before the end.
    """
    num = self._environment.num_environments
    self._rollout.restart(self._initial_state)
    each = -(-num_episodes // num)
    returns = [[] for _ in range(num)]
    successes = [[] for _ in range(num)]
    steps = 0  # Since the beginning, until an episode ends.
    while min(map(len, returns)) < each:
      if should_stop():
        return None
      seen, _ = self._rollout.step()
      steps = math.inf if seen.last().any() else steps + 1
      if steps == _MANY_STEPS:
        logging.warning(
            'evaluation: no episode has ended after %d steps: if they never do, '
            'Experiment.wrappers = [@StepLimit] with StepLimit.steps cuts them off', steps)
      for i in np.flatnonzero(seen.last()):
        returns[i].append(float(seen.episode_return[i]))
        successes[i].append(float(seen.episode_success[i]))
    return Evaluation(
        [x for row in returns for x in row[:each]],
        [x for row in successes for x in row[:each]],
        np.repeat(self._environment.tasks, each).tolist())


def evaluate(policy: pathlib.Path, environment: environments.BatchedEnvironment,
             num_episodes: int, should_stop: Callable[[], bool] = lambda: False
             ) -> Optional[Evaluation]:
  """Plays `num_episodes` episodes with the SavedModel in the folder `policy`, and
  closes the environments. See `Evaluator.play`.

  Raises:
    config.ConfigError: the folder is damaged.
  """
  evaluation = Evaluator(
      exported.load(policy), environment).play(num_episodes, should_stop)
  environment.close()
  return evaluation


def describe(evaluation: Evaluation, informed: Optional[float],
             task_names: Sequence[str] = ('',),
             scores: Mapping[str, float] = types.MappingProxyType({})) -> str:
  """Describes an evaluation in a line, and each of several tasks in another."""
  num = len(evaluation.returns)
  error = np.std(evaluation.returns) / math.sqrt(num)
  line = (f'Evaluation over {num} episodes: return '
          f'{np.mean(evaluation.returns):.2f} ± {error:.2f} (s.e.)')
  if informed is not None:
    line += f', informed policy {informed:.2f}'
  if not np.any(np.isnan(evaluation.successes)):
    line += f', success {np.mean(evaluation.successes):.2f}'
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
