"""The learner's book on what came in: nothing old, nothing twice."""

import collections
import json
import math
from typing import Dict

import dm_env
import numpy as np
import tensorflow as tf

# Of what `serialize` writes, beside what it takes apart.
_COUNTERS = ('environment_steps', 'unrolls', 'stale', 'duplicate', 'oldest')


class Ledger(tf.train.experimental.PythonState):
  """Admits unrolls and counts.

  It is a part of the learner's checkpoint: a learner that was killed does not train
  again on what is in the weights that it goes on with, though the queue of a server
  that was started again may have it.

  An unroll's age is the number of learner steps since the weights that acted in it
  were the newest target network. It is read when the unroll is taken from the queue;
  the pipeline behind holds one batch at most, so an unroll is trained on within one
  more step, for which the bound leaves room.

  Attributes:
    learner_step: the learner's own, which it keeps current.
    environment_steps: actions taken in the unrolls that were admitted.
    unrolls: how many items were admitted, how many refused as `stale` or `duplicate`.
    max_age: the bound: what is admitted is trained on before it is so old.
    oldest: the greatest age, so counted, of what was admitted.
    returns: of the last episodes that ended in what was admitted, up to `window`.
    successes: 1 or 0 of the same, where the environment says so.
    task_returns: the same as `returns` for each task, up to `window` of each.
  """

  def __init__(self, max_age: int, num_tasks: int = 1, window: int = 100):
    self.max_age = max_age
    self._newest_of_writer = {}
    self._heard = collections.Counter()  # Environment steps of each writer, and
    self._ages = []                      # ages, since `gauges` was asked.
    self.learner_step = 0
    self.environment_steps = 0
    self.unrolls = 0
    self.stale = 0
    self.duplicate = 0
    self.oldest = 0
    self.returns = collections.deque(maxlen=window)
    self.successes = collections.deque(maxlen=window)
    self.task_returns = [collections.deque(maxlen=window) for _ in range(num_tasks)]

  @property
  def refused(self) -> int:
    """How many items were refused."""
    return self.stale + self.duplicate

  @property
  def taken(self) -> int:
    """How many items were taken from the queue, admitted or refused."""
    return self.unrolls + self.refused

  def admit(self, unroll_id, target_step, step_type, episode_return,
            episode_success, task) -> bool:
    """Whether to train on an unroll; called once for each, in the queue's order.

    Args:
      unroll_id: of the unroll. A writer's ids grow, so what is not greater than the
        last is a repetition.
      target_step: the learner step whose weights acted.
      step_type: `[T, E]`, rows 1 to T.
      episode_return: `[T, E]`, the same rows; NaN but where an episode ended.
      episode_success: `[T, E]`, the same.
      task: `[E]`, the tasks that were played.
    """
    writer, number = divmod(int(unroll_id), 2**32)
    if number <= self._newest_of_writer.get(writer, -1):
      self.duplicate += 1
      return False
    self._newest_of_writer[writer] = number
    age = self.learner_step - int(target_step)
    # A negative age is that of weights which a killed learner took with it.
    if not 0 <= age < self.max_age:
      self.stale += 1
      return False
    self.oldest = max(self.oldest, age + 1)
    self.unrolls += 1
    steps = int(np.sum(step_type != int(dm_env.StepType.FIRST)))
    self.environment_steps += steps
    self._heard[writer] += steps
    self._ages.append(age)
    for row, environment in zip(*np.nonzero(~np.isnan(episode_return))):
      value = float(episode_return[row, environment])
      self.returns.append(value)
      self.task_returns[task[environment]].append(value)
    self.successes.extend(episode_success[~np.isnan(episode_success)].tolist())
    return True

  def gauges(self, seconds: float) -> Dict[str, float]:
    """Of what was admitted in the `seconds` since this was asked last.

    `data_age` is the mean age in learner steps, `actors` the number of writers that it
    came from, and the others the rates of the slowest and the fastest of these.
    """
    rates = [steps / seconds for steps in self._heard.values()] or [math.nan]
    found = {'data_age': float(np.mean(self._ages)) if self._ages else math.nan,
             'actors': len(self._heard),
             'slowest_actor_steps_per_second': min(rates),
             'fastest_actor_steps_per_second': max(rates)}
    self._heard.clear()
    self._ages.clear()
    return found

  def serialize(self) -> str:
    return json.dumps({
        'newest_of_writer': list(self._newest_of_writer.items()),
        'returns': list(self.returns), 'successes': list(self.successes),
        'task_returns': [list(x) for x in self.task_returns],
        **{name: getattr(self, name) for name in _COUNTERS}})

  def deserialize(self, string_value: str) -> None:
    state = json.loads(string_value)
    self._newest_of_writer = dict(state['newest_of_writer'])
    for values, kept in ((self.returns, state['returns']),
                         (self.successes, state['successes']),
                         *zip(self.task_returns, state['task_returns'])):
      values.clear()
      values.extend(kept)
    for name in _COUNTERS:
      setattr(self, name, state[name])
