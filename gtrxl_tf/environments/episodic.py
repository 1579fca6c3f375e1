"""The base class of environments that are written one episode at a time."""

import abc
import operator
from typing import Any

import dm_env


class Episodic(dm_env.Environment):
  """Begins the next episode at the step after an episode's last, as dm_env requires.

  A subclass implements `_reset` and `_step`, which handle one episode at a time. Its
  actions are the integers below `_num_actions`, or it implements `_checked`.
  """
  _num_actions: int
  _must_begin = True  # True if the next step begins an episode.

  def reset(self) -> dm_env.TimeStep:
    self._must_begin = False
    return self._reset()

  def step(self, action) -> dm_env.TimeStep:
    if self._must_begin:
      return self.reset()
    time_step = self._step(self._checked(action))
    self._must_begin = time_step.last()
    return time_step

  def _checked(self, action: Any) -> Any:
    """Returns `action` as `_step` takes it; raises an error if it does not fit."""
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
    """Continues the episode; `action` has been checked."""
