"""What an experiment, online or offline, plays: one task or several."""

from typing import Any, Callable, List, Mapping, Optional, Sequence

import dm_env
import numpy as np

from gtrxl_tf import environments


class TaskExperiment:
  """The part of an experiment that knows its environments.

  Attributes:
    observation_spec: of an environment.
    action_spec: of an environment.
    evaluation_episodes: episodes an evaluation, of all tasks together.
    seed: of the whole experiment.
  """

  def __init__(self, environment: Callable[..., dm_env.Environment],
               tasks: Optional[Mapping[str, Sequence[Any]]],
               score: Optional[Callable[[Mapping[str, float]], float]],
               evaluation_episodes: int, seed: int):
    """Makes an environment, to see what is to be seen and done there.

    Args:
      environment: makes an environment; called with `seed`. Any `dm_env.Environment`.
      tasks: several tasks: the setting of `environment` in which they differ, and its
        values, as in `{'level': ('rooms_watermaze', 'skymaze')}`.
      score: from the mean return of each task, by the value's name, to one number.
      evaluation_episodes: see above.
      seed: see above.
    """
    self._task_settings = environments.task_settings(type(self).__name__, tasks)
    self._environment = environment
    self._score = score
    self.evaluation_episodes = evaluation_episodes
    self.seed = seed
    prototype = self.make_environments(1, 0)
    self.observation_spec = prototype.observation_spec()
    self.action_spec = prototype.action_spec()
    prototype.close()

  @property
  def task_names(self) -> List[str]:
    """Of each task; one empty name if there is only one."""
    return [str(*settings.values()) if settings else ''
            for settings in self._task_settings]

  def make_environments(self, count: int, *stream: int, first: int = 0
                        ) -> environments.BatchedEnvironment:
    """`count` environments, seeded by the experiment's seed and the `stream`.

    Args:
      count: E.
      *stream: others for every batch of environments in the run.
      first: number of the first environment, which decides the tasks they play.
    """
    seeds = np.random.SeedSequence([self.seed, *stream]).generate_state(count)
    tasks = [i % len(self._task_settings) for i in range(first, first + count)]
    return environments.BatchedEnvironment(
        [self._environment(seed=int(seed), **self._task_settings[task])
         for seed, task in zip(seeds, tasks)], tasks)

  def informed_return(self, num_episodes: int = 100) -> Optional[float]:
    """Mean return of the environments' informed policy in so many episodes of each
    task, if there is such a policy."""
    made = [self._environment(seed=self.seed, **settings)
            for settings in self._task_settings]
    if not all(isinstance(environment, environments.MemoryTask)
               for environment in made):
      return None
    return float(np.mean([environments.informed_return(environment, num_episodes)
                          for environment in made]))

  def score_of(self, returns: Sequence[float], tasks: Sequence[int]) -> Optional[float]:
    """The experiment's score: one number for episodes of all tasks.

    Args:
      returns: of episodes.
      tasks: which task each episode was of.

    Returns:
      None if the experiment has no score, NaN if some task has no episode yet.
    """
    if self._score is None:
      return None
    by_task = {name: [] for name in self.task_names}
    for value, task in zip(returns, tasks):
      by_task[self.task_names[task]].append(value)
    if not all(by_task.values()):
      return float('nan')
    return float(self._score({name: np.mean(x) for name, x in by_task.items()}))
