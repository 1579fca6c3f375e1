"""Reads datasets and detects damage in them."""

import functools
import os
import pathlib
import re
from typing import Any, Dict, Tuple, Union

import numpy as np
import tree

from gtrxl_tf import files as files_lib
from gtrxl_tf.datasets import format as format_lib

DatasetError = format_lib.DatasetError

_SHARD = re.compile(r'shard-[0-9]{5,}')

# In one dataset. Each takes a file descriptor, of which a process may have few.
_ARRAYS_OPEN = 512


class Dataset:
  """The episodes in a folder, as memory-mapped arrays; made by `open_dataset`.

  `EpisodeWriter` has an example.

  Attributes:
    path: the folder.
    kind: 'episodes' or 'histories'.
    environment: its name.
    settings: with which the episodes were collected.
    num_episodes: E.
    num_steps: in all episodes.
    specs: of a step.
    lengths: int64 [E], steps of each episode.
    successes: float32 [E], 1 or 0; NaN if it is not known.
  """

  def __init__(self, path: pathlib.Path, description: Dict[str, Any]):
    self.path = path
    self.kind: str = description['kind']
    self.environment: str = description['environment']
    self.settings: str = description['settings']
    self.num_episodes: int = description['num_episodes']
    self.num_steps: int = description['num_steps']
    self.specs = format_lib.specs_from_json(description['arrays'])
    self._final = description['final_observation']
    self._names = list(self.specs.leaves())
    self._shards = [shard['name'] for shard in description['shards']]
    self._files = [shard['files'] for shard in description['shards']]
    self._array = functools.lru_cache(_ARRAYS_OPEN)(self._open_array)
    self._offsets = [
        _checked_offset(self._file(i, 'offset'), np.array(self._array(i, 'offset')),
                        shard['num_steps'])
        for i, shard in enumerate(description['shards'])]
    none = [np.zeros(0, np.int64)]
    self.lengths = np.concatenate(none + [np.diff(x) for x in self._offsets])
    self.successes = np.concatenate(
        [np.zeros(0, np.float32)]
        + [self._array(i, 'success') for i in range(len(self._shards))])
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

  def observation_statistics(self) -> Tuple[Any, Any]:
    """Returns the mean and standard deviation of every number of an observation.

    Returns:
      Two nests of float64 arrays, as an observation.
    """
    found = []
    for name in self._names:
      if format_lib.is_observation(name):
        sums = [(np.sum(x, axis=0, dtype=np.float64),
                 np.sum(np.square(x, dtype=np.float64), axis=0))
                for x in (self._array(i, name) for i in range(len(self._shards)))]
        mean, square = np.sum(sums, axis=0) / max(self.num_steps, 1)
        found.append((mean, np.sqrt(np.maximum(square - mean**2, 0))))
    return tuple(tree.unflatten_as(self.specs.observation, leaves)
                 for leaves in zip(*found))

  def episode(self, i: int) -> format_lib.Episode:
    """Returns episode `i`; its arrays are views of the files."""
    shard, start, stop = self.place(i)
    steps = [self._array(shard, name)[start:stop] for name in (*self._names, 'end')]
    *nests, end = steps
    observation, action, reward, discount = tree.unflatten_as(self.specs, nests)
    final = None
    if self._final:
      row = i - self._first_episodes[shard]
      final = tree.unflatten_as(self.specs.observation, [
          self._array(shard, f'final_{name}')[row] for name in self._names
          if format_lib.is_observation(name)])
    return format_lib.Episode(observation, action, reward, discount, end,
                              float(self.successes[i]), final)

  def place(self, i: int) -> tuple[int, int, int]:
    """Returns where episode `i` is.

    Returns:
      Number of the shard, and the episode's rows in its arrays: the first one, and the
      one after the last.

    Raises:
      IndexError: there is no such episode.
    """
    if not 0 <= i < self.num_episodes:
      raise IndexError(f'episode {i}: expected one of {self.num_episodes}')
    shard = int(np.searchsorted(self._first_episodes, i, side='right')) - 1
    row = i - self._first_episodes[shard]
    return shard, int(self._offsets[shard][row]), int(self._offsets[shard][row + 1])

  def array(self, shard: int, name: str) -> np.ndarray:
    """Returns a shard's memory-mapped array of steps, by its name in `format.py`."""
    return self._array(shard, name)

  def check(self) -> None:
    """Checks every byte; see the function `check`."""
    for i, files in enumerate(self._files):
      for name, recorded in files.items():
        file = self.path / self._shards[i] / name
        found = files_lib.checksum(file)
        if found != recorded['crc32']:
          raise DatasetError(f'{file}: was changed after it was written: its checksum '
                             f'is {found}, expected {recorded["crc32"]}')
      self._check_steps(i)

  def _check_steps(self, shard: int) -> None:
    """Checks that the shard's values can be those of episodes."""
    offset = self._offsets[shard]
    for name in (*self._names, 'end'):
      array = self._array(shard, name)
      # Complete episodes, about a block at a time.
      rows = max(1, files_lib.BLOCK_BYTES * len(array) // max(array.nbytes, 1))
      starts = [0]
      while starts[-1] < len(offset) - 1:
        end = int(np.searchsorted(offset, offset[starts[-1]] + rows, side='right')) - 1
        starts.append(max(end, starts[-1] + 1))
      for first, last in zip(starts, starts[1:]):
        try:
          format_lib.check_steps(
              self.specs, self.kind, {name: array[offset[first]:offset[last]]},
              offset[first:last + 1] - offset[first],
              self._first_episodes[shard] + first)
        except DatasetError as error:
          raise DatasetError(f'{self._file(shard, name)}: {error}') from error

  def _file(self, shard: int, name: str) -> pathlib.Path:
    return self.path / self._shards[shard] / f'{name}.npy'

  def _open_array(self, shard: int, name: str) -> np.ndarray:
    array = np.load(self._file(shard, name), mmap_mode='r', allow_pickle=False)
    return array.view(np.ndarray)  # Still mapped; slicing takes a third of the time.


def open_dataset(path: Union[str, os.PathLike]) -> Dataset:
  """Opens the dataset in the folder `path`.

  Checks everything but the values: that all files exist with the size, shape and dtype
  in dataset.json, and where episodes begin. `check` does the rest.

  Raises:
    DatasetError: the dataset is damaged; names the file and what is wrong.
  """
  path = pathlib.Path(path)
  description = format_lib.read_description(path)
  if description is None:
    raise DatasetError(f'{path}: no dataset: there is no dataset.json. Datasets are '
                       'made by `gtrxl collect` and `gtrxl import_dataset`')
  try:
    _check_files(path, description)
    return Dataset(path, description)
  except DatasetError:
    raise
  except (AttributeError, IndexError, KeyError, MemoryError, TypeError,
          ValueError) as error:
    raise DatasetError(f'{path / "dataset.json"}: not as a writer leaves it: '
                       f'{type(error).__name__}: {" ".join(str(error).split()):.100}'
                       ) from error


def check(path: Union[str, os.PathLike]) -> Dataset:
  """Opens the dataset in the folder `path` and checks every byte of it.

  Beyond what `open_dataset` checks: checksums, finite numbers, discounts in [0, 1],
  actions that the spec admits, and ends where episodes end. This takes as long as
  reading the files.

  Raises:
    DatasetError: the dataset is damaged; names the file and what is wrong.
  """
  dataset = open_dataset(path)
  dataset.check()
  return dataset


def _check_files(path: pathlib.Path, description: Dict[str, Any]) -> None:
  shards = description['shards']
  for name in ('num_episodes', 'num_steps'):
    parts = [shard[name] for shard in shards]
    if description[name] != sum(parts) or min(parts, default=1) < 1:
      raise DatasetError(
          f'{path / "dataset.json"}: {name} is {description[name]!r}, of the shards '
          f'{parts}: expected the sum of positive numbers')
  if description['kind'] not in format_lib.KINDS:
    raise DatasetError(f'{path / "dataset.json"}: kind is {description["kind"]!r}: '
                       f'expected one of {format_lib.KINDS}')
  try:
    steps, episodes = format_lib.array_specs(
        format_lib.specs_from_json(description['arrays']),
        description['final_observation'])
  except DatasetError as error:
    raise DatasetError(f'{path / "dataset.json"}: {error}') from error
  names = sorted(f'{name}.npy' for name in ('offset', *steps, *episodes))
  for shard in shards:
    if not _SHARD.fullmatch(shard['name']):  # It could lead out of the folder.
      raise DatasetError(
          f'{path / "dataset.json"}: a shard is named {shard["name"]!r:.100}: expected '
          'shard- and its number')
    if sorted(shard['files']) != names:
      raise DatasetError(
          f'{path / "dataset.json"}: {shard["name"]} has the files '
          f'{str(sorted(shard["files"])):.300}: expected {names}')
    rows = {'offset': (shard['num_episodes'] + 1, (), np.dtype(np.int64))}
    rows.update({name: (shard['num_steps'], spec.shape, spec.dtype)
                 for name, spec in steps.items()})
    rows.update({name: (shard['num_episodes'], spec.shape, spec.dtype)
                 for name, spec in episodes.items()})
    for name, (num, shape, dtype) in rows.items():
      file = path / shard['name'] / f'{name}.npy'
      _check_header(file, shard['files'][file.name]['bytes'], (num, *shape), dtype)


def _check_header(file: pathlib.Path, num_bytes: int, shape, dtype) -> None:
  format_lib.check_is_file(file)
  if file.stat().st_size != num_bytes:
    raise DatasetError(
        f'{file}: has {file.stat().st_size:,} bytes: expected {num_bytes:,}')
  try:
    array = np.load(file, mmap_mode='r', allow_pickle=False)
  except Exception as error:  # NumPy parses headers as Python: many types are possible.
    raise DatasetError(f'{file}: not an array: {str(error):.100}') from error
  if array.shape != tuple(shape) or array.dtype != dtype:
    raise DatasetError(f'{file}: has shape {array.shape} and dtype {array.dtype}: '
                       f'expected {tuple(shape)} and {dtype}')


def _checked_offset(file: pathlib.Path, offset: np.ndarray, num_steps: int
                    ) -> np.ndarray:
  rising = offset[0] == 0 and offset[-1] == num_steps and (np.diff(offset) > 0).all()
  if not rising:
    raise DatasetError(
        f'{file}: expected numbers that rise from 0 to {num_steps}, got '
        f'{np.array2string(offset, threshold=6, edgeitems=3)}')
  return offset
