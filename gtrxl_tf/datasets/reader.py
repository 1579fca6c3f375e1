"""Reads datasets: episodes, and batches of segments with static shapes."""

import copy
import functools
import math
import os
import pathlib
from typing import Any, Dict, Iterator, Literal, NamedTuple, Optional, Sequence, Set, Tuple, Union

import numpy as np
import tree

from gtrxl_tf import environments
from gtrxl_tf import files as files_lib
from gtrxl_tf.datasets import format as format_lib
from gtrxl_tf.environments import specs as specs_lib

DatasetError = format_lib.DatasetError

# Arrays that a dataset keeps open. Each takes a file descriptor, of which a process may
# have few.
_ARRAYS_OPEN = 512
# The most rows, and the most numbers, whose squares are in memory at once.
_STATISTICS_ROWS, _STATISTICS_NUMBERS = 2**14, 2**22


class Dataset:
  """The episodes in a folder, as memory-mapped arrays; made by `open_dataset`.

  `EpisodeWriter` has an example.

  Attributes:
    path: the folder.
    kind: 'episodes' or 'histories'.
    checksum: checksum of the description, which has the checksums of all files.
    environment: its name.
    settings: the settings with which the episodes were collected.
    num_episodes: E.
    num_steps: the steps of all episodes.
    specs: the specs of a step.
    array_names: the names of the arrays of steps, in the order of `specs`, without
      `end`.
    lengths: int64 [E], steps of each episode.
    successes: float32 [E], 1 or 0; NaN if it is not known.
  """

  def __init__(self, path: pathlib.Path, description: Dict[str, Any],
               specs: Optional[format_lib.Specs] = None):
    self.path = path
    self.checksum = files_lib.seal(description)
    self.kind: str = description['kind']
    self.environment: str = description['environment']
    self.settings: str = description['settings']
    self.num_episodes: int = description['num_episodes']
    self.num_steps: int = description['num_steps']
    self.specs = format_lib.specs_from_json(description['arrays'])
    old = self.specs.leaves()
    new = specs.leaves() if specs and description['version'] == 1 else {}
    self._shifts = {name: specs_lib.shift(old[name], new.get(name)) for name in old}
    self.specs = tree.unflatten_as(self.specs, [
        new[name] if np.any(self._shifts[name]) else old[name] for name in old])
    self._final = description['final_observation']
    self.array_names = list(self.specs.leaves())
    self._return_discount = 1.0
    self._end_reward = None
    self._shards = [shard['name'] for shard in description['shards']]
    self._open: Dict[Tuple[int, str], np.ndarray] = {}
    self._offsets, successes = (
        [np.load(path / shard / f'{name}.npy', allow_pickle=False)
         for shard in self._shards] for name in ('offset', 'success'))
    none = [np.zeros(0, np.int64)]
    # Each episode's shard, and its rows there.
    self._shard = np.repeat(np.arange(len(self._offsets)),
                            [len(x) - 1 for x in self._offsets])
    self._begin = np.concatenate(none + [x[:-1] for x in self._offsets])
    self._end = np.concatenate(none + [x[1:] for x in self._offsets])
    self.lengths = self._end - self._begin
    self.successes = np.concatenate([np.zeros(0, np.float32), *successes])
    self._first_episodes = np.cumsum([0] + [len(x) - 1 for x in self._offsets])

  def observation_spec(self) -> Any:
    """Returns the nest of dm_env specs of a step's observation."""
    return self.specs.observation

  def action_spec(self) -> Any:
    """Returns the nest of dm_env specs of a step's action."""
    return self.specs.action

  @functools.cached_property
  def returns(self) -> np.ndarray:
    """The sum of each episode's rewards, float64 [E]."""
    sums = [np.add.reduceat(self._array(i, 'reward'), offset[:-1], dtype=np.float64)
            for i, offset in enumerate(self._offsets)]
    return np.concatenate([np.zeros(0)] + sums)

  def relabeled(self, return_discount: float, end_reward: Optional[float]
                ) -> 'Dataset':
    """Returns the same steps with other rewards; nothing is written.

    Args:
      return_discount: the discount with which `return_to_go` is summed.
      end_reward: the reward of steps that end the task; None leaves them.
    """
    other = copy.copy(self)
    other.__dict__.pop('returns', None)
    other._return_discount, other._end_reward = return_discount, end_reward
    other._open = {}
    return other

  def observation_statistics(self) -> Tuple[Any, Any]:
    """Returns the mean and deviation of an observation: nests of float64 arrays."""
    found = map(self.statistics, filter(format_lib.is_observation, self.array_names))
    return tuple(tree.unflatten_as(self.specs.observation, leaves)
                 for leaves in zip(*found))

  def statistics(self, name: str) -> Tuple[np.ndarray, np.ndarray]:
    """Returns the mean and standard deviation, float64 [...], of an array of steps."""
    if not self.num_episodes:
      raise DatasetError(f'{self.path}: has no episodes')
    # In parts, since squares take eight times the memory of a picture's bytes.
    size = max(1, math.prod(self._array(0, name).shape[1:]))
    rows = max(1, min(_STATISTICS_ROWS, _STATISTICS_NUMBERS // size))
    parts = (array[start:start + rows]
             for array in (self._array(i, name) for i in range(len(self._shards)))
             for start in range(0, len(array), rows))
    mean, square = functools.reduce(np.add, (
        np.array([np.sum(x, axis=0, dtype=np.float64),
                  np.sum(np.square(x, dtype=np.float64), axis=0)])
        for x in parts)) / self.num_steps
    return mean, np.sqrt(np.maximum(square - mean**2, 0))

  def episode(self, i: int) -> format_lib.Episode:
    """Returns episode `i`; its arrays are views of the files."""
    if not 0 <= i < self.num_episodes:
      raise IndexError(f'episode {i}: expected one of {self.num_episodes}')
    shard, start, stop = (int(x[i]) for x in (self._shard, self._begin, self._end))
    *nests, end = (
        self._array(shard, name)[start:stop] for name in (*self.array_names, 'end'))
    final = None
    if self._final:
      row = i - self._first_episodes[shard]
      final = tree.unflatten_as(self.specs.observation, [
          self._array(shard, f'final_{name}')[row] for name in self.array_names
          if format_lib.is_observation(name)])
    return format_lib.Episode(*tree.unflatten_as(self.specs, nests), end,
                              float(self.successes[i]), final)

  def take(self, name: str, episodes: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Reads steps of several episodes from one array.

    Args:
      name: the array's in `format.py`, or `return_to_go`: float32, the sum of the
        rewards from a step to the next one that ends an episode, undiscounted unless
        `relabeled` says otherwise.
      episodes: [B], their numbers.
      steps: [B, T], numbers of steps in each of them.

    Returns:
      [B, T, ...], a copy; 0 before an episode's first step and after its last one.
    """
    shards = self._shard[episodes]
    known = (0 <= steps) & (steps < self.lengths[episodes][:, np.newaxis])
    rows = self._begin[episodes][:, np.newaxis] + np.where(known, steps, 0)
    taken = None
    for shard in np.unique(shards):
      here = shards == shard
      found = self._array(int(shard), name)[rows[here]]
      if taken is None:
        taken = np.empty((*steps.shape, *found.shape[2:]), found.dtype)
      taken[here] = found
    taken[~known] = 0
    return taken

  def _array(self, shard: int, name: str) -> np.ndarray:
    if (shard, name) not in self._open:
      if len(self._open) == _ARRAYS_OPEN:
        del self._open[next(iter(self._open))]
      self._open[shard, name] = self._read(shard, name)
    return self._open[shard, name]

  def _read(self, shard: int, name: str) -> np.ndarray:
    if name == 'return_to_go':
      return _returns_to_go(self._array(shard, 'reward'), self._array(shard, 'end'),
                            self._offsets[shard], self._return_discount)
    file = self.path / self._shards[shard] / f'{name}.npy'
    array = np.load(file, mmap_mode='r', allow_pickle=False)
    array = array.view(np.ndarray)  # Still mapped; slicing takes a third of the time.
    if np.any(shift := self._shifts.get(name.removeprefix('final_'))):
      return array + shift
    if name == 'reward' and self._end_reward is not None:
      ends = self._array(shard, 'end') == format_lib.End.TERMINATION
      return np.where(ends, self._end_reward, array).astype(np.float32)
    return array


def open_dataset(path: Union[str, os.PathLike]) -> Dataset:
  """Opens the dataset in the folder `path`, and checks that all files have their size."""
  return Dataset(pathlib.Path(path), _described(path))


def check(path: Union[str, os.PathLike], specs: Optional[format_lib.Specs] = None
          ) -> Dataset:
  """Opens the dataset in the folder `path` and compares all files with their checksums.

  The writer has checked the values. If the specs of an environment are given, integers
  that version 1 counts from 0 become those of the environment.
  """
  return Dataset(pathlib.Path(path), _described(path, every_byte=True), specs)


def _described(path: Union[str, os.PathLike], every_byte: bool = False) -> Dict[str, Any]:
  """Returns the description of a dataset whose files all have their size, or checksum."""
  path = pathlib.Path(path)
  description = format_lib.read_description(path)
  if description is None:
    within = sorted(file.parent.name for file in path.glob('*/dataset.json'))
    raise DatasetError(f'{path.absolute()}: no dataset: there is no dataset.json. ' + (
        f'Expected one of the datasets in it: {", ".join(within)}' if within else
        'Datasets are made by `gtrxl collect`, `gtrxl collect_histories`, `gtrxl '
        'import_dataset` and datasets.EpisodeWriter'))
  for shard in description['shards']:
    for name, recorded in shard['files'].items():
      file = path / shard['name'] / name
      if not file.exists():
        raise DatasetError(f'{file}: missing')
      if (size := file.stat().st_size) != recorded['bytes']:
        raise DatasetError(f'{file}: has {size:,} bytes: expected {recorded["bytes"]:,}')
      if every_byte and (found := files_lib.checksum(file)) != recorded['crc32']:
        raise DatasetError(f'{file}: was changed after it was written: its checksum '
                           f'is {found}, expected {recorded["crc32"]}')
  return description


def _returns_to_go(reward: np.ndarray, end: np.ndarray, offset: np.ndarray,
                   discount: float) -> np.ndarray:
  """Returns the sums of rewards from each step to the end of its episode, [steps].

  An episode of which the end was not recorded is summed to the end of its recording.
  """
  if discount != 1:
    follows = np.where(end > 0, 0., discount)
    follows[offset[1:] - 1] = 0
    returns, later = np.empty(len(reward), np.float32), 0.
    for i in reversed(range(len(reward))):
      later = float(reward[i]) + follows[i] * later
      returns[i] = later
    return returns
  rest = np.append(np.cumsum(reward[::-1], dtype=np.float64)[::-1], 0.0)
  ends = np.union1d(np.flatnonzero(end), offset[1:] - 1)
  following = ends[np.searchsorted(ends, np.arange(len(reward)))]
  return (rest[:-1] - rest[following + 1]).astype(np.float32)


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


def gather(dataset: Dataset, episodes: Sequence[int], starts: Sequence[int],
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


def _stack_frames(dataset: Dataset, name: str, episodes: np.ndarray,
                  steps: np.ndarray, frame_stack: int) -> np.ndarray:
  """Reads stacks of S frames: [B, T, ..., C S] or [B, T, S]; 0 before an episode."""
  frames = []
  for lag in reversed(range(frame_stack)):
    frame = dataset.take(name, episodes, steps - lag)
    frames.append(frame if frame.ndim > 2 else frame[..., np.newaxis])
  return np.concatenate(frames, axis=-1)


def segments(dataset: Dataset, segment_length: int, num_segments: int,
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


def _windows(dataset: Dataset, length: int, min_return: Optional[float],
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
