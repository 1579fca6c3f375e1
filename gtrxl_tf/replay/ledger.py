"""The learner's book on what came in: nothing old, nothing twice."""

import collections

import dm_env
import numpy as np


class Ledger:
  """Admits unrolls and counts.

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
    self.learner_step = 0
    self.environment_steps = 0
    self.unrolls = 0
    self.stale = 0
    self.duplicate = 0
    self.oldest = 0
    self.returns = collections.deque(maxlen=window)
    self.successes = collections.deque(maxlen=window)
    self.task_returns = [collections.deque(maxlen=window) for _ in range(num_tasks)]

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
    self.environment_steps += int(np.sum(step_type != int(dm_env.StepType.FIRST)))
    for row, environment in zip(*np.nonzero(~np.isnan(episode_return))):
      value = float(episode_return[row, environment])
      self.returns.append(value)
      self.task_returns[task[environment]].append(value)
    self.successes.extend(episode_success[~np.isnan(episode_success)].tolist())
    return True
