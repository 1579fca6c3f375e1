"""The base class of sources, and the loop in which they play."""

import abc
from typing import NamedTuple

import numpy as np

from gtrxl_tf import environments
from gtrxl_tf.datasets import format as format_lib
from gtrxl_tf.environments import task_batch
from gtrxl_tf.settings import config


class Source(abc.ABC):
  """An algorithm that learns while it plays B tasks, in each of them separately.

  Its constructor takes `tasks`, a batch whose specs it may read; `num_steps`, the steps
  that it will play; and `seed`. It plays one history in each task.
  """

  @abc.abstractmethod
  def act(self, observation: np.ndarray, state: np.ndarray) -> np.ndarray:
    """Returns the next actions, integers [B].

    Args:
      observation: [B, ...], what an agent sees.
      state: [B, ...], the complete state, for sources that use it.
    """

  @abc.abstractmethod
  def learn(self, state: np.ndarray, action: np.ndarray, outcome: task_batch.Outcome
            ) -> None:
    """Learns from the outcome of the `action` [B] that `act` returned in `state` [B, ...]."""


class LearningHistories(NamedTuple):
  """B histories of T steps, in the dtypes in which they are stored.

  Attributes:
    observation: [B, T, ...].
    action: uint8 [B, T].
    reward: [B, T].
    end: uint8 [B, T], values of `format.End`. The last step of a history need not end
      an episode.
  """
  observation: np.ndarray
  action: np.ndarray
  reward: np.ndarray
  end: np.ndarray


def play(tasks: task_batch.TaskBatch, source: Source, num_steps: int
         ) -> LearningHistories:
  """Lets a source play `num_steps` steps in every task, from an episode's start."""
  observations, actions, rewards = (
      np.empty((num_steps, tasks.num_tasks, *spec.shape), spec.dtype) for spec in (
          tasks.observation_spec(), tasks.action_spec(), tasks.reward_spec()))
  ends = np.empty((num_steps, tasks.num_tasks), np.uint8)
  tasks.restart()
  t = 0
  try:
    for t in range(num_steps):
      state = np.array(tasks.state)  # A copy: tasks may change theirs in place.
      observation = tasks.observe(state)
      _store(observations, t, observation, 'the observation')
      action = source.act(observation, state)
      outcome = tasks.step(action)
      _store(actions, t, action, 'the action')
      _store(rewards, t, outcome.reward, 'the reward')
      source.learn(state, action, outcome)
      ends[t] = (outcome.terminated * np.uint8(format_lib.End.TERMINATION)
                 + outcome.truncated * np.uint8(format_lib.End.TRUNCATION))
  except Exception as error:
    raise environments.EnvironmentFailed(
        f'{type(tasks).__name__} played by {type(source).__name__}, step {t + 1} of '
        f'the history: {type(error).__name__}: {config.one_line(error)}') from error
  # The arrays are filled by time and read by history.
  return LearningHistories(*(
      np.ascontiguousarray(array.swapaxes(0, 1))
      for array in (observations, actions, rewards, ends)))


def _store(array: np.ndarray, t: int, value: np.ndarray, name: str) -> None:
  """Sets `array[t]`. An assignment alone would broadcast and cast silently."""
  value, stored = np.asarray(value), array[t]
  if value.shape != stored.shape:
    raise ValueError(f'{name} has shape {value.shape}: expected {stored.shape}')
  stored[...] = value
  if stored.dtype.kind != 'f' and (stored != value).any():
    raise ValueError(f'{name} is {value[stored != value][0]} in a task: expected '
                     f'values of {stored.dtype}, as in its spec')


def random_maximum(values: np.ndarray, also: np.ndarray, random: np.random.Generator
                   ) -> np.ndarray:
  """Returns the index of a largest value in each column, drawn uniformly: [B].

  `values` are [A, B]; where `also` is true, bool [A, B] or broadcast, is drawn from, too.
  """
  admitted = (values == values.max(axis=0)) | also
  # 1 - random() is in (0, 1], so that admitted values are never 0.
  return (admitted * (1 - random.random(values.shape, np.float32))).argmax(axis=0)
