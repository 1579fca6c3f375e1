"""Writes datasets; a writer that is killed at any moment leaves a valid one."""

import io
import itertools
import os
import pathlib
import shutil
from typing import Any, Dict, List, Literal, Sequence, Tuple, Union
import zlib

from dm_env import specs as dm_specs
import numpy as np
import tree

from gtrxl_tf import files as files_lib
from gtrxl_tf.datasets import format as format_lib
from gtrxl_tf.environments import specs as specs_lib

DatasetError, End = format_lib.DatasetError, format_lib.End


class EpisodeWriter:
  """Adds episodes to the dataset in a folder; a context manager.

  Episodes wait in memory until there are enough of them for a shard. If a writer is
  killed, those that wait are lost; `progress` says where to continue.

  >>> import tempfile
  >>> from dm_env import specs as dm_specs
  >>> from gtrxl_tf import datasets
  >>> specs = datasets.Specs(
  ...     dm_specs.Array((2,), np.float32), dm_specs.DiscreteArray(3))
  >>> episode = datasets.Episode(
  ...     observation=np.zeros((4, 2), np.float32), action=np.zeros(4, np.int32),
  ...     reward=np.ones(4, np.float32), discount=np.float32([1, 1, 1, 0]),
  ...     end=np.uint8([0, 0, 0, datasets.End.TERMINATION]))
  >>> path = tempfile.mkdtemp()
  >>> with EpisodeWriter(path, specs, final_observation=False) as writer:
  ...   writer.write([episode, episode])
  >>> dataset = datasets.open_dataset(path)
  >>> dataset.num_episodes, dataset.returns.tolist()
  (2, [4.0, 4.0])

  Attributes:
    num_episodes: episodes so far, with those that wait.
    num_steps: steps so far, with those that wait.
    progress: as given with the last episodes that were written; None at the start.
  """

  def __init__(self, path: Union[str, os.PathLike], specs: format_lib.Specs,
               environment: str = '', settings: str = '',
               kind: Literal['episodes', 'histories'] = 'episodes',
               final_observation: bool = True,
               shard_bytes: int = 2**28, shard_episodes: int = 1000):
    """Opens the dataset in the folder `path`, or begins one.

    A shard is full when it has `shard_bytes` or `shard_episodes`. A `DatasetError` says
    if there is a dataset with other specs or settings, or another writer.

    Args:
      path: a folder; it need not exist.
      specs: the specs of a step.
      environment: its name.
      settings: the settings with which the episodes are collected.
      kind: see `format.py`.
      final_observation: whether episodes have one.
      shard_bytes: see above.
      shard_episodes: see above.
    """
    if kind not in format_lib.KINDS:
      raise ValueError(f'kind = {kind!r}: expected one of {format_lib.KINDS}')
    if '://' in str(path):
      raise DatasetError(f'{path}: expected a folder on a disk')
    self._path = pathlib.Path(path)
    self._shard_bytes = shard_bytes
    self._shard_episodes = shard_episodes
    scalar = dm_specs.Array((), np.float32)
    # The specs of an episode. `()` has no arrays.
    self._specs = format_lib.Episode(
        *specs, dm_specs.Array((), np.uint8), scalar,
        specs.observation if final_observation else ())
    self._waiting: List[Dict[str, np.ndarray]] = []
    self._waiting_bytes = 0
    head = {
        'kind': kind, 'environment': environment, 'settings': settings,
        'arrays': {name: format_lib.spec_to_json(name, spec)
                   for name, spec in specs.leaves().items()},
        'final_observation': final_observation}
    try:
      self._path.mkdir(parents=True, exist_ok=True)
      self._lock = os.open(self._path, os.O_RDONLY)
    except OSError as error:
      raise DatasetError(f'{self._path}: {error.strerror}: expected a folder for the '
                         'dataset, which exists or can be made') from error
    try:
      files_lib.lock(self._lock)
      self._description = self._read_or_begin(head)
    except BaseException as error:
      os.close(self._lock)
      if isinstance(error, BlockingIOError):
        raise DatasetError(f'{self._path}: another process is writing it') from error
      raise
    self.num_episodes = self._description['num_episodes']
    self.num_steps = self._description['num_steps']
    self.progress = self._description['progress']

  def _read_or_begin(self, head: Dict[str, Any]) -> Dict[str, Any]:
    description = format_lib.read_description(self._path)
    if description is None and any(self._path.glob('shard-*')):
      raise DatasetError(f'{self._path}: has shards but no dataset.json')
    # A start that failed before its first episode leaves only a description.
    if description is None or not (description['shards'] or description['progress']):
      description = {'format': format_lib.FORMAT, 'version': format_lib.VERSION, **head,
                     'num_episodes': 0, 'num_steps': 0, 'progress': None, 'shards': []}
      files_lib.write_sealed(self._path / 'dataset.json', description)
      return description
    for key, value in head.items():
      if description[key] != value:
        place, there, ours = _first_difference(key, description[key], value)
        raise DatasetError(f'{self._path}: has other {place}: {str(there):.300}: expected '
                           f"the writer's {str(ours):.300}, or a new folder")
    return description

  def __enter__(self) -> 'EpisodeWriter':
    return self

  def __exit__(self, *unused_error) -> None:
    self.close()

  def write(self, episodes: Sequence[format_lib.Episode], progress: Any = None) -> None:
    """Adds episodes: all of them, or none if one does not fit the specs.

    Their arrays are copied: the caller may use them again. After an OSError, as on a full
    disk, they wait for the next `write` or `close`.

    Args:
      episodes: any number.
      progress: where to continue after them; any JSON value.
    """
    if self._lock is None:
      raise DatasetError(f'{self._path}: the writer is closed: expected write() before close()')
    checked = [self._checked(episode, number)
               for number, episode in enumerate(episodes, self.num_episodes)]
    self._waiting += checked
    self._waiting_bytes += sum(
        array.nbytes for arrays in checked for array in arrays.values())
    self.num_episodes += len(checked)
    self.num_steps += sum(len(arrays['end']) for arrays in checked)
    self.progress = progress
    if (self._waiting_bytes >= self._shard_bytes
        or len(self._waiting) >= self._shard_episodes):
      self._commit()

  def close(self) -> None:
    """Writes the episodes that wait, and lets other processes write; once."""
    if self._lock is None:
      return
    try:
      if self._waiting or self.progress != self._description['progress']:
        self._commit()
    finally:
      os.close(self._lock)
      self._lock = None

  def _checked(self, episode: format_lib.Episode, number: int) -> Dict[str, np.ndarray]:
    """Returns copies of the arrays of steps, and those of the episode as [1, ...]."""
    place = f'episode {number}'
    if not isinstance(episode, format_lib.Episode):
      raise DatasetError(f'{place} is a {type(episode).__name__}: expected an Episode')
    success = np.asarray(episode.success)
    if (success.shape or success.dtype.kind not in 'bif'
        or not (np.isnan(success) or 0 <= success <= 1)):
      raise DatasetError(f'{place}: success is {episode.success}: expected a number '
                         'from 0 to 1, or NaN if it is not known')
    episode = episode._replace(success=success.astype(np.float32))
    if not (num := np.size(episode.end)):
      raise DatasetError(f'{place} has no steps')
    arrays = {}
    for root, nest, specs in zip(episode._fields, episode, self._specs):
      once = root in ('success', 'final_observation')
      try:
        leaves = tree.flatten_up_to(specs, () if nest is None else nest)
      except (TypeError, ValueError) as error:
        raise DatasetError(f'{place}: {root} is no nest as its spec: {error}') from error
      for leaf, (path, spec) in zip(leaves, tree.flatten_with_path(specs)):
        name = format_lib.array_name(root, path)
        found = getattr(leaf, 'shape', None), getattr(leaf, 'dtype', type(leaf).__name__)
        expected = spec.shape if once else (num, *spec.shape), spec.dtype
        if found != expected:
          raise DatasetError(f'{place}: {name} has shape {found[0]} and dtype {found[1]}: '
                             f'expected an array of {expected[0]} and {expected[1]}')
        arrays[name] = np.array(leaf[np.newaxis] if once else leaf)
        self._check_values(name, arrays[name], spec, number)
    ends, discounts = arrays['end'], arrays['discount']
    wrong = (ends != End.NONE) & ((ends == End.TERMINATION) != (discounts == 0))
    if wrong.any():
      step = int(np.argmax(wrong))
      raise DatasetError(
          f'discount of episode {number}, step {step}, is {discounts[step]}, and its end '
          f'is {End(ends[step]).name}: expected 0 where the task ends, and more where the '
          'episode is cut off')
    return arrays

  def _check_values(self, name: str, array: np.ndarray, spec: dm_specs.Array,
                    number: int) -> None:
    """Checks that values can be those of an array of episode `number`, [T, ...]."""
    wrong, expected = np.zeros(array.shape, bool), ''
    if name == 'end':
      wrong, expected = array > max(End), '0, 1 or 2'
      if self._description['kind'] == 'episodes':
        wrong |= (array != End.NONE) != (np.arange(len(array)) == len(array) - 1)
        expected = 'an end at the last step of an episode and nowhere else'
    elif name == 'discount':
      wrong, expected = ~((array >= 0) & (array <= 1)), 'a number in [0, 1]'
    elif array.dtype.kind == 'f' and name != 'success':
      wrong, expected = ~np.isfinite(array), 'finite numbers'
    elif isinstance(spec, dm_specs.BoundedArray):
      wrong = (array < spec.minimum) | (array > spec.maximum)
      expected = specs_lib.describe_bounds(spec)
    if wrong.any():
      step = int(np.argmax(wrong.reshape(len(array), -1).any(axis=1)))
      raise DatasetError(f'{name} of episode {number}, step {step}, is '
                         f'{str(array[step]):.60}: expected {expected}')

  def _commit(self) -> None:
    """Writes the episodes that wait as a shard."""
    description = {**self._description, 'progress': self.progress,
                   'num_episodes': self.num_episodes, 'num_steps': self.num_steps}
    if self._waiting:
      shard = self._write_shard(f'shard-{len(description["shards"]):05}')
      description['shards'] = [*description['shards'], shard]
    files_lib.write_sealed(self._path / 'dataset.json', description)
    self._description = description
    self._waiting, self._waiting_bytes = [], 0

  def _write_shard(self, name: str) -> Dict[str, Any]:
    partial = self._path / f'{name}.partial'
    # A writer that was killed may have left them; dataset.json does not list them.
    shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(self._path / name, ignore_errors=True)
    partial.mkdir()
    lengths = [len(arrays['end']) for arrays in self._waiting]
    offset = np.cumsum([0, *lengths], dtype=np.int64)
    parts = {'offset': [offset], **{
        key: [arrays[key] for arrays in self._waiting] for key in self._waiting[0]}}
    files = {f'{key}.npy': _write_array(partial / f'{key}.npy', arrays)
             for key, arrays in parts.items()}
    files_lib.sync(partial)
    os.rename(partial, self._path / name)
    files_lib.sync(self._path)
    return {'name': name, 'num_episodes': len(lengths), 'num_steps': int(offset[-1]),
            'files': files}


