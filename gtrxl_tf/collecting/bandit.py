"""UCB, a source for bandits."""

import numpy as np

from gtrxl_tf.collecting import source
from gtrxl_tf.environments import task_batch
from gtrxl_tf.settings import config


@config.configurable
class UCB(source.Source):
  """UCB1 (Auer et al., 2002): the arm with the highest upper confidence bound."""

  def __init__(self,
               tasks: task_batch.TaskBatch,
               num_steps: config.PositiveInt,
               seed: config.NonNegativeInt,
               width: config.NonNegativeFloat = 2.0):
    """Creates the source.

    Args:
      tasks: the tasks to play; every action is an arm, whatever the state.
      num_steps: steps per history; not used.
      seed: seeds the choice between equal bounds.
      width: c in mean + sqrt(c ln t / n), for n pulls of the arm among t; 2 is UCB1.
    """
    del num_steps
    self._width = width
    self._pulls = np.zeros((tasks.num_actions, tasks.num_tasks))
    self._sums = np.zeros_like(self._pulls)
    self._tasks = np.arange(tasks.num_tasks)
    self._random = np.random.default_rng(seed)

  def act(self, observation: np.ndarray, state: np.ndarray) -> np.ndarray:
    del observation, state
    pulls = np.maximum(self._pulls, 1)
    log = np.log(np.maximum(self._pulls.sum(axis=0), 1))
    bounds = self._sums / pulls + np.sqrt(self._width * log / pulls)
    bounds[self._pulls == 0] = np.inf
    return source.random_maximum(bounds, np.False_, self._random)

  def learn(self, state: np.ndarray, action: np.ndarray, outcome: task_batch.Outcome
            ) -> None:
    del state
    self._pulls[action, self._tasks] += 1
    self._sums[action, self._tasks] += outcome.reward
