"""Batches of trajectories with static shapes, for training by segments."""

import functools
from typing import Any, Iterator, Literal, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np
import tree

from gtrxl_tf import environments
from gtrxl_tf.datasets import format as format_lib
from gtrxl_tf.datasets import reader

DatasetError = format_lib.DatasetError


class SegmentBatch(NamedTuple):
  """B trajectories of T = N K steps: N segments of K steps, one after the other.

  A shorter trajectory is padded at the end: there `mask` is False, observations repeat
  the last one, as in RATE, and everything else is 0.

  Attributes:
    observation: nest of [B, T, ...].
    action: nest of [B, T, ...]; RATE pads with -10 instead.
    reward: float32 [B, T].
    discount: float32 [B, T].
    end: uint8 [B, T], values of `End`.
    return_to_go: float32 [B, T], the sum of the rewards from this step to the end of the
      episode, even if that is beyond the T steps; discounted if the dataset was
      `relabeled` so.
    mask: bool [B, T], True where there is a step.
    episode: int64 [B], number of the episode in the dataset.
    start: int64 [B], number of the first step in the episode.
  """
  observation: Any
  action: Any
  reward: np.ndarray
  discount: np.ndarray
  end: np.ndarray
  return_to_go: np.ndarray
  mask: np.ndarray
  episode: np.ndarray
  start: np.ndarray


def gather(dataset: reader.Dataset, episodes: Sequence[int], starts: Sequence[int],
           length: int, frame_stack: int = 1) -> SegmentBatch:
  """Reads B trajectories.

  Args:
    dataset: the dataset to read.
    episodes: [B] numbers of episodes.
    starts: [B] the first step of each.
    length: T.
    frame_stack: number of steps whose observations are stacked along their last axis as
      by `environments.FrameStack`. Atari's pictures are stored once and seen four at a
      time.
  """
  episodes, starts = np.asarray(episodes, np.int64), np.asarray(starts, np.int64)
  steps = starts[:, np.newaxis] + np.arange(length)
  last = dataset.lengths[episodes][:, np.newaxis] - 1
  mask = steps <= last
  seen = np.minimum(steps, last)
  leaves = []
  stacked = _stacked_names(dataset.specs, frame_stack)
  for name in dataset.array_names:
    rows = seen if format_lib.is_observation(name) else steps
    leaves.append(_stack_frames(dataset, name, episodes, rows, frame_stack)
                  if name in stacked else dataset.take(name, episodes, rows))
  observation, action, reward, discount = tree.unflatten_as(dataset.specs, leaves)
  return SegmentBatch(
      observation, action, reward.astype(np.float32), discount.astype(np.float32),
      dataset.take('end', episodes, steps), dataset.take('return_to_go', episodes, steps),
      mask, episodes, starts)


def _stacked_names(specs: format_lib.Specs, frame_stack: int) -> Set[str]:
  """Returns the names of the observations that are stacked: all but action masks."""
  if frame_stack == 1:
    return set()
  stacked = specs._replace(
      observation=environments.stacked_spec(specs.observation, frame_stack))
  return {name for name, spec in specs.leaves().items()
          if spec.shape != stacked.leaves()[name].shape}


def _stack_frames(dataset: reader.Dataset, name: str, episodes: np.ndarray,
                  steps: np.ndarray, frame_stack: int) -> np.ndarray:
  """Reads stacks of S frames: [B, T, ..., C S] or [B, T, S]; 0 before an episode."""
  frames = []
  for lag in reversed(range(frame_stack)):
    frame = dataset.take(name, episodes, steps - lag)
    frames.append(frame if frame.ndim > 2 else frame[..., np.newaxis])
  return np.concatenate(frames, axis=-1)


