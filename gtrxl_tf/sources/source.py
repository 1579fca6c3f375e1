"""What a source is, and how it plays."""

import abc
from typing import NamedTuple

import numpy as np

from gtrxl_tf.datasets import format as format_lib
from gtrxl_tf.environments import task_batch


class Source(abc.ABC):
  """An algorithm that learns while it plays B tasks, in each apart from the others.

  It is made with `tasks`, the batch of which it may look at the specs, `num_steps`,
  the steps that it will play, and `seed`, and plays one history in each task.
  """

  @abc.abstractmethod
  def act(self, observation: np.ndarray, state: np.ndarray) -> np.ndarray:
    """The next actions.

    Args:
      observation: [B, ...] what an agent sees.
      state: [B, ...] what there is to see, for a source that may.

    Returns:
      integers [B].
    """

  @abc.abstractmethod
  def learn(self, state: np.ndarray, action: np.ndarray, outcome: task_batch.Outcome
            ) -> None:
    """Learns from a step.

    Args:
      state: [B, ...] in which the actions were chosen.
      action: [B] as `act` returned them.
      outcome: of the step.
    """


class Histories(NamedTuple):
  """B histories of T steps, of the dtypes in which they are stored.

  Attributes:
    observation: [B, T, ...].
    action: uint8 [B, T].
    reward: [B, T].
    end: uint8 [B, T], values of `format.End`; the last step of a history ends no
      episode but by chance.
  """
  observation: np.ndarray
  action: np.ndarray
  reward: np.ndarray
  end: np.ndarray


def play(tasks: task_batch.TaskBatch, source: Source, num_steps: int) -> Histories:
  """Has a source play, from the start of an episode in every task."""
  blank = lambda spec: np.empty(
      (num_steps, tasks.num_tasks, *spec.shape), spec.dtype)
  observations = blank(tasks.observation_spec())
  actions, rewards = blank(tasks.action_spec()), blank(tasks.reward_spec())
  ends = np.empty((num_steps, tasks.num_tasks), np.uint8)
  tasks.restart()
  for t in range(num_steps):
    state = tasks.state
    observation = tasks.observe(state)
    action = source.act(observation, state)
    outcome = tasks.step(action)
    source.learn(state, action, outcome)
    observations[t] = observation
    actions[t] = action
    rewards[t] = outcome.reward
    ends[t] = (outcome.terminated * np.uint8(format_lib.End.TERMINATION)
               + outcome.truncated * np.uint8(format_lib.End.TRUNCATION))
  # By time they are filled, and by history they are read.
  return Histories(*(np.ascontiguousarray(array.swapaxes(0, 1))
                     for array in (observations, actions, rewards, ends)))


def random_maximum(values: np.ndarray, also: np.ndarray, random: np.random.Generator
                   ) -> np.ndarray:
  """[B] one of the greatest of `values` [A, B], all with the same probability.

  Args:
    values: [A, B].
    also: bool, broadcast against [A, B]: whether others count as the greatest too.
    random: for the choice.
  """
  admitted = (values == values.max(axis=0)) | also
  # In (0, 1], so that an admitted one is never 0.
  return (admitted * (1 - random.random(values.shape, np.float32))).argmax(axis=0)
