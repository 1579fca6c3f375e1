"""Imports datasets in formats of other libraries.

Each importer returns a `Recording`, which yields episodes one by one, so that even a
large one takes no more memory than an episode and a shard. h5py is in the extra
`offline`.

A small compressed file may expand to more than the memory. Before anything is read, its
uncompressed size is therefore compared with two bounds: `MAX_BYTES` for what is read at
once, which is an episode or one number for each step, and `MAX_STEPS` for a file.
"""

import contextlib
import functools
import gzip
import io
import itertools
import json
import math
import os
import pathlib
import re
import sys
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union
import zlib

from dm_env import specs as dm_specs
import numpy as np
from PIL import Image
import tree

from gtrxl_tf import config
from gtrxl_tf import environments
from gtrxl_tf import progress
from gtrxl_tf.datasets import format as format_lib
from gtrxl_tf.datasets import reader
from gtrxl_tf.datasets import writer as writer_lib
from gtrxl_tf.environments import optional

DatasetError = format_lib.DatasetError

MAX_BYTES = 2**31
MAX_STEPS = 2**27
_MAX_HEADER_BYTES = 10_000  # Of a NumPy array, as NumPy itself has it.
_MINARI_IMAGE = 32  # Minari decodes JPEG of at least this height and width.

_DQN_ARRAYS = ('observation', 'action', 'reward', 'terminal')
# Dopamine puts this many blank steps before every episode, to stack frames over them.
_DQN_PADDING = 3


class Recording(NamedTuple):
  """Episodes that others have recorded.

  Attributes:
    settings: what is read, and how.
    specs: of a step.
    final_observation: whether episodes have one.
    episodes: one by one.
  """
  settings: str
  specs: format_lib.Specs
  final_observation: bool
  episodes: Iterable[format_lib.Episode]


def import_dataset(source: Recording, path: Union[str, pathlib.Path], environment: str,
                   stream=sys.stdout) -> reader.Dataset:
  """Copies a recording into the folder `path`, or continues an interrupted import.

  Args:
    source: the recording to read.
    path: of the dataset.
    environment: its name.
    stream: where the progress is shown.

  Raises:
    DatasetError: the recording is damaged, or the folder holds something else.
  """
  with writer_lib.EpisodeWriter(
      path, source.specs, environment, source.settings,
      final_observation=source.final_observation) as writer:
    line = progress.ProgressLine(stream)
    for episode in itertools.islice(source.episodes, writer.num_episodes, None):
      writer.write([episode])
      if line.is_due():
        line.show(f'{writer.num_episodes:,} episodes | {writer.num_steps:,} steps')
    line.close()
    if not writer.num_episodes:
      raise DatasetError(
          f'{source.settings}: has no complete episode: expected at least one')
  return reader.open_dataset(path)


@contextlib.contextmanager
def _damage_told(place: Any) -> Iterator[None]:
  """Turns errors in reading the files of others into one line that names the file."""
  try:
    yield
  except (DatasetError, config.ConfigError):
    raise
  except (AttributeError, EOFError, LookupError, MemoryError, OSError, RuntimeError,
          TypeError, ValueError, zlib.error, Image.DecompressionBombError) as error:
    raise DatasetError(f'{place}: cannot be read: {type(error).__name__}: '
                       f'{" ".join(str(error).split()):.100}') from error


def _check_size(place: str, num_steps: int, row_bytes: int) -> None:
  """Raises a `DatasetError` if there are more rows than may be read at once."""
  if not 0 <= num_steps <= MAX_STEPS:
    raise DatasetError(f'{place}: has {num_steps:,} steps: expected at most '
                       f'{MAX_STEPS:,} in a file')
  if num_steps * row_bytes > MAX_BYTES:
    raise DatasetError(f'{place}: has {num_steps * row_bytes:,} bytes to be read at '
                       f'once: expected at most {MAX_BYTES:,}')


def _rows(array: Any, steps: slice = slice(None)) -> np.ndarray:
  """Reads rows of an array of an HDF5 file, within the bounds of size."""
  place = f'{array.file.filename}: {array.name.lstrip("/")}'
  format_lib.check_array(place, array.dtype, array.shape[1:])
  start, stop, _ = steps.indices(len(array))
  _check_size(place, stop - start,
              array.dtype.itemsize * math.prod(array.shape[1:]))
  return array[steps]