def segments(dataset: reader.Dataset, segment_length: int, num_segments: int,
             batch_size: int, seed: int,
             starts: Literal['first', 'random', 'any'] = 'first',
             min_window_return: Optional[float] = None, frame_stack: int = 1,
             first_batch: int = 0, max_length: Optional[int] = None
             ) -> Iterator[SegmentBatch]:
  """Yields batches without end: the same batches for the same seed.

  `starts` selects the trajectories:

    'first': the first N K steps of episodes, each episode once per epoch, in a random
      order that differs between epochs (RATE's T-Maze, action recall, Minigrid,
      ViZDoom). A batch may hold the end of one epoch and the beginning of the next.
    'random': windows of N K steps, drawn uniformly with replacement (Atari, MuJoCo:
      RATE draws episodes by length, and redraws windows that reach beyond the end). An
      episode shorter than a window is one window.
    'any': the same, but windows may reach beyond the end, so that one begins at each
      step (TAP).

  Args:
    dataset: the dataset to read.
    segment_length: K.
    num_segments: N.
    batch_size: B.
    seed: seeds the order or the windows.
    starts: 'first', 'random' or 'any'.
    min_window_return: not for 'first': the least sum of rewards within a window
      (RATE's Memory Maze has 2).
    frame_stack: see `gather`.
    first_batch: number of the first batch, to continue where another iterator stopped.
    max_length: for 'first' only: longer episodes are left out.
  """
  if starts not in ('first', 'random', 'any'):
    raise ValueError(f"starts = {starts!r}: expected 'first', 'random' or 'any'")
  for name, value, is_for_first in (('min_window_return', min_window_return, False),
                                    ('max_length', max_length, True)):
    if value is not None and is_for_first != (starts == 'first'):
      raise ValueError(f'{name} = {value}: expected None, as starts = {starts!r}')
  if not dataset.num_episodes:
    raise DatasetError(f'{dataset.path}: has no episodes')
  length = segment_length * num_segments
  if starts == 'first':
    chosen = np.arange(dataset.num_episodes)
    if max_length is not None:
      chosen = chosen[dataset.lengths <= max_length]
      if not len(chosen):
        raise DatasetError(f'{dataset.path}: no episode has {max_length} steps or less')
    draw = functools.partial(_in_epochs, chosen, batch_size, seed)
  else:
    episodes, first_steps, counts = _windows(
        dataset, length, min_window_return, starts == 'any')
    draw = functools.partial(
        _uniform, episodes, first_steps, np.cumsum(counts), batch_size, seed)
  return _batches(dataset, draw, length, frame_stack, first_batch)


def _batches(dataset, draw, length, frame_stack, number) -> Iterator[SegmentBatch]:
  while True:
    yield gather(dataset, *draw(number), length, frame_stack)
    number += 1


def _in_epochs(chosen: np.ndarray, batch_size: int, seed: int, number: int
               ) -> Tuple[np.ndarray, np.ndarray]:
  """Returns episodes and first steps of a batch, among the `chosen` episodes."""
  position = number * batch_size + np.arange(batch_size)
  epochs, places = np.divmod(position, len(chosen))
  episodes = np.empty(batch_size, np.int64)
  for epoch in np.unique(epochs):
    here = epochs == epoch
    episodes[here] = chosen[_order(len(chosen), seed, int(epoch))[places[here]]]
  return episodes, np.zeros(batch_size, np.int64)


@functools.lru_cache(4)
def _order(num_episodes: int, seed: int, epoch: int) -> np.ndarray:
  return np.random.default_rng([seed, epoch]).permutation(num_episodes)


def _uniform(episodes, first_steps, ends, batch_size: int, seed: int, number: int
             ) -> Tuple[np.ndarray, np.ndarray]:
  """Returns episodes and first steps of a batch, from runs of windows.

  Run r has `ends[r] - ends[r - 1]` windows of `episodes[r]`: the first one starts at
  `first_steps[r]`, and each starts a step after the one before.
  """
  drawn = np.random.default_rng([seed, number]).integers(ends[-1], size=batch_size)
  run = np.searchsorted(ends, drawn, side='right')
  return episodes[run], first_steps[run] + drawn - np.append(0, ends)[run]


def _windows(dataset: reader.Dataset, length: int, min_return: Optional[float],
             beyond: bool) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns runs of windows: episodes, first steps, and numbers of windows."""
  counts = dataset.lengths if beyond else np.maximum(dataset.lengths - length + 1, 1)
  if min_return is None:
    return np.arange(dataset.num_episodes), np.zeros_like(counts), counts
  episodes, first_steps = [], []
  for i, count in enumerate(counts):
    total = np.append(0, np.cumsum(dataset.episode(i).reward, dtype=np.float64))
    last = np.minimum(np.arange(count) + length, len(total) - 1)
    enough = np.flatnonzero(total[last] - total[:count] >= min_return)
    first_steps.append(enough)
    episodes.append(np.full(len(enough), i))
  if not sum(map(len, episodes)):
    raise DatasetError(f'{dataset.path}: no window of {length} steps has a return of '
                       f'{min_return} or more')
  return (np.concatenate(episodes), np.concatenate(first_steps),
          np.ones(sum(map(len, episodes)), np.int64))
