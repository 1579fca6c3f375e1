"""Batches of trajectories with static shapes, for training by segments."""

import functools
from typing import Any, Iterator, Literal, NamedTuple, Optional, Sequence, Tuple

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
    return_to_go: float32 [B, T], the undiscounted sum of the rewards from this step to
      the end of the episode, even if that is beyond the T steps.
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
    dataset: to read.
    episodes: [B] numbers of episodes.
    starts: [B] the first step of each.
    length: T.
    frame_stack: number of steps whose observations are stacked along their last axis,
      the newest last; 0 stands for steps before the episode. `environments.FrameStack`
      does the same while an agent plays. Atari's pictures are stored once and seen four
      at a time.
  """
  num = len(episodes)
  specs = dataset.specs
  if frame_stack > 1:
    specs = specs._replace(
        observation=environments.stacked_spec(specs.observation, frame_stack))
  blank = {}
  for name, spec in specs.leaves().items():
    dtype = np.float32 if name in ('reward', 'discount') else spec.dtype
    blank[name] = np.zeros((num, length, *spec.shape), dtype)
  end = np.zeros((num, length), np.uint8)
  return_to_go = np.zeros((num, length), np.float32)
  mask = np.zeros((num, length), bool)

  for b, (episode, start) in enumerate(zip(episodes, starts)):
    shard, begin, stop = dataset.place(episode)
    first = begin + start
    last = min(first + length, stop)
    valid = last - first
    for name, rows in blank.items():
      array = dataset.array(shard, name)
      if format_lib.is_observation(name):
        _stack_frames(rows[b], array, begin, first, last)
        rows[b, valid:] = rows[b, valid - 1]
      else:
        rows[b, :valid] = array[first:last]
    end[b, :valid] = dataset.array(shard, 'end')[first:last]
    return_to_go[b, :valid] = _returns_to_go(
        dataset.array(shard, 'reward')[first:stop],
        dataset.array(shard, 'end')[first:stop])[:valid]
    mask[b, :valid] = True

  observation, action, reward, discount = tree.unflatten_as(
      dataset.specs, list(blank.values()))
  return SegmentBatch(observation, action, reward, discount, end, return_to_go, mask,
                      np.array(episodes, np.int64), np.array(starts, np.int64))


def _stack_frames(rows: np.ndarray, array: np.ndarray, begin: int, first: int,
                  last: int) -> None:
  """Fills [T, ..., C S] from [steps, ..., C], without rows before `begin`.

  Single numbers, `[steps]`, fill [T, S].
  """
  if rows.shape[1:] == array.shape[1:]:
    rows[:last - first] = array[first:last]
    return
  if array.ndim == 1:
    array = array[:, np.newaxis]
  channels = array.shape[-1]
  frame_stack = rows.shape[-1] // channels
  for lag in range(min(frame_stack, last - begin)):
    known = max(first - lag, begin)
    place = slice((frame_stack - 1 - lag) * channels, (frame_stack - lag) * channels)
    rows[known - first + lag:last - first, ..., place] = array[known:last - lag]


def _returns_to_go(reward: np.ndarray, end: np.ndarray) -> np.ndarray:
  """Returns sums [T] from each step to the next one that ends an episode, inclusive."""
  rest = np.append(np.cumsum(reward[::-1], dtype=np.float64)[::-1], 0.0)
  ends = np.append(np.flatnonzero(end), len(reward) - 1)
  return rest[:-1] - rest[ends[np.searchsorted(ends, np.arange(len(reward)))] + 1]


def segments(dataset: reader.Dataset, segment_length: int, num_segments: int,
             batch_size: int, seed: int, starts: Literal['first', 'random'] = 'first',
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

  Args:
    dataset: to read.
    segment_length: K.
    num_segments: N.
    batch_size: B.
    seed: of the order or the windows.
    starts: 'first' or 'random'.
    min_window_return: for 'random' only: the least sum of rewards within a window
      (RATE's Memory Maze has 2).
    frame_stack: see `gather`.
    first_batch: number of the first batch, to continue where another iterator stopped.
    max_length: for 'first' only: longer episodes are left out.

  Raises:
    DatasetError: there are no such trajectories.
    ValueError: there is no such value of `starts`, or one argument excludes another.
  """
  if starts not in ('first', 'random'):
    raise ValueError(f"starts = {starts!r}: expected 'first' or 'random'")
  if starts == 'first' and min_window_return is not None:
    raise ValueError(f'min_window_return = {min_window_return}: expected None, as '
                     "starts = 'first'")
  if starts == 'random' and max_length is not None:
    raise ValueError(f'max_length = {max_length}: expected None, as '
                     "starts = 'random'")
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
    episodes, first_steps, counts = _windows(dataset, length, min_window_return)
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


def _windows(dataset: reader.Dataset, length: int, min_return: Optional[float]
             ) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns runs of windows: episodes, first steps, and numbers of windows."""
  counts = np.maximum(dataset.lengths - length + 1, 1)
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
