"""Tasks whose rules are written once, for one episode and for many at a time."""

import abc
from typing import Any, Optional, Sequence

import dm_env
import numpy as np

from gtrxl_tf.environments import memory_task

# Reward; whether the step was its episode's last; observation.
Outcome = tuple[Any, Any, Any]


class Episode:
  """Numbers and lists of one episode, or arrays [E] and tables of E episodes.

  Python reads the attributes of such a class faster than those of `SimpleNamespace`.
  """

  def __init__(self, **values):
    vars(self).update(values)


class VectorTask(memory_task.MemoryTask):
  """A memory task that steps one episode, or E of them as arrays, by the same lines.

  `_begin` draws an episode: numbers, which become arrays [E] in a batch, and lists,
  which become tables there. `advance` uses only what means the same for a number and
  for an array: arithmetic, comparisons, `&`, `|`, `^` and looking up `entries[i]`. So
  `batched.batch` steps many tasks at once, and a single task computes with Python's
  numbers, which is several times faster than arrays of one.

  An episode has a bool `success`, which is read at its end. It also has every setting
  that changes the rules, since tasks of one batch may differ in it.

  Attributes:
    episode: the present episode.
    tables: lists that all episodes of all tasks with the same specs share.
  """

  def __init__(self, num_actions: int, seed: Optional[int], **tables: list):
    """Creates the task; `MemoryTask` explains the first two arguments.

    A subclass then calls `_reset`, so that there always is an episode.
    """
    super().__init__(num_actions, seed)
    self.tables = tables

  def episode_success(self) -> bool:
    return self.episode.success

  @abc.abstractmethod
  def _begin(self) -> tuple[Episode, Any]:
    """Draws an episode; returns it and its first observation.

    Each list of an episode is as long as in the task's other episodes.
    """

  @staticmethod
  @abc.abstractmethod
  def advance(tables: dict[str, Any], e: Episode, action: Any) -> Outcome:
    """Steps one episode, or E episodes.

    Args:
      tables: as given to the constructor.
      e: the episode or episodes, whose attributes are replaced, not written into.
      action: integer or integers [E], which have been checked.

    Returns:
      The reward, a number or numbers [E]; whether the step was the last of its episode,
      with discount 0, a bool or bool [E]; and the observation, a nest of float32 [...]
      or [E, ...].
    """

  def _reset(self) -> dm_env.TimeStep:
    self.episode, observation = self._begin()
    return dm_env.restart(observation)

  def _step(self, action: int) -> dm_env.TimeStep:
    reward, last, observation = self.advance(self.tables, self.episode, action)
    ends = dm_env.termination if last else dm_env.transition
    return ends(float(reward), observation)


class Together:
  """E tasks of one class that are stepped at once.

  The tasks begin their episodes themselves, with their own random numbers.
  """

  def __init__(self, tasks: Sequence[VectorTask]):
    """Takes over the present episodes of the tasks."""
    self._tasks = tasks
    self._tables = {
        name: _Table(entries) for name, entries in tasks[0].tables.items()}
    self.episodes = Episode(**{
        name: _batched([getattr(task.episode, name) for task in tasks])
        for name in vars(tasks[0].episode)})

  def load(self, begun: Sequence[int]) -> None:
    """Copies the episodes that the tasks of these indices have begun."""
    for name in vars(self._tasks[0].episode):
      values = [getattr(self._tasks[i].episode, name) for i in begun]
      entries = getattr(self.episodes, name)
      if isinstance(entries, _Tables):
        entries = entries.with_lists(begun, values)
      else:
        if not np.ndim(entries):  # `advance` set one number for all.
          entries = np.full(len(self._tasks), entries)
        entries = with_rows(entries, begun, values)
      setattr(self.episodes, name, entries)

  def step(self, actions: np.ndarray) -> Outcome:
    """Steps every task; the outcome of an episode that has ended is arbitrary."""
    return self._tasks[0].advance(self._tables, self.episodes, actions)


def _batched(values: Sequence[Any]) -> Any:
  """Returns numbers as an array [E], and lists as tables."""
  if isinstance(values[0], list):
    return _Tables(_of_length(max(map(len, values)), values))
  return np.array(values)


def with_rows(entries: np.ndarray, indices: Sequence[int], rows: Any) -> np.ndarray:
  """Returns a copy of `entries` in which `rows` are at `indices`.

  It is a copy because `advance` may have given the array two names, or returned it as
  an observation. Where integers are followed by fractions, it has the fractions' type.
  """
  rows = np.array(rows)
  fits = rows.dtype == entries.dtype or np.can_cast(
      rows.dtype, entries.dtype, 'same_kind')
  entries = entries.copy() if fits else entries.astype(rows.dtype)
  entries[indices] = rows
  return entries


class _Table:
  """Looks up E entries at once, as a list looks up one."""

  def __init__(self, entries: Sequence):
    self._entries = np.asarray(entries)

  def __getitem__(self, i: np.ndarray) -> np.ndarray:
    # Indices out of bounds are those of episodes that have ended.
    return self._entries.take(i, axis=0, mode='clip')


class _Tables(_Table):
  """A table for each of E tasks; entry i[e] is looked up in table e."""

  def __init__(self, tables: np.ndarray):
    """Takes tables of equal length, [E, length, ...]."""
    self._tables = tables
    self._begins = tables.shape[1] * np.arange(len(tables))
    super().__init__(tables.reshape(-1, *tables.shape[2:]))

  def __getitem__(self, i: np.ndarray) -> np.ndarray:
    return super().__getitem__(self._begins + i)

  def with_lists(self, tasks: Sequence[int], lists: Sequence[list]) -> '_Tables':
    """Returns the tables, with `lists` in place of those of some tasks."""
    return _Tables(with_rows(
        self._tables, tasks, _of_length(self._tables.shape[1], lists)))


def _of_length(length: int, lists: Sequence[list]) -> np.ndarray:
  """Returns lists as an array; shorter ones are filled where no task reads."""
  return np.array([
      np.resize(x, (length, *np.shape(x)[1:])) if len(x) < length else x for x in lists])


def features(*columns: Any) -> np.ndarray:
  """Returns a vector float32 [F] of F numbers, or float32 [E, F] of F arrays [E]."""
  return np.array(columns, np.float32).T