def _importer(function: Callable[..., Recording]) -> Callable[..., Recording]:
  """Decorates a function that reads a `Recording` from a place; see `_damage_told`."""
  def told(place: Any, episodes: Iterable[format_lib.Episode]
           ) -> Iterator[format_lib.Episode]:
    with _damage_told(place):
      yield from episodes

  @functools.wraps(function)
  def wrapper(place: Any, *args, **kwargs) -> Recording:
    with _damage_told(place):
      source = function(place, *args, **kwargs)
    return source._replace(episodes=told(place, source.episodes))

  return wrapper


@_importer
def minari(name: Union[str, pathlib.Path]) -> Recording:
  """Reads a local Minari dataset, also one that `minari.DataCollector` has recorded.

  Reads spaces of type Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple, as
  `GymnasiumEnvironment` shows them; texts in dictionaries are left out. Nothing is
  downloaded.

  Args:
    name: the dataset's folder, or its id as for `minari.load_dataset`: the folder below
      the environment variable `MINARI_DATASETS_PATH`, or else `~/.minari/datasets`.

  Raises:
    DatasetError: it is no Minari dataset, or has other spaces or another storage, or
      Minari has stored small images as JPEG, which changes their values.
    config.ConfigError: h5py is not installed.
  """
  root = os.environ.get('MINARI_DATASETS_PATH', '~/.minari/datasets')
  folders = dict.fromkeys(
      [pathlib.Path(name), pathlib.Path(root).expanduser() / name])
  files = [folder / 'data' / 'metadata.json' for folder in folders]
  metadata_file = next((file for file in files if file.exists()), None)
  if metadata_file is None:
    raise DatasetError(f'{" and ".join(map(str, files))}: missing: expected the folder '
                       'of a local Minari dataset, or its id')
  folder = metadata_file.parents[1]
  metadata = format_lib.read_json(metadata_file)
  if metadata.get('data_format', 'hdf5') != 'hdf5':
    raise DatasetError(f'{metadata_file}: data_format is {metadata["data_format"]!r}: '
                       "expected 'hdf5'")
  spaces = {}
  for kind in ('observation', 'action'):
    if f'{kind}_space' not in metadata:
      raise DatasetError(f'{metadata_file}: has no {kind}_space')
    spaces[kind] = json.loads(metadata[f'{kind}_space'])
  specs = format_lib.Specs(*(
      _minari_spec(spaces[kind], str(metadata_file), kind) for kind in spaces))
  file = _open_hdf5(folder / 'data' / 'main_data.hdf5', 'The importer of Minari')
  return Recording(f'minari {folder.name}', specs, True,
                _minari_episodes(file, spaces, specs))


def _minari_spec(space: Dict[str, Any], place: str, name: str) -> Any:
  kind = space['type']
  if kind == 'Discrete':
    return dm_specs.DiscreteArray(space['n'], name=name)
  if kind == 'MultiDiscrete':
    greatest = np.array(space['nvec']) - 1
    return dm_specs.BoundedArray(greatest.shape, np.int32, 0, greatest, name)
  if kind == 'MultiBinary':
    return dm_specs.BoundedArray(
        np.ravel(space['n']).tolist(), np.int8, 0, 1, name)
  if kind == 'Box':
    dtype = _narrowed(np.dtype(space['dtype']))
    format_lib.check_array(f'{place}: {name}', dtype, space['shape'])
    return dm_specs.BoundedArray(space['shape'], dtype, space['low'], space['high'],
                                 name)
  if kind == 'Dict':
    return {key: _minari_spec(subspace, place, key)
            for key, subspace in space['subspaces'].items()
            if subspace['type'] != 'Text'}
  if kind == 'Tuple':
    return tuple(_minari_spec(subspace, place, f'{name} {i}')
                 for i, subspace in enumerate(space['subspaces']))
  raise DatasetError(f'{place}: {name} has a space of type {kind}: expected Box, '
                     'Discrete, MultiDiscrete, MultiBinary, Dict or Tuple')


