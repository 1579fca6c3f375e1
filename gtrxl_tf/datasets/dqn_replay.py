"""Imports the DQN replay dataset: replay buffers in Dopamine's layout."""

import contextlib
import gzip
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
    folder: has the files.
    max_steps_per_file: stop reading a file with the episode that reaches this number of
      steps. RATE takes 500,000 in all from 50 files.
    action_names: what each action does. If empty, the greatest action in the files
      gives their number.
  """
  folder = pathlib.Path(folder)
  numbers = sorted(int(re.fullmatch(r'.*_ckpt\.(\d+)\.gz', path.name)[1])
                   for path in folder.glob('$store$_observation_ckpt.*.gz'))
  if not numbers:
    raise DatasetError(f'{folder}: has no $store$_observation_ckpt.*.gz')
  actions = [_read(folder, 'action', number) for number in numbers]
  with _opened(folder, 'observation', numbers[0]) as stream:
    picture, dtype = _read_header(stream)
  specs = format_lib.Specs(
      dm_specs.Array((*picture[1:], 1), dtype),
      importers.action_spec(actions[0].shape, actions[0].dtype,
                            lambda: actions, action_names))
  return importers.Recording(
      f'dqn_replay {folder.name} {importers.checksum(*actions)} '
      f'{max_steps_per_file or ""}'.strip(), specs, False,
      _episodes(folder, numbers, specs, max_steps_per_file))


def _episodes(folder: pathlib.Path, numbers: List[int], specs: format_lib.Specs,
              max_steps: Optional[int]) -> Iterator[format_lib.Episode]:
  for number in numbers:
    action, reward, terminal = (
        _read(folder, name, number) for name in ('action', 'reward', 'terminal'))
    with _opened(folder, 'observation', number) as stream:
      shape, dtype = _read_header(stream)
      for name, length in [('action', len(action)), ('terminal', len(terminal)),
                           ('observation', shape[0])]:
        if length != len(reward):
          raise DatasetError(f'{folder}, file {number}: {name} has {length} steps: '
                             f'expected {len(reward)}, as many as reward')
      row = dtype.itemsize * math.prod(shape[1:])
      done, begin = 0, 0
      for end in np.flatnonzero(terminal):
        if max_steps is not None and done >= max_steps:
          break
        num = int(end) + 1 - begin
        pictures = np.frombuffer(stream.read(row * num), dtype)
        pictures = pictures.reshape(num, *shape[1:])
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


@contextlib.contextmanager
def _opened(folder: pathlib.Path, name: str, number: int) -> Iterator[gzip.GzipFile]:
  """Opens a file of one gzipped array."""
  path = folder / f'$store$_{name}_ckpt.{number}.gz'
  try:
    with gzip.open(path, 'rb') as stream:
      yield stream
  except FileNotFoundError as error:
    raise DatasetError(f'{path}: missing') from error
  except DatasetError:
    raise
  except (OSError, EOFError, ValueError, zlib.error) as error:
    raise DatasetError(f'{path}: not a gzipped array: {error}') from error


def _read_header(stream: gzip.GzipFile) -> Tuple[Tuple[int, ...], np.dtype]:
  """Returns the shape and the dtype of the array whose values follow."""
  np.lib.format.read_magic(stream)
  shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
  if fortran_order:
    raise ValueError('expected an array in C order')
  return shape, dtype


def _read(folder: pathlib.Path, name: str, number: int) -> np.ndarray:
  """Reads a complete array."""
  with _opened(folder, name, number) as stream:
    return np.lib.format.read_array(stream, allow_pickle=False)
