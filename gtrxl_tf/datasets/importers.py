"""Imports datasets in formats of other libraries.

Each importer returns a `Recording`, which yields episodes one by one, so that even a
large one takes no more memory than an episode and a shard. An importer's module is
imported when it is first used; this module has the code that they share. h5py is in the
extra `offline`.
"""

import contextlib
import functools
import importlib
import itertools
import math
import pathlib
import sys
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Tuple, Union
import zlib

from dm_env import specs as dm_specs
import numpy as np
from PIL import Image

from gtrxl_tf import environments
from gtrxl_tf import progress
from gtrxl_tf.datasets import format as format_lib
from gtrxl_tf.datasets import reader
from gtrxl_tf.datasets import writer as writer_lib
from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.settings import config

DatasetError = format_lib.DatasetError

# Each importer's module.
_MODULES = {
    'd4rl': 'hdf5',
    'dqn_replay': 'dqn_replay',
    'minari': 'hdf5',
    'rlds': 'rlds',
}


def __getattr__(name: str) -> Any:
  """Imports the module of an importer (PEP 562)."""
  if name in _MODULES:
    module = importlib.import_module(f'gtrxl_tf.datasets.{_MODULES[name]}')
    return getattr(module, name)
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def __dir__() -> List[str]:
  return sorted({*globals(), *_MODULES})


def checksum(*arrays: np.ndarray) -> str:
  """Returns the CRC-32 of arrays, which tells inputs of the same name apart."""
  value = 0
  for array in arrays:
    value = zlib.crc32(array, value)
  return f'{value:08x}'


class Recording(NamedTuple):
  """Episodes that others have recorded.

  Attributes:
    settings: a text that identifies the input and its options.
    specs: the specs of a step.
    final_observation: whether episodes have one.
    episodes: the episodes, one by one.
  """
  settings: str
  specs: format_lib.Specs
  final_observation: bool
  episodes: Iterable[format_lib.Episode]


def import_dataset(source: Recording, path: Union[str, pathlib.Path], environment: str,
                   stream=sys.stdout) -> reader.Dataset:
  """Copies a recording into the folder `path`, or continues an interrupted import.

  The progress is shown on `stream`.
  """
  with writer_lib.EpisodeWriter(
      path, source.specs, environment, source.settings,
      final_observation=source.final_observation) as writer:
    line = progress.ProgressLine(stream)
    for episode in itertools.islice(source.episodes, writer.num_episodes, None):
      writer.write([episode])
      if line.is_due():
        line.show(f'{writer.num_episodes:,} episodes | {writer.num_steps:,} steps')
    if writer.num_episodes:
      line.show(f'{writer.num_episodes:,} episodes | {writer.num_steps:,} steps')
    line.close()
    if not writer.num_episodes:
      raise DatasetError(
          f'{source.settings}: has no complete episode: expected at least one')
  return reader.open_dataset(path)


@contextlib.contextmanager
def _errors_in_one_line(place: Any) -> Iterator[None]:
  """Turns errors in reading the files of others into one line that names the file."""
  try:
    yield
  except (DatasetError, config.ConfigError):
    raise
  except (AttributeError, EOFError, LookupError, MemoryError, OSError, RuntimeError,
          TypeError, ValueError, zlib.error, Image.DecompressionBombError) as error:
    raise DatasetError(f'{place}: cannot be read: {type(error).__name__}: '
                       f'{" ".join(str(error).split()):.100}') from error


def importer(function: Callable[..., Recording]) -> Callable[..., Recording]:
  """Decorates a function that makes a `Recording`, so that errors become one line."""
  def checked(place: Any, episodes: Iterable[format_lib.Episode]
           ) -> Iterator[format_lib.Episode]:
    with _errors_in_one_line(place):
      yield from episodes

  @functools.wraps(function)
  def wrapper(place: Any, *args, **kwargs) -> Recording:
    with _errors_in_one_line(place):
      source = function(place, *args, **kwargs)
    return source._replace(episodes=checked(place, source.episodes))

  return wrapper


def make_episode(
    observation: Any, action: Any, reward: np.ndarray, terminated: bool,
    final_observation: Any = None, success: float = math.nan) -> format_lib.Episode:
  """Makes an episode that ends with its last step; discounts before it are 1."""
  discount = np.ones(len(reward), np.float32)
  end = np.zeros(len(reward), np.uint8)
  end[-1:] = (format_lib.End.TERMINATION if terminated else format_lib.End.TRUNCATION)
  discount[-1:] = not terminated
  return format_lib.Episode(observation, action, reward.astype(np.float32), discount,
                            end, success, final_observation)


def action_spec(shape: Tuple[int, ...], dtype: np.dtype, arrays: Callable[[], Any],
                names: Tuple[str, ...]) -> dm_specs.Array:
  """Returns the spec of actions `[T, ...]`; scalar integers are discrete.

  Args:
    shape: the shape of the array of actions.
    dtype: the dtype of the array of actions.
    arrays: returns a list with arrays of all actions; called if there are no names.
    names: what each discrete action does.
  """
  if len(shape) == 1 and dtype.kind in 'iu':
    if names:
      return environments.NamedActions(names)
    taken = np.concatenate(arrays())
    least = min(0, int(taken.min()))
    return specs_lib.integers(int(taken.max()) + 1 - least, least, 'action')
  if names:
    raise DatasetError(f'actions are {dtype} {[*shape]}: action_names need integers [T]')
  return dm_specs.Array(shape[1:], specs_lib.narrowed(dtype), 'action')