def _minari_episodes(file, spaces, specs: format_lib.Specs
                     ) -> Iterator[format_lib.Episode]:
  def read(node: Any, space: Dict[str, Any], spec: Any) -> Any:
    if isinstance(spec, dict):
      return {key: read(node[key], space['subspaces'][key], spec[key]) for key in spec}
    if isinstance(spec, tuple):
      return tuple(read(node[f'_index_{i}'], space['subspaces'][i], subspec)
                   for i, subspec in enumerate(spec))
    if spec.dtype == np.uint8 and len(spec.shape) in (2, 3) and (
        node.shape[1:] != spec.shape):
      return _minari_images(node, spec.shape)
    return (_rows(node) - space.get('start', 0)).astype(spec.dtype)

  with file:
    for name in sorted(file, key=lambda name: int(name.removeprefix('episode_'))):
      group = file[name]
      success = float(group.attrs.get('success', np.nan))
      try:
        observation = read(group['observations'], spaces['observation'],
                           specs.observation)
        action = read(group['actions'], spaces['action'], specs.action)
        reward = _rows(group['rewards'])
        if not len(reward):
          raise DatasetError(f'{file.filename}: {name} has no steps')
        terminated = bool(group['terminations'][-1])
      except KeyError as error:
        raise DatasetError(f'{file.filename}: {name}: {error.args[0]}') from error
      lengths = {len(leaf) for leaf in tree.flatten(observation)}
      if lengths != {len(reward) + 1}:
        raise DatasetError(f'{file.filename}: {name} has {len(reward)} rewards and '
                           f'{sorted(lengths)} observations: expected one more')
      yield _episode(tree.map_structure(lambda x: x[:-1], observation), action, reward,
                     terminated, tree.map_structure(lambda x: x[-1], observation),
                     success)


def _minari_images(node: Any, shape: Tuple[int, ...]) -> np.ndarray:
  """Decodes pictures, which Minari stores as [T, bytes] or as arrays of bytes."""
  place = f'{node.file.filename}: {node.name.lstrip("/")}'
  if min(shape[:2]) < _MINARI_IMAGE:
    raise DatasetError(
        f'{place}: Minari stored images of shape {shape} as JPEG, which changes their '
        "values: expected images of at least 32 by 32, or another dtype than uint8")
  _check_size(place, len(node), max(math.prod(shape), math.prod(node.shape[1:])))
  images = np.empty((len(node), *shape), np.uint8)
  for i in range(len(node)):
    with Image.open(io.BytesIO(node[i].tobytes()), formats=('JPEG', 'PNG')) as picture:
      found = (*picture.size[::-1], *[len(picture.getbands())] * (len(shape) == 3))
      if found != shape:
        raise DatasetError(f'{place}: has a picture of shape {found}: expected {shape}')
      images[i] = np.asarray(picture)
  return images


@_importer
def rlds(folder: Union[str, pathlib.Path], action_names: Tuple[str, ...] = ()
         ) -> Recording:
  """Reads a dataset of RLDS, which TensorFlow Datasets has stored: all its splits.

  The last step of an episode gives the final observation. An episode whose last step is
  not terminal was cut off. Integers are discrete where the feature is a `ClassLabel`;
  scalar integer actions are always discrete, with the named values, or else with values
  up to the greatest in the data. Texts in dictionaries are left out.

  Args:
    folder: with `dataset_info.json`, as for `tfds.builder_from_directory`.
    action_names: what each discrete action does.

  Raises:
    DatasetError: it is no such dataset, or lacks a field of RLDS.
    config.ConfigError: TensorFlow Datasets is not installed.
  """
  folder = pathlib.Path(folder)
  format_lib.check_is_file(folder / 'dataset_info.json')
  tfds = optional.load('tensorflow_datasets', 'The importer of RLDS', 'offline')
  builder = tfds.builder_from_directory(folder)
  features = builder.info.features
  steps = features['steps'].feature if 'steps' in features else {}
  for name in ('observation', 'action', 'reward', 'is_last', 'is_terminal'):
    if name not in steps:
      raise DatasetError(f'{folder}: has no {name!r} in steps: expected the fields of '
                         f'RLDS, got {sorted(steps)}')

  def episodes() -> Iterator[Dict[str, Any]]:
    import tensorflow as tf  # pylint: disable=import-outside-toplevel
    read_config = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)

    def whole(episode: Dict[str, Any]) -> Dict[str, Any]:
      return {**episode, 'steps': episode['steps'].batch(MAX_STEPS).get_single_element()}

    try:
      for episode in builder.as_dataset('all', read_config=read_config).map(whole):
        yield tree.map_structure(lambda x: x.numpy(), episode)
    except tf.errors.OpError as error:
      raise DatasetError(f'{folder}: cannot be read: '
                         f'{" ".join(error.message.split()):.100}') from error

  action = _rlds_spec(tfds.features, steps['action'], f'{folder}: action')
  if isinstance(action, dm_specs.Array) and not action.shape and not isinstance(
      action, dm_specs.DiscreteArray):
    action = _action_spec((0,), action.dtype, lambda: max(
        (x['steps']['action'].max() for x in episodes()), default=0), action_names)
  specs = format_lib.Specs(_rlds_spec(
      tfds.features, steps['observation'], f'{folder}: observation'), action)
  return Recording(f'rlds {builder.info.full_name}', specs, True,
                   map(functools.partial(_rlds_episode, folder, specs), episodes()))


