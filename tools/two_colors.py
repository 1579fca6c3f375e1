"""Counts the items that a run's policy takes in ViZDoom-Two-Colors, by intervals.

The intervals here are actions 0 to 36, 37 to 89, and from 90 on:

  python -m tools.two_colors runs/two_colors/rate 37,90

A Decision Transformer with a context of C steps does not see a pillar of P steps in
actions from P + C - 1 on. Further arguments override the run's settings. For
comparison, this plays without a pillar, so that no agent can know the colour:

  python -m tools.two_colors runs/two_colors/rate 37,90 \\
      'VizdoomTwoColors.pillar_steps = 0'
"""

import sys
from typing import Any, List, NamedTuple, Sequence

import dm_env
import numpy as np

from gtrxl_tf import environments
from gtrxl_tf.analysis import comparison
from gtrxl_tf.launch import prepare
from gtrxl_tf.settings import seeds
from gtrxl_tf.training import evaluation
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import run_folder


class Counts(NamedTuple):
  """The items that were taken in E episodes.

  Attributes:
    items: integers [E, I, 2]: right and wrong items (last axis) in I intervals.
    returns: [E], of the episodes.
    tasks: [E], the number of each episode's task.
  """
  items: np.ndarray
  returns: np.ndarray
  tasks: np.ndarray


class Counted(environments.Wrapper):
  """A `VizdoomTwoColors` that keeps counts of the items taken.

  Attributes:
    episodes: for each episode that ended, integers [I, 2] as in `Counts`.
  """

  def __init__(self, environment: environments.VizdoomTwoColors, starts: Sequence[int]):
    """Wraps `environment`.

    Args:
      environment: the environment whose items are counted.
      starts: the first action of each interval except the first, counted from 0: I - 1
        increasing numbers.
    """
    super().__init__(environment)
    self.episodes: List[np.ndarray] = []
    self._starts = starts
    self._num_steps = 0
    self._taken = np.zeros(2, int)
    self._counts = np.zeros([len(starts) + 1, 2], int)

  def reset(self) -> dm_env.TimeStep:
    return self._counted(super().reset())

  def step(self, action) -> dm_env.TimeStep:
    return self._counted(super().step(action))

  def _counted(self, time_step: dm_env.TimeStep) -> dm_env.TimeStep:
    if time_step.first():
      self._num_steps = 0
      self._taken = np.zeros_like(self._taken)
      self._counts = np.zeros_like(self._counts)
      return time_step
    taken = np.array(self.items_taken)
    interval = np.searchsorted(self._starts, self._num_steps, side='right')
    self._counts[interval] += taken - self._taken
    self._taken = taken
    self._num_steps += 1
    if time_step.last():
      self.episodes.append(self._counts)
    return time_step


def count(experiment: experiment_lib.Experiment, policy: Any, starts: Sequence[int],
          num_episodes: int) -> Counts:
  """Plays `num_episodes` episodes and counts the items that are taken.

  Args:
    experiment: an experiment on `VizdoomTwoColors`, whose tasks are played.
    policy: a policy.
    starts: the starts of the intervals, see `Counted`.
    num_episodes: rounded up to a multiple of 50 if there are more than 50.
  """
  made = []

  def counted(environment: dm_env.Environment) -> Counted:
    made.append(Counted(environment, starts))
    return made[-1]

  environment = experiment.make_environments(
      min(num_episodes, evaluation.NUM_ENVIRONMENTS), seeds.Stream.EVALUATION,
      wrap=counted)
  played = evaluation.EpisodeEvaluator(
      policy, environment, num_episodes).evaluate()
  environment.close()
  each = len(played.returns) // len(made)
  items = np.concatenate([of_one.episodes[:each] for of_one in made])
  return Counts(items, np.array(played.returns), np.array(played.tasks))


def describe(counts: Counts, starts: Sequence[int], task_names: Sequence[str]) -> str:
  """Returns a table of the share of right items, with a row for each task.

  There is a column for each interval, with the numbers of right and wrong items in
  brackets. The last row has the means of the tasks' shares. An agent that always takes
  items of one colour has a mean of 0.5 there, however long it lives under each pillar.
  A share of no items is nan, and so is a mean with such a share.
  """
  rows = [['pillar', 'episodes', 'return', *(f'from {start}' for start in (0, *starts))]]
  rows.append(['---', *['--:'] * (len(rows[0]) - 1)])
  shares = []
  for task, name in enumerate(task_names):
    chosen = counts.tasks == task
    taken = counts.items[chosen].sum(axis=0)
    with np.errstate(invalid='ignore'):
      shares.append(taken[:, 0] / taken.sum(axis=1))
    cells = [name, str(chosen.sum()), f'{counts.returns[chosen].mean():.2f}']
    cells += [f'{share:.2f} ({right}, {wrong})'
              for share, (right, wrong) in zip(shares[-1], taken)]
    rows.append(cells)
  rows.append(['mean', str(len(counts.tasks)), f'{counts.returns.mean():.2f}',
               *(f'{share:.2f}' for share in np.mean(shares, axis=0))])
  return comparison.markdown(rows)


def main(root_dir: str, starts: str, *bindings: str) -> None:
  """Prints the table for a run's policy, of 50 episodes of each task.

  Args:
    root_dir: the run's folder.
    starts: the starts of the intervals, see `Counted`, separated by commas.
    *bindings: settings that override the run's.
  """
  folder = run_folder.RunFolder(root_dir)
  experiment = prepare.prepare([str(folder.config)], list(bindings))
  policy = experiment.restore_policy(folder)
  names = experiment.task_names
  numbers = [int(start) for start in starts.split(',')]
  print(describe(count(experiment, policy, numbers, 50 * len(names)), numbers, names))


if __name__ == '__main__':
  main(*sys.argv[1:])
