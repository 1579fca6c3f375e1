"""What the library's own memory tasks share."""

import abc
import operator
from typing import Optional

import dm_env
from dm_env import specs
import numpy as np


class MemoryTask(dm_env.Environment):
  """A task that hides something worth remembering.

  A subclass writes `_reset` and `_step`, which see one episode at a time: the step
  after an episode's last one begins the next episode here, as dm_env asks. Beside
  the environment itself it offers the task's own measure of success, and a policy of
  one who knows what is hidden, the line that a perfect memory would reach.
  """

  def __init__(self, num_actions: Optional[int], seed: Optional[int]):
    """Creates the task.

    Args:
      num_actions: actions are the integers from 0 to `num_actions - 1`; or None, and
        the subclass writes `action_spec` and `_checked`, having actions of its own.
      seed: of everything that is drawn; None draws anew in every process.
    """
    self._num_actions = num_actions
    self._rng = np.random.default_rng(seed)
    self._reset_next_step = True

  def reset(self) -> dm_env.TimeStep:
    self._reset_next_step = False
    return self._reset()

  def step(self, action) -> dm_env.TimeStep:
    if self._reset_next_step:
      return self.reset()
    time_step = self._step(self._checked(action))
    self._reset_next_step = time_step.last()
    return time_step

  def action_spec(self) -> specs.Array:
    return specs.DiscreteArray(self._num_actions, name='action')

  def _checked(self, action):
    """`action` as `_step` takes it; refuses what the spec does not admit."""
    action = operator.index(action)
    if not 0 <= action < self._num_actions:
      raise ValueError(
          f'action = {action}: expected an integer in [0, {self._num_actions})')
    return action

  @abc.abstractmethod
  def _reset(self) -> dm_env.TimeStep:
    """Begins an episode."""

  @abc.abstractmethod
  def _step(self, action) -> dm_env.TimeStep:
    """Goes on with the episode; `action` has been checked."""

  @abc.abstractmethod
  def episode_success(self) -> bool:
    """Whether the episode was solved; asked when its last step has been returned."""

  @abc.abstractmethod
  def informed_action(self):
    """A good action now for one who knows what the task hides from the agent.

    The best one where actions are discrete, so that no policy returns more.
    """


def informed_return(environment: MemoryTask, num_episodes: int) -> float:
  """The mean undiscounted return of `informed_action` over `num_episodes` episodes."""
  total = 0.0
  for _ in range(num_episodes):
    time_step = environment.reset()
    while not time_step.last():
      time_step = environment.step(environment.informed_action())
      total += time_step.reward
  return total / num_episodes


def constant_rows(matrix: np.ndarray) -> list[np.ndarray]:
  """The rows of `matrix` as float32 arrays that refuse to be written to.

  Tasks look such rows up instead of building an observation at each step. One row
  serves many time steps, so writing into it must fail.
  """
  matrix = np.array(matrix, np.float32)
  matrix.setflags(write=False)
  return list(matrix)