def _rlds_spec(kinds: Any, feature: Any, place: str) -> Any:
  """Returns the specs of a feature of TensorFlow Datasets; None for a text."""
  if isinstance(feature, kinds.FeaturesDict):
    found = {key: _rlds_spec(kinds, feature[key], f'{place}.{key}')
             for key in feature.keys()}
    return {key: spec for key, spec in found.items() if spec is not None}
  name = place.rpartition(' ')[2]
  if isinstance(feature, kinds.ClassLabel):
    if feature.names != [str(i) for i in range(feature.num_classes)]:
      return environments.NamedActions(feature.names, name=name)
    return dm_specs.DiscreteArray(feature.num_classes, name=name)
  dtype = np.dtype(feature.np_dtype)
  if dtype.kind in 'OSU' and '.' in name:
    return None
  if None in feature.shape:
    raise DatasetError(f'{place} has shape {feature.shape}: expected a fixed one')
  format_lib.check_array(place, dtype, feature.shape)
  return dm_specs.Array(feature.shape, _narrowed(dtype), name)


def _rlds_episode(folder: pathlib.Path, specs: format_lib.Specs,
                  episode: Dict[str, Any]) -> format_lib.Episode:
  steps = episode['steps']
  num = len(steps['reward']) - 1
  if not num or steps['is_last'][:-1].any():
    raise DatasetError(f'{folder}: has an episode of {num + 1} steps with is_last at '
                       f'{np.flatnonzero(steps["is_last"]).tolist()}: expected two or '
                       'more, and is_last at the last only')
  observation = _taken(specs.observation, steps['observation'])
  action = _taken(specs.action, steps['action'])
  discount = steps.get('discount', np.ones(num + 1))[:-1].astype(np.float32)
  terminated = bool(steps['is_terminal'][-1] or not discount[-1])
  discount[-1] *= not terminated
  return _episode(
      tree.map_structure(lambda x: x[:-1], observation),
      tree.map_structure(lambda x: x[:-1], action), steps['reward'][:-1], terminated,
      tree.map_structure(lambda x: x[-1], observation),
      float(episode.get('success', np.nan)))._replace(discount=discount)


def _taken(spec: Any, nest: Any) -> Any:
  """Returns the arrays of a nest that the spec has, with its dtypes."""
  if isinstance(spec, dict):
    return {key: _taken(spec[key], nest[key]) for key in spec}
  return nest.astype(spec.dtype)


@_importer
def d4rl(path: Union[str, pathlib.Path], max_episode_steps: Optional[int] = None,
         action_names: Tuple[str, ...] = ()) -> Recording:
  """Reads an HDF5 file of D4RL: observations, actions, rewards, terminals, timeouts.

  Steps after the last end belong to an unfinished episode and are left out, as in
  D4RL's own readers. Integer actions are discrete, with the named values, or else with
  values up to the greatest in the file.

  Args:
    path: of the file.
    max_episode_steps: number of steps after which episodes were cut off; for older
      files, which have no `timeouts`.
    action_names: what each discrete action does.

  Raises:
    DatasetError: it is no such file.
    config.ConfigError: h5py is not installed.
  """
  file = _open_hdf5(pathlib.Path(path), "The importer of D4RL's files")
  expected = ['observations', 'actions', 'rewards', 'terminals']
  expected += ['timeouts'] if max_episode_steps is None else []
  for name in expected:
    if name not in file:
      hint = ('; without it, max_episode_steps must be the number of steps after which '
              'episodes were cut off') * (name == 'timeouts')
      raise DatasetError(f'{path}: has no array {name!r}{hint}')
  for name in expected:
    if len(file[name]) != len(file['rewards']):
      raise DatasetError(f'{path}: {name} has {len(file[name])} steps: expected '
                         f'{len(file["rewards"])}, as many as rewards')
    _check_size(f'{path}: {name}', len(file[name]), 0)
    format_lib.check_array(f'{path}: {name}', file[name].dtype, file[name].shape[1:])
  specs = format_lib.Specs(
      dm_specs.Array(file['observations'].shape[1:],
                     _narrowed(file['observations'].dtype)),
      _action_spec(file['actions'].shape, file['actions'].dtype,
                   lambda: _rows(file['actions']).max(), action_names))
  settings = f'd4rl {pathlib.Path(path).name} {max_episode_steps or ""}'.strip()
  return Recording(settings, specs, False, _d4rl_episodes(file, specs,
  max_episode_steps))


