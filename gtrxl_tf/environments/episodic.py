"""The base classes of environments that are written one episode at a time."""

import abc
import operator
from typing import Any, Optional, Sequence

import dm_env
from dm_env import specs
import numpy as np

from gtrxl_tf.environments import specs as specs_lib

_MID, _LAST = dm_env.StepType.MID, dm_env.StepType.LAST


class Episodic(dm_env.Environment):
  """Begins the next episode at the step after an episode's last, as dm_env requires.

  A subclass implements `_reset` and `_step`, which handle one episode at a time. Its
  actions are the integers below `_num_actions`, or it implements `action_spec` and
  `_checked`.

  Attributes:
    action_names: what each action does; empty if they have no meaning of their own.
  """
  action_names: Sequence[str] = ()
  _num_actions: int
  _must_begin = True  # True if the next step begins an episode.

  def action_spec(self) -> Any:
    if self.action_names:
      return specs_lib.NamedActions(self.action_names)
    return specs.DiscreteArray(self._num_actions, name='action')

  def reset(self) -> dm_env.TimeStep:
    self._must_begin = False
    return self._reset()

  def step(self, action) -> dm_env.TimeStep:
    if self._must_begin:
      return self.reset()
    time_step = self._step(self._checked(action))
    self._must_begin = time_step.step_type == _LAST
    return time_step

  def _checked(self, action: Any) -> Any:
    """Returns `action` as `_step` takes it; raises an error if it does not fit."""
    action = operator.index(action)
    if not 0 <= action < self._num_actions:
      raise ValueError(f'action = {action}: expected an integer in [0, {self._num_actions})')
    return action

  @abc.abstractmethod
  def _reset(self) -> dm_env.TimeStep:
    """Begins an episode."""

  @abc.abstractmethod
  def _step(self, action) -> dm_env.TimeStep:
    """Continues the episode; `action` has been checked."""


def later_step(reward: float, observation: Any, terminated: bool, truncated: bool = False
               ) -> dm_env.TimeStep:
  """Returns a step after the first; where the task is over, the discount is 0."""
  step_type = _LAST if terminated or truncated else _MID
  return dm_env.TimeStep(step_type, reward, 0. if terminated else 1., observation)


class MemoryTask(Episodic):
  """A task that hides something that the agent must remember.

  It has its own measure of success, and an informed policy, which knows what is hidden.
  The return of that policy is what a perfect memory would reach if finding what is
  hidden cost nothing.
  """
  _success = False  # Whether the current episode has succeeded.

  def __init__(self, num_actions: Optional[int], seed: Optional[int]):
    """Creates the task; `seed` seeds all that is drawn, None in every process differently.

    Actions are the integers from 0 to `num_actions - 1`. If that is None, the subclass has
    other actions and implements `action_spec` and `_checked`.
    """
    self._num_actions = num_actions
    self._rng = np.random.default_rng(seed)

  def episode_success(self) -> bool:
    """Returns whether the episode was solved; called after its last step."""
    return self._success

  @abc.abstractmethod
  def informed_action(self) -> Any:
    """Returns a good action, given what the task hides from the agent.

    Where actions are discrete it is the best action: no policy returns more.
    """


def informed_return(environment: MemoryTask, num_episodes: int) -> float:
  """Returns the mean undiscounted return of `informed_action` over some episodes."""
  total = 0.0
  for _ in range(num_episodes):
    time_step = environment.reset()
    while not time_step.last():
      time_step = environment.step(environment.informed_action())
      total += time_step.reward
  return total / num_episodes


def constant_rows(matrix: np.ndarray) -> list[np.ndarray]:
  """Returns the rows of `matrix` as read-only float32 arrays.

  Tasks look up such rows instead of building an observation at each step. Many time
  steps share a row, so writing into it must fail.
  """
  matrix = np.array(matrix, np.float32)
  matrix.setflags(write=False)
  return list(matrix)
