"""Your own recorded episodes: write a dataset from arrays, and train RATE on it.

The episodes are of a corridor of 30 steps. A sign in the first step says which of two
doors at the end is the right one. The recorded agent chose a door at random, so half of
the episodes have a return of 1. RATE imitates the recorded actions, given the return;
given a return of 1, it takes the right door if it remembers the sign. It sees 10 steps
at a time, and keeps the sign in memory tokens.

  python examples/own_episodes.py --folder=runs/own_episodes

With seed 0 this takes 52 s of CPU, and the return in 100 new episodes is 1.00.
`--no_memory` trains the same model without memory tokens.
"""

import argparse
import pathlib
import sys
from typing import Optional, Sequence

import dm_env
from dm_env import specs as dm_specs
import gin
import numpy as np

from gtrxl_tf import datasets
from gtrxl_tf.launch import train

GIN = pathlib.Path(__file__).resolve().parents[1] / 'gin'
NUM_STEPS, SEGMENT = 30, 10
SPECS = datasets.Specs(
    dm_specs.BoundedArray((3,), np.float32, 0, 1), dm_specs.DiscreteArray(2))


def observations(sign: int) -> np.ndarray:
  """The observations of an episode: the sign, one-hot at first; then the doors."""
  result = np.zeros([NUM_STEPS, 3], np.float32)
  result[0, sign] = 1
  result[-1, 2] = 1
  return result


@gin.configurable
class Corridor(dm_env.Environment):
  """The world of the episodes, in which the trained policy is evaluated."""

  def __init__(self, seed: Optional[int] = None):
    self._random = np.random.default_rng(seed)
    self._time = NUM_STEPS

  def observation_spec(self) -> dm_specs.Array:
    return SPECS.observation

  def action_spec(self) -> dm_specs.DiscreteArray:
    return SPECS.action

  def reset(self) -> dm_env.TimeStep:
    self._sign, self._time = int(self._random.integers(2)), 0
    self._observations = observations(self._sign)
    return dm_env.restart(self._observations[0])

  def step(self, action: int) -> dm_env.TimeStep:
    if self._time == NUM_STEPS:
      return self.reset()
    self._time += 1
    if self._time == NUM_STEPS:
      return dm_env.termination(
          float(action == self._sign), np.zeros_like(self._observations[0]))
    return dm_env.transition(0.0, self._observations[self._time])


def write_dataset(path: pathlib.Path, num_episodes: int, seed: int) -> None:
  """Writes episodes from arrays, such as your own recordings."""
  with datasets.EpisodeWriter(
      path, SPECS, environment='corridor', final_observation=False) as writer:
    for i in range(writer.num_episodes, num_episodes):  # It goes on if it was stopped.
      random = np.random.default_rng([seed, i])
      sign = int(random.integers(2))
      actions = random.integers(2, size=NUM_STEPS, dtype=np.int32)
      rewards, discounts = np.zeros([2, NUM_STEPS], np.float32)
      rewards[-1] = actions[-1] == sign
      discounts[:-1] = 1
      ends = np.zeros(NUM_STEPS, np.uint8)
      ends[-1] = datasets.End.TERMINATION
      writer.write([datasets.Episode(
          observations(sign), actions, rewards, discounts, ends)])


def main(argv: Sequence[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--folder', type=pathlib.Path, required=True)
  parser.add_argument('--no_memory', action='store_true')
  parser.add_argument('--short', action='store_true', help='two learner steps only')
  parser.add_argument('--seed', type=int, default=0)
  args = parser.parse_args(argv)
  if args.short:
    args.folder /= 'short'  # Another dataset, and a run of another length.
  write_dataset(args.folder / 'episodes', 200 if args.short else 2000, args.seed)
  return train.train(
      [str(GIN / 'rate/bases/small.gin'), str(GIN / 'rate/models/rate.gin')],
      [f'OfflineExperiment.dataset = {str(args.folder / "episodes")!r}',
       'Experiment.environment = @Corridor',
       f'Experiment.seed = {args.seed}',
       f'Experiment.evaluation_episodes = {4 if args.short else 100}',
       'DecisionPolicy.target_return = 1.0',
       f'OfflineExperiment.segment_length = {SEGMENT}',
       f'OfflineExperiment.num_segments = {NUM_STEPS // SEGMENT}',
       f'OfflineExperiment.learner_steps = {2 if args.short else 400}',
       f'segment_tokens = {3 * SEGMENT}',  # Return, observation, action.
       f'context_tokens = {3 * NUM_STEPS}',
       f'memory_tokens = {0 if args.no_memory else 5}', 'cache_tokens = 0'],
      str(args.folder / ('run_no_memory' if args.no_memory else 'run')))


if __name__ == '__main__':
  sys.exit(main())
