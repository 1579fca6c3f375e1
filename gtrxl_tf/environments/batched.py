"""Batches of environments, stepped in turn or computed together."""

from typing import Optional, Sequence

import dm_env
import numpy as np
import tree

from gtrxl_tf.environments import batched_observations
from gtrxl_tf.environments import vector_task
from gtrxl_tf.environments.batched_environment import BatchedEnvironment
from gtrxl_tf.environments.batched_environment import BatchedTimeStep
from gtrxl_tf.environments.batched_environment import EnvironmentFailed
from gtrxl_tf.environments.batched_environment import ERRORS
from gtrxl_tf.settings import config


class _BatchedTogether(BatchedEnvironment):
  """Steps tasks of one class together, as `vector_task.VectorTask` describes.

  The tasks only begin their own episodes. Rewards and observations are only checked for
  NaN and infinity.
  """

  def __init__(self, environments: Sequence[vector_task.VectorTask],
               tasks: Optional[Sequence[int]], seed: int):
    super().__init__(environments, tasks, seed)
    self._together = vector_task.Together(environments)
    self._num_actions = self._action_spec.num_values
    self._begins = np.ones(self.num_environments, bool)

  def reset(self, head_starts: Optional[np.ndarray] = None) -> BatchedTimeStep:
    seen = super().reset(head_starts)
    self._together.load(range(self.num_environments))
    self._begins = np.zeros(self.num_environments, bool)
    return seen

  def step(self, actions) -> BatchedTimeStep:
    actions, = self._fitting_actions(actions)
    begins = np.flatnonzero(self._begins)
    if begins.size:
      actions = np.where(self._begins, 0, actions)  # They are ignored.
    if actions.min() < 0 or actions.max() >= self._num_actions:
      wrong = actions[(actions < 0) | (actions >= self._num_actions)][0]
      raise ValueError(
          f'action = {wrong}: expected an integer in [0, {self._num_actions})')
    try:
      reward, ends, observations = self._together.step(actions)
    except ERRORS as error:
      raise EnvironmentFailed(
          f'environments 0 to {self.num_environments - 1}, step {self._num_steps + 1} of '
          f'the batch, advance(): {config.described(error)}') from error
    rewards = np.empty(self.num_environments, np.float32)
    last = np.empty(self.num_environments, bool)
    rewards[:], last[:] = reward, ends  # They may be one number for all.
    self._num_steps += 1
    if begins.size:
      first_observations = []
      for i in begins:
        self._episodes[i] += 1
        self._first_steps[i] = self._num_steps
        try:
          time_step = self._environments[i].reset()
        except ERRORS as error:
          raise self.failed(i, error, 'reset()') from error
        rewards[i], last[i] = 0, False
        first_observations.append(time_step.observation)
      observations = tree.map_structure(
          lambda array, *rows: vector_task.with_rows(array, begins, rows),
          observations, *first_observations)
      self._together.load(begins)
    step_types = last.astype(np.int32) + np.int32(dm_env.StepType.MID)
    step_types[begins] = dm_env.StepType.FIRST
    self._begins = last
    self._check_finite(rewards, tree.flatten(observations))
    self._writer.watch(
        tree.flatten(observations), self.watched, last, self._num_steps, self._time)
    successes = np.where(last, self._together.episodes.success, np.nan)
    return self._with_returns(
        step_types, rewards, (~last).astype(np.float32), observations,
        successes.astype(np.float32))

  def _check_finite(self, rewards: np.ndarray, leaves: Sequence[np.ndarray]) -> None:
    """Refuses NaN and infinity. It looks at sums first, which takes half the time."""
    if not np.isfinite(rewards.sum()):
      self._check_numbers(rewards, np.ones_like(rewards))
    if not all(np.isfinite(x.sum()) for x in leaves if x.dtype.kind == 'f'):
      try:
        self._writer.checked(leaves, np.ones(self.num_environments, bool))
      except batched_observations.Misfit as error:
        raise self._misfit(*error.args) from None


def batch(environments: Sequence[dm_env.Environment],
          tasks: Optional[Sequence[int]] = None, seed: int = 0) -> BatchedEnvironment:
  """Batches environments that only the batch steps.

  The result is that of `BatchedEnvironment`, but tasks whose class can be computed
  together take a fraction of the time.
  """
  kinds = {type(environment) for environment in environments}
  # `advance` must be the class's own: that of a base class may have other rules.
  together = len(kinds) == 1 and issubclass(*kinds, vector_task.VectorTask) and (
      'advance' in vars(*kinds))
  return (_BatchedTogether if together else BatchedEnvironment)(
      environments, tasks, seed)
