"""Bernoulli bandits: the smallest family of tasks in which to learn."""

from typing import Annotated

from dm_env import specs
import numpy as np

from gtrxl_tf.environments import task_batch
from gtrxl_tf.settings import config


class Bandits(task_batch.TaskBatch):
  """B bandits; each arm pays 1 with its own probability, else 0.

  An episode is one pull. The observation is always 0.
  """

  def __init__(self, probabilities: np.ndarray, seed: int):
    """Creates the bandits; `probabilities` [B, A] are those that each arm pays."""
    super().__init__(*probabilities.shape)
    self._probabilities = probabilities
    self._random = np.random.default_rng(seed)
    self.restart()

  def observation_spec(self) -> specs.BoundedArray:
    return specs.BoundedArray((1,), np.uint8, 0, 0, 'nothing')

  def reward_spec(self) -> specs.Array:
    return specs.Array((), np.int8, 'reward')

  def state_spec(self) -> specs.DiscreteArray:
    return specs.DiscreteArray(1, np.int64, 'nothing')

  @property
  def state(self) -> np.ndarray:
    return np.zeros(self.num_tasks, np.int64)

  def observe(self, state: np.ndarray) -> np.ndarray:
    return state[:, None].astype(np.uint8)

  def restart(self) -> None:
    pass

  def informed_actions(self) -> np.ndarray:
    return self._probabilities.argmax(axis=1)

  def _step(self, actions: np.ndarray) -> task_batch.Outcome:
    pays = np.take_along_axis(self._probabilities, actions[:, None], axis=1)[:, 0]
    reward = (self._random.random(self.num_tasks) < pays).astype(np.float32)
    over = np.ones(self.num_tasks, bool)
    return task_batch.Outcome(reward, over, ~over, self.state)


@config.configurable
class BanditFamily(task_batch.TaskFamily):
  """Bandits whose arms have probabilities drawn uniformly from [0, 1)."""

  def __init__(self,
               num_arms: Annotated[int, config.Range(2, 256)] = 10,
               num_steps: config.PositiveInt = 500):
    """Creates the family; its default sizes are not from a paper."""
    self.name = f'bandits of {num_arms} arms'
    self.num_steps = num_steps
    self._num_arms = num_arms

  def make(self, split: task_batch.Split, num_tasks: int, seed: int) -> Bandits:
    random = task_batch.random_state(seed, int(split == 'evaluation'))
    return Bandits(random.random_sample((num_tasks, self._num_arms)), random.randint(2**31))