def _d4rl_episodes(file, specs, max_episode_steps) -> Iterator[format_lib.Episode]:
  with file:
    terminals = _rows(file['terminals']).reshape(-1).astype(bool)
    if max_episode_steps is None:
      ends = np.flatnonzero(terminals | _rows(file['timeouts']).reshape(-1).astype(bool))
    else:
      ends = _ends(terminals, max_episode_steps)
    begin = 0
    for end in ends:
      steps = slice(begin, end + 1)
      yield _episode(_rows(file['observations'], steps).astype(specs.observation.dtype),
                     _rows(file['actions'], steps).astype(specs.action.dtype),
                     _rows(file['rewards'], steps).reshape(-1), terminals[end])
      begin = end + 1


def _ends(terminals: np.ndarray, max_episode_steps: int) -> Iterator[int]:
  """Yields the last steps of episodes that are cut off after a number of steps."""
  begin = 0
  for terminal in itertools.chain(np.flatnonzero(terminals), [len(terminals)]):
    yield from range(begin + max_episode_steps - 1, terminal, max_episode_steps)
    if terminal < len(terminals):
      yield terminal
    begin = terminal + 1


@_importer
def dqn_replay(folder: Union[str, pathlib.Path],
               max_steps_per_file: Optional[int] = None,
               action_names: Tuple[str, ...] = ()) -> Recording:
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
      _action_spec(actions[0].shape, actions[0].dtype,
                   lambda: max(x.max() for x in actions), action_names))
  return Recording(f'dqn_replay {folder.name} {max_steps_per_file or ""}'.strip(),
                specs, False, _dqn_episodes(folder, numbers, specs, max_steps_per_file))


def _dqn_episodes(folder: pathlib.Path, numbers: List[int], specs: format_lib.Specs,
                  max_steps: Optional[int]) -> Iterator[format_lib.Episode]:
  for number in numbers:
    action, reward, terminal = (
        _gzipped(folder, name, number) for name in _DQN_ARRAYS[1:])
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
        _check_size(f'{folder}, file {number}: an episode', int(end) + 1 - begin, row)
        pictures = np.frombuffer(
            _read(stream, row * (int(end) + 1 - begin), folder, number), dtype)
        pictures = pictures.reshape(-1, *shape[1:])
        # The first episode of a file began in the file before, except in file 0.
        if begin or number == 0:
          steps = slice(begin, end + 1)
          blank = ~(pictures[:_DQN_PADDING].reshape(len(pictures[:_DQN_PADDING]), -1)
                    .any(axis=1) | (action[steps][:_DQN_PADDING] != 0)
                    | (reward[steps][:_DQN_PADDING] != 0))
          skipped = int(np.argmin(np.append(blank, False)))
          if skipped < len(pictures):
            yield _episode(pictures[skipped:, ..., None],
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
    _check_size(str(path), shape[0], 0)
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
    _check_size(f'{folder}, file {number}: {name}', shape[0], row)
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


def _episode(observation: Any, action: Any, reward: np.ndarray, terminated: bool,
             final_observation: Any = None, success: float = math.nan
             ) -> format_lib.Episode:
  discount = np.ones(len(reward), np.float32)
  end = np.zeros(len(reward), np.uint8)
  end[-1:] = (format_lib.End.TERMINATION if terminated else format_lib.End.TRUNCATION)
  discount[-1:] = not terminated
  return format_lib.Episode(observation, action, reward.astype(np.float32), discount,
                            end, success, final_observation)


def _action_spec(shape: Tuple[int, ...], dtype: np.dtype, greatest: Callable[[], int],
                 names: Tuple[str, ...]) -> dm_specs.Array:
  if len(shape) == 1 and dtype.kind in 'iu':
    if names:
      return environments.NamedActions(names)
    return dm_specs.DiscreteArray(int(greatest()) + 1, name='action')
  return dm_specs.Array(shape[1:], _narrowed(dtype), 'action')


def _narrowed(dtype: np.dtype) -> np.dtype:
  return np.dtype(np.float32) if dtype == np.float64 else dtype


def _open_hdf5(path: pathlib.Path, needed_by: str) -> Any:
  h5py = optional.load('h5py', needed_by, 'offline')
  try:
    if path.exists() and not path.is_file():  # It would wait for a pipe.
      raise OSError('it is not a regular file')
    return h5py.File(path, 'r')
  except OSError as error:
    raise DatasetError(f'{path}: not an HDF5 file: {str(error):.100}') from error
