"""The task of the examples with TF-Agents, and functions that play it.

The task shows a symbol and asks for it eight steps later. One guess in four is right.
"""

import argparse
import functools
from typing import Any, Callable, Optional, Sequence

import numpy as np
import tensorflow as tf
from tf_agents.environments import py_environment
from tf_agents.environments import tf_py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from gtrxl_tf import cores

NUM_SYMBOLS, DELAY = 4, 8
EPISODE_LENGTH = DELAY + 1  # Steps in which an action is taken.
CORES = {
    'gated Transformer-XL': functools.partial(
        cores.TransformerXL, num_layers=1, model_dim=32, num_heads=2, head_dim=16,
        memory_length=16),
    'feed-forward': functools.partial(cores.Memoryless, num_layers=2, hidden_dim=32),
}


class Recall(py_environment.PyEnvironment):
  """Shows a symbol in the first step, and rewards the action of that number in the last.

  The reward is 1 for the right action and 0 otherwise. An agent that does not remember
  the symbol gets 0.25 on average. This is a batch of episodes that begin and end
  together.
  """

  def __init__(self, num_episodes: int, seed: int):
    super().__init__(handle_auto_reset=True)
    self._num_episodes = num_episodes
    self._random = np.random.default_rng(seed)
    self._symbol, self._time = np.zeros(num_episodes, int), 0

  @property
  def batched(self) -> bool:
    return True

  @property
  def batch_size(self) -> int:
    return self._num_episodes

  def observation_spec(self) -> array_spec.BoundedArraySpec:
    return array_spec.BoundedArraySpec([NUM_SYMBOLS + 1], np.float32, 0, 1)

  def action_spec(self) -> array_spec.BoundedArraySpec:
    return array_spec.BoundedArraySpec([], np.int32, 0, NUM_SYMBOLS - 1)

  def _observe(self) -> np.ndarray:
    observation = np.zeros([self._num_episodes, NUM_SYMBOLS + 1], np.float32)
    if self._time == 0:
      observation[np.arange(self._num_episodes), self._symbol] = 1
    observation[:, -1] = self._time == DELAY  # Asks for the symbol.
    return observation

  def _reset(self) -> ts.TimeStep:
    self._symbol = self._random.integers(NUM_SYMBOLS, size=self._num_episodes)
    self._time = 0
    return ts.restart(self._observe(), self._num_episodes)

  def _step(self, action: np.ndarray) -> ts.TimeStep:
    self._time += 1
    if self._time < EPISODE_LENGTH:
      return ts.transition(
          self._observe(), np.zeros(self._num_episodes, np.float32),
          np.ones(self._num_episodes, np.float32), outer_dims=[self._num_episodes])
    reward = (action == self._symbol).astype(np.float32)
    return ts.termination(self._observe(), reward, outer_dims=[self._num_episodes])


def make_environment(num_episodes: int, seed: int) -> tf_py_environment.TFPyEnvironment:
  """Makes the task, in which `num_episodes` episodes are played at a time."""
  return tf_py_environment.TFPyEnvironment(Recall(num_episodes, seed))


def play(environment: tf_py_environment.TFPyEnvironment, policy: Any
         ) -> trajectory.Trajectory:
  """Plays an episode in each row, and the step that begins the next: `[B, T + 1]`."""
  time_step = environment.reset()
  state = policy.get_initial_state(environment.batch_size)
  steps = []
  for _ in range(EPISODE_LENGTH + 1):
    action = policy.action(time_step, state)
    next_time_step = environment.step(action.action)
    steps.append(trajectory.from_transition(time_step, action, next_time_step))
    time_step, state = next_time_step, action.state
  return tf.nest.map_structure(lambda *x: tf.stack(x, axis=1), *steps)


def mean_return(episodes: trajectory.Trajectory) -> float:
  """The mean return of what `play` returned."""
  # The last step is the one between two episodes.
  return float(tf.reduce_mean(tf.reduce_sum(episodes.reward[:, :-1], axis=1)))


def compare(description: str,
            train: Callable[[Callable[[], cores.Core], int, int], float],
            num_iterations: int, argv: Optional[Sequence[str]] = None) -> None:
  """Prints the mean return of agents that `train` makes with each of `CORES`.

  Args:
    description: a text whose first line `--help` shows.
    train: called with a core, a number of iterations and a seed; returns the mean
      return.
    num_iterations: without `--short`.
    argv: the command's arguments; by default those of this process.
  """
  parser = argparse.ArgumentParser(description=description.splitlines()[0])
  parser.add_argument('--short', action='store_true', help='one iteration only')
  parser.add_argument('--seed', type=int, default=0)
  args = parser.parse_args(argv)
  for name, core in CORES.items():
    result = train(core, 1 if args.short else num_iterations, args.seed)
    print(f'{name}: mean return {result:.2f}')