def _write_array(path: pathlib.Path, parts: Sequence[np.ndarray]) -> Dict[str, Any]:
  """Writes the concatenation of `parts` as .npy; returns its size and checksum.

  It works part by part, as a shard is large.
  """
  dtype = parts[0].dtype.newbyteorder('<')
  header = io.BytesIO()
  np.lib.format.write_array_header_1_0(header, {
      'descr': np.lib.format.dtype_to_descr(dtype), 'fortran_order': False,
      'shape': (sum(map(len, parts)), *parts[0].shape[1:])})
  checksum = num_bytes = 0
  with open(path, 'xb') as file:
    for data in (header.getvalue(),
                 *(np.ascontiguousarray(part, dtype) for part in parts)):
      num_bytes += file.write(data)
      checksum = zlib.crc32(data, checksum)
    file.flush()
    os.fsync(file.fileno())
  return {'bytes': num_bytes, 'crc32': f'{checksum:08x}'}


def _first_difference(name: str, was: Any, expected: Any) -> Tuple[str, Any, Any]:
  """Returns the name of what differs (keys, or the first entry or line), and both values."""
  if isinstance(was, dict):
    if was.keys() != expected.keys():
      return name, sorted(was.keys() - expected.keys()), sorted(expected.keys() - was.keys())
    key = next(key for key in was if was[key] != expected[key])
    return _first_difference(f'{name}, {key}', was[key], expected[key])
  if isinstance(was, str):
    lines = itertools.zip_longest(
        was.split('\n'), expected.split('\n'), fillvalue='nothing')
    was, expected = next(pair for pair in lines if pair[0] != pair[1])
  return name, was, expected
