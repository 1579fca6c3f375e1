"""Many tasks of a family, stepped together, in which a source learns.

A task never changes, and its episodes follow each other without a step between them:
what was learned in one episode helps in the next.
"""

import abc
from typing import Literal, NamedTuple

from dm_env import specs
import numpy as np

Split = Literal['training', 'evaluation']


class Outcome(NamedTuple):
  """The result of a step of B tasks.

  Attributes:
    reward: float32 [B].
    terminated: bool [B], whether the episode ended because the task was over.
    truncated: bool [B], whether the episode was cut off.
    state: [B, ...], the state after the step, before the next episode began.
  """
  reward: np.ndarray
  terminated: np.ndarray
  truncated: np.ndarray
  state: np.ndarray


class TaskBatch(abc.ABC):
  """B tasks of the same specs, whose actions are integers from 0 to `num_actions - 1`.

  A state is complete; an observation is the part of it that an agent sees.
  """

  def __init__(self, num_tasks: int, num_actions: int):
    self.num_tasks = num_tasks
    self.num_actions = num_actions

  def step(self, actions: np.ndarray) -> Outcome:
    """Steps every task by `actions`, integers [B]; after an episode the next one begins."""
    actions = np.asarray(actions)
    if actions.shape != (self.num_tasks,) or actions.dtype.kind not in 'iu' or (
        actions.min() < 0 or actions.max() >= self.num_actions):
      raise ValueError(f'actions of shape {actions.shape} are {actions.dtype} in '
                       f'[{actions.min()}, {actions.max()}]: expected {self.num_tasks} '
                       f'integers in [0, {self.num_actions})')
    return self._step(actions)

  def action_spec(self) -> specs.DiscreteArray:
    """Returns the spec of a task's action, stored as a byte."""
    return specs.DiscreteArray(self.num_actions, np.uint8, 'action')

  @abc.abstractmethod
  def observation_spec(self) -> specs.BoundedArray:
    """Returns the spec of a task's observation."""

  @abc.abstractmethod
  def reward_spec(self) -> specs.Array:
    """Returns the spec of a task's reward, stored in the smallest dtype that fits."""

  @abc.abstractmethod
  def state_spec(self) -> specs.Array:
    """Returns the spec of a task's state, a `DiscreteArray` if a table may have its values."""

  @property
  @abc.abstractmethod
  def state(self) -> np.ndarray:
    """The current states, [B, ...]."""

  @abc.abstractmethod
  def observe(self, state: np.ndarray) -> np.ndarray:
    """Returns the observations of states, [B, ...]."""

  @abc.abstractmethod
  def restart(self) -> None:
    """Begins an episode in every task, even if the last one has not ended."""

  @abc.abstractmethod
  def informed_actions(self) -> np.ndarray:
    """Returns actions [B] that finish tasks without delay, given what is hidden."""

  @abc.abstractmethod
  def _step(self, actions: np.ndarray) -> Outcome:
    """Steps every task; `actions` have been checked."""


class TaskFamily(abc.ABC):
  """Tasks of one kind; some are kept for evaluation.

  Attributes:
    name: shown to people.
    num_steps: T, the steps of a learning history.
  """
  name: str
  num_steps: int

  @abc.abstractmethod
  def make(self, split: Split, num_tasks: int, seed: int) -> TaskBatch:
    """Draws tasks of a split, with replacement; no task is in both splits."""


def informed_return(tasks: TaskBatch) -> np.ndarray:
  """Returns the return of an episode of `informed_actions` in each task, [B]."""
  tasks.restart()
  returns = np.zeros(tasks.num_tasks)
  running = np.ones(tasks.num_tasks, bool)
  while running.any():
    outcome = tasks.step(tasks.informed_actions())
    returns += running * outcome.reward
    running &= ~(outcome.terminated | outcome.truncated)
  tasks.restart()
  return returns


def random_state(seed: int, *more: int) -> np.random.RandomState:
  """Returns a generator whose numbers NumPy promises never to change.

  Splits and tasks are drawn with it, so that a model that was trained elsewhere is not
  evaluated on tasks that it was trained on.
  """
  return np.random.RandomState(np.random.SeedSequence([seed, *more]).generate_state(4))
