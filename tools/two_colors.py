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
from typing import Any, Dict, Iterable, Iterator, List, Sequence

import dm_env
import numpy as np

from gtrxl_tf import environments
from gtrxl_tf.launch import prepare
from gtrxl_tf.settings import seeds
from gtrxl_tf.training import evaluation
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import run_folder
import tools


class Counted(environments.Wrapper):
  """A `VizdoomTwoColors` that keeps counts of the items taken.

  Attributes:
    episodes: for each episode that ended, integers [I, 2]: right and wrong items (last
      axis) in I intervals.
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

  def reset(self) -> dm_env.TimeStep:
    return self._counted(super().reset())

  def step(self, action) -> dm_env.TimeStep:
    return self._counted(super().step(action))

  def _counted(self, time_step: dm_env.TimeStep) -> dm_env.TimeStep:
    if time_step.first():
      self._counts = np.zeros([len(self._starts) + 1, 2], int)
      self._actions = 0  # In this episode.
    else:
      interval = np.searchsorted(self._starts, self._actions, side='right')
      self._counts[interval] += self.items_taken - self._counts.sum(axis=0)
      self._actions += 1
    if time_step.last():
      self.episodes.append(self._counts)
    return time_step


def table(experiment: experiment_lib.Experiment, policy: Any, starts: Sequence[int],
          num_episodes: int) -> Iterator[Dict[str, str]]:
  """Plays episodes of `VizdoomTwoColors`, and yields rows with the shares of right items.

  There is a row for each task, and a column for each interval, with the numbers of right
  and wrong items in brackets. The last row has the means of the tasks' shares. An agent
  that always takes items of one colour has a mean of 0.5 there, however long it lives
  under each pillar. A share of no items is nan, and so is a mean with such a share.

  Args:
    experiment: an experiment, whose tasks are played.
    policy: a policy.
    starts: the starts of the intervals, see `Counted`.
    num_episodes: rounded up to a multiple of 50 if there are more than 50.
  """
  made: List[Counted] = []

  def counted(environment: dm_env.Environment) -> Counted:
    made.append(Counted(environment, starts))
    return made[-1]

  environment = experiment.make_environments(
      min(num_episodes, evaluation.NUM_ENVIRONMENTS), seeds.Stream.EVALUATION,
      wrap=counted)
  played = evaluation.EpisodeEvaluator(policy, environment, num_episodes).evaluate()
  environment.close()
  each = len(played.returns) // len(made)
  items = np.concatenate([of_one.episodes[:each] for of_one in made])
  returns, tasks = np.array(played.returns), np.array(played.tasks)

  def row(name: str, chosen: np.ndarray, cells: Iterable[str]) -> Dict[str, str]:
    return {'pillar': name, 'episodes': str(chosen.sum()),
            'return': f'{returns[chosen].mean():.2f}',
            **dict(zip((f'from {start}' for start in (0, *starts)), cells))}

  shares = []
  for task, name in enumerate(experiment.task_names):
    taken = items[tasks == task].sum(axis=0)
    with np.errstate(invalid='ignore'):
      shares.append(taken[:, 0] / taken.sum(axis=1))
    yield row(name, tasks == task, (
        f'{share:.2f} ({right}, {wrong})' for share, (right, wrong) in zip(shares[-1], taken)))
  yield row('mean', tasks >= 0, (f'{share:.2f}' for share in np.mean(shares, axis=0)))


def main(root_dir: str, starts: str, *bindings: str) -> None:
  """Prints the table for a run's policy, of 50 episodes of each task.

  Args:
    root_dir: the run's folder.
    starts: the starts of the intervals, see `Counted`, separated by commas.
    *bindings: settings that override the run's.
  """
  folder = run_folder.RunFolder(root_dir)
  experiment = prepare.prepare([str(folder.config)], list(bindings))
  tools.print_table(table(
      experiment, experiment.restore_policy(folder), [*map(int, starts.split(','))],
      50 * len(experiment.task_names)))


if __name__ == '__main__':
  main(*sys.argv[1:])
