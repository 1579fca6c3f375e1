"""Admission of unrolls to training: none too old, none twice."""

import collections
import json
import math
from typing import Dict, Iterable, List

import dm_env
import numpy as np
import tensorflow as tf

# Attributes that `serialize` writes: numbers, and numbers of episodes.
_COUNTERS = ('environment_steps', 'unrolls', 'stale', 'duplicate', 'oldest')
_EPISODES = ('returns', 'successes', 'lengths')


class Ledger(tf.train.experimental.PythonState):
  """Decides which unrolls are trained on, and counts them.

  The ledger is part of the learner's checkpoint. A restarted learner therefore does not
  train again on unrolls that its restored weights were trained on, even if the queue of
  a restarted server still holds them.

  If several workers train together, each has a ledger of the unrolls that it took. The
  checkpoint has the ledgers of all workers. A restored worker continues its own counts
  and refuses unrolls that any worker was trained on.

  An unroll's age is the number of learner steps since the weights that acted in it were
  the newest target network. It is measured when the unroll is taken from the queue. The
  rest of the pipeline holds at most one batch, so training follows within one more
  step, and the bound allows for that step.

    >>> ledger = Ledger(max_age=10)
    >>> ended = np.array([[np.nan], [1.0]])  # One episode, with a return of 1.
    >>> unroll = dict(unroll_id=0, target_step=0, step_type=np.array([[1], [2]]),
    ...               episode_return=ended, episode_success=ended, task=np.array([0]))
    >>> ledger.admit(**unroll), ledger.admit(**unroll)  # The second is a repetition.
    (True, False)
    >>> ledger.environment_steps, list(ledger.returns)
    (2, [1.0])

  With a replay table no unroll is too old. Each is then admitted once, at any age, even
  if its weights are newer than the learner: such weights are those of a learner that was
  killed. The ages are those of the unrolls sampled.

  Attributes:
    learner_step: the learner's step count, which the learner keeps current.
    environment_steps: actions taken in admitted unrolls.
    unrolls: number of admitted items.
    stale: number of items refused because of their age.
    duplicate: number of items refused as repetitions.
    max_age: the bound: an admitted unroll is trained on at an age of at most this;
      infinite with a replay table.
    oldest: the greatest age at which an admitted unroll is trained on.
    returns: returns of the last `window` episodes that ended in admitted unrolls.
    successes: 1 or 0 for these episodes, where the environment reports success.
    task_returns: for each task, returns of its last `window` episodes.
    lengths: actions of the last `window` episodes of which no unroll was refused.
  """

  def __init__(self, max_age: float, num_tasks: int = 1, window: int = 100,
               worker: int = 0, overlap: int = 0):
    """Creates an empty ledger.

    Args:
      max_age: see the attribute.
      num_tasks: number of tasks.
      window: number of returns to keep.
      worker: number of this worker, if several train together.
      overlap: the actions that an unroll shares with the one before. They are counted
        once; in the first unroll of a stream they are not counted at all.
    """
    self.max_age = max_age
    self._overlap = overlap
    self._worker = worker
    self._workers: List[str] = []
    self._newest_of_writer = {}
    # Since the last call of `gauges`: each writer's environment steps, and ages.
    self._steps_of_writer = collections.Counter()
    # Each writer's actions in its present episodes, [E]; NaN where it is not known.
    self._actions_of_writer: Dict[int, np.ndarray] = {}
    self._num_ages = self._sum_of_ages = 0
    self.learner_step = self.environment_steps = 0
    self.unrolls = self.stale = self.duplicate = self.oldest = 0
    self.returns, self.successes, self.lengths, *self.task_returns = (
        collections.deque(maxlen=window) for _ in range(3 + num_tasks))

  @property
  def refused(self) -> int:
    """How many items were refused."""
    return self.stale + self.duplicate

  @property
  def taken(self) -> int:
    """How many items were taken from the queue, admitted or refused."""
    return self.unrolls + self.refused

  def admit(self, unroll_id: int, target_step: int, step_type: np.ndarray,
            episode_return: np.ndarray, episode_success: np.ndarray, task: np.ndarray
            ) -> bool:
    """Returns whether to train on an unroll. Call once per item, in queue order.

    Args:
      unroll_id: the unroll's id. A writer's ids increase, so an id that is not greater
        than the writer's last one is a repetition.
      target_step: the learner step whose weights acted.
      step_type: rows 1 to T, `[T, E]`.
      episode_return: the same rows, `[T, E]`; NaN except where an episode ended.
      episode_success: as `episode_return`.
      task: the task of each environment, `[E]`.
    """
    writer, number = divmod(int(unroll_id), 2**32)
    if number <= self._newest_of_writer.get(writer, -1):
      self.duplicate += 1
      return False
    if number != self._newest_of_writer.get(writer, -1) + 1:
      self._actions_of_writer.pop(writer, None)
    self._newest_of_writer[writer] = number
    if self.max_age < math.inf:
      age = self.learner_step - int(target_step)
      # A negative age: a learner that was killed published these weights.
      if not 0 <= age < self.max_age:
        self.stale += 1
        self._actions_of_writer.pop(writer, None)
        return False
      self._count_age(age)
    self.unrolls += 1
    step_type, episode_return, episode_success = (
        x[self._overlap:] for x in (step_type, episode_return, episode_success))
    steps = int(np.sum(step_type != int(dm_env.StepType.FIRST)))
    self.environment_steps += steps
    self._steps_of_writer[writer] += steps
    for row, environment in zip(*np.nonzero(~np.isnan(episode_return))):
      value = float(episode_return[row, environment])
      self.returns.append(value)
      self.task_returns[task[environment]].append(value)
    self.successes.extend(episode_success[~np.isnan(episode_success)].tolist())
    self._count_actions(writer, step_type, episode_return)
    return True

  def _count_actions(self, writer: int, step_type: np.ndarray, episode_return: np.ndarray
                     ) -> None:
    """Adds the lengths of the episodes that ended."""
    actions = self._actions_of_writer.get(writer, np.full(step_type.shape[1], np.nan))
    ends = ~np.isnan(episode_return)
    for row, types in enumerate(step_type):
      actions = np.where(types == int(dm_env.StepType.FIRST), 0, actions + 1)
      if ends[row].any():
        ended = actions[ends[row]]
        self.lengths.extend(ended[~np.isnan(ended)].tolist())
    self._actions_of_writer[writer] = actions

  def count_ages(self, target_steps: np.ndarray) -> None:
    """Counts the ages of items of a replay table, which are trained on next."""
    for step in target_steps.flat:
      self._count_age(max(self.learner_step - int(step), 0))

  def _count_age(self, age: int) -> None:
    self._num_ages += 1
    self._sum_of_ages += age
    self.oldest = max(self.oldest, age + 1)

  def gauges(self, seconds: float) -> Dict[str, float]:
    """Returns statistics of the unrolls admitted in the `seconds` since the last call.

    `data_age` is their mean age in learner steps, and `actors` the number of writers
    that they came from. The others are the rates of the slowest and fastest writer, in
    environment steps per second.
    """
    rates = [steps / seconds for steps in self._steps_of_writer.values()] or [math.nan]
    gauges = {'data_age': self._sum_of_ages / (self._num_ages or math.nan),
              'actors': len(self._steps_of_writer),
              'slowest_actor_steps_per_second': min(rates),
              'fastest_actor_steps_per_second': max(rates)}
    self._steps_of_writer.clear()
    self._num_ages = self._sum_of_ages = 0
    return gauges

  def own_state(self) -> str:
    """Returns the contents of this worker's ledger, as JSON."""
    return json.dumps({
        'newest_of_writer': list(self._newest_of_writer.items()),
        **{name: list(getattr(self, name)) for name in _EPISODES},
        'task_returns': [list(x) for x in self.task_returns],
        **{name: getattr(self, name) for name in _COUNTERS}})

  def set_workers(self, states: Iterable[str]) -> None:
    """Sets the `own_state` of all workers, in their order, for the next checkpoint."""
    self._workers = list(states)

  def serialize(self) -> str:
    workers = [json.loads(worker) for worker in self._workers]
    # This worker's ledger may have changed since they were exchanged.
    workers[self._worker:self._worker + 1] = [json.loads(self.own_state())]
    return json.dumps(workers)

  def deserialize(self, string_value: str) -> None:
    workers = json.loads(string_value)
    if self._worker < len(workers):
      self.set_workers(map(json.dumps, workers))  # For a checkpoint before an exchange.
      state = workers[self._worker]
    else:  # There were fewer workers.
      self._workers = []
      state = json.loads(Ledger(self.max_age, len(self.task_returns)).own_state())
    self._newest_of_writer = {}
    for worker in workers:
      for writer, newest in worker['newest_of_writer']:
        self._newest_of_writer[writer] = max(
            newest, self._newest_of_writer.get(writer, -1))
    for values, kept in (*((getattr(self, name), state.get(name, [])) for name in _EPISODES),
                         *zip(self.task_returns, state['task_returns'])):
      values.clear()
      values.extend(kept)
    for name in _COUNTERS:
      setattr(self, name, state[name])
