"""Imports of the DQN replay dataset: replay buffers in Dopamine's layout."""

import gzip
import io
import math
import pathlib
import re
from typing import Iterator, List, Optional, Tuple, Union
import zlib

from dm_env import specs as dm_specs
import numpy as np

from gtrxl_tf.datasets import format as format_lib
from gtrxl_tf.datasets import importers

DatasetError = format_lib.DatasetError

_MAX_HEADER_BYTES = 10_000  # NumPy's own limit.
_ARRAYS = ('observation', 'action', 'reward', 'terminal')
# Dopamine puts this many blank steps before every episode, to stack frames over them.
_PADDING = 3


@importers.importer
def dqn_replay(folder: Union[str, pathlib.Path],
               max_steps_per_file: Optional[int] = None,
               action_names: Tuple[str, ...] = ()) -> importers.Recording:
  """Reads replay buffers of DQN in Dopamine's layout, as in the DQN replay dataset.

  The folder has `$store$_observation_ckpt.N.gz` and, for every N, files for action,
  reward and terminal: gzipped NumPy arrays. Observations are single pictures, here
  [height, width, 1]; `segments(frame_stack=4)` stacks them as the agent saw them.

  Blank steps, which Dopamine puts before every episode, are left out; so are episodes
  that continue from one file to the next.

  Args:
    folder: with the files.
    max_steps_per_file: stop reading a file with the episode that reaches this number of
      steps. RATE takes 500,000 from 50 files.
    action_names: what each action does. If empty, the greatest action in the files
      gives their number.

  Raises:
    DatasetError: files are missing, or damaged.
  """
  folder = pathlib.Path(folder)
  numbers = sorted(int(re.fullmatch(r'.*_ckpt\.(\d+)\.gz', path.name)[1])
                   for path in folder.glob('$store$_observation_ckpt.*.gz'))
  if not numbers:
    raise DatasetError(f'{folder}: has no $store$_observation_ckpt.*.gz')
  actions = [_gzipped(folder, 'action', number) for number in numbers]
  picture, dtype, stream = _gzipped_stream(folder, 'observation', numbers[0])
  stream.close()
  specs = format_lib.Specs(
      dm_specs.Array((*picture[1:], 1), dtype),
      importers.action_spec(actions[0].shape, actions[0].dtype,
                            lambda: max(x.max() for x in actions), action_names))
  return importers.Recording(
      f'dqn_replay {folder.name} {max_steps_per_file or ""}'.strip(), specs, False,
      _episodes(folder, numbers, specs, max_steps_per_file))


def _episodes(folder: pathlib.Path, numbers: List[int], specs: format_lib.Specs,
              max_steps: Optional[int]) -> Iterator[format_lib.Episode]:
  for number in numbers:
    action, reward, terminal = (
        _gzipped(folder, name, number) for name in _ARRAYS[1:])
    shape, dtype, stream = _gzipped_stream(folder, 'observation', number)
    for name, length in [('action', len(action)), ('terminal', len(terminal)),
                         ('observation', shape[0])]:
      if length != len(reward):
        raise DatasetError(f'{folder}, file {number}: {name} has {length} steps: '
                           f'expected {len(reward)}, as many as reward')
    row = dtype.itemsize * math.prod(shape[1:])
    done, begin = 0, 0
    with stream:
      for end in np.flatnonzero(terminal):
        if max_steps is not None and done >= max_steps:
          break
        num = int(end) + 1 - begin
        importers.check_size(f'{folder}, file {number}: an episode', num, row)
        pictures = np.frombuffer(_read(stream, row * num, folder, number), dtype)
        pictures = pictures.reshape(-1, *shape[1:])
        # The first episode of a file began in the file before, except in file 0.
        if begin or number == 0:
          steps = slice(begin, end + 1)
          blank = ~(pictures[:_PADDING].reshape(len(pictures[:_PADDING]), -1)
                    .any(axis=1) | (action[steps][:_PADDING] != 0)
                    | (reward[steps][:_PADDING] != 0))
          skipped = int(np.argmin(np.append(blank, False)))
          if skipped < len(pictures):
            yield importers.make_episode(
                pictures[skipped:, ..., None],
                action[steps][skipped:].astype(specs.action.dtype),
                reward[steps][skipped:], True)
            done += len(pictures) - skipped
        begin = int(end) + 1


def _gzipped_stream(folder: pathlib.Path, name: str, number: int
                    ) -> Tuple[Tuple[int, ...], np.dtype, gzip.GzipFile]:
  """Returns shape and dtype of an array, and a stream of its values."""
  path = folder / f'$store$_{name}_ckpt.{number}.gz'
  format_lib.check_is_file(path)
  stream = gzip.open(path, 'rb')
  try:
    version = np.lib.format.read_magic(stream)
    read_header = (np.lib.format.read_array_header_1_0 if version == (1, 0)
                   else np.lib.format.read_array_header_2_0)
    # NumPy reads the header before it checks its length.
    length = stream.read(2 if version == (1, 0) else 4)
    num_bytes = int.from_bytes(length, 'little')
    if num_bytes > _MAX_HEADER_BYTES:
      raise ValueError(f'its header has {num_bytes:,} bytes')
    shape, fortran_order, dtype = read_header(
        io.BytesIO(length + stream.read(num_bytes)))
    if fortran_order:
      raise DatasetError(f'{path}: expected an array in C order')
    if not shape:
      raise DatasetError(f'{path}: has no steps')
    format_lib.check_array(str(path), dtype, shape[1:])
    importers.check_size(str(path), shape[0], 0)
  except DatasetError:
    stream.close()
    raise
  except (OSError, EOFError, ValueError, zlib.error) as error:
    stream.close()
    raise DatasetError(f'{path}: not a gzipped array: {error}') from error
  return shape, dtype, stream


def _gzipped(folder: pathlib.Path, name: str, number: int) -> np.ndarray:
  """Reads a complete array."""
  shape, dtype, stream = _gzipped_stream(folder, name, number)
  with stream:
    row = dtype.itemsize * math.prod(shape[1:])
    importers.check_size(f'{folder}, file {number}: {name}', shape[0], row)
    data = _read(stream, row * shape[0], folder, number)
  return np.frombuffer(data, dtype).reshape(shape)


def _read(stream: gzip.GzipFile, num_bytes: int, folder: pathlib.Path, number: int
          ) -> bytes:
  try:
    data = stream.read(num_bytes)
  except (OSError, EOFError, zlib.error) as error:
    raise DatasetError(f'{folder}, file {number}: damaged: {error}') from error
  if len(data) != num_bytes:
    raise DatasetError(f'{folder}, file {number}: ends too early')
  return data
