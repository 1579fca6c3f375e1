"""Imports datasets in formats of other libraries.

Each importer returns a `Recording`, which yields episodes one by one, so that even a
large one takes no more memory than an episode and a shard. h5py and TensorFlow Datasets
are in the extra `offline`.
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

from gtrxl_tf import environments
from gtrxl_tf import files as files_lib
from gtrxl_tf import progress
from gtrxl_tf.datasets import format as format_lib
from gtrxl_tf.datasets import reader
from gtrxl_tf.datasets import writer as writer_lib
from gtrxl_tf.environments import optional
from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.settings import config

DatasetError = format_lib.DatasetError

_MINARI_IMAGE = 32  # Minari decodes JPEG of at least this height and width.
# Dopamine puts this many blank steps before every episode, to stack frames over them.
_DOPAMINE_PADDING = 3


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
    if not writer.num_episodes:
      raise DatasetError(
          f'{source.settings}: has no complete episode: expected at least one')
    line.show(f'{writer.num_episodes:,} episodes | {writer.num_steps:,} steps')
    line.close()
  return reader.open_dataset(path)


@contextlib.contextmanager
def _errors_in_one_line(place: Any) -> Iterator[None]:
  """Turns errors in reading the files of others into one line that names the file."""
  try:
    yield
  except (DatasetError, config.ConfigError):
    raise
  except Exception as error:
    raise DatasetError(f'{place}: cannot be read: {type(error).__name__}: '
                       f'{" ".join(str(error).split()):.100}') from error


def _importer(function: Callable[..., Recording]) -> Callable[..., Recording]:
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


# What importers share.


def _checksum(*arrays: np.ndarray) -> str:
  """Returns the CRC-32 of arrays, which tells inputs of the same name apart."""
  return f'{functools.reduce(lambda value, x: zlib.crc32(x, value), arrays, 0):08x}'


def _discounts(num: int, terminated: bool) -> np.ndarray:
  """Returns the discounts of an episode of `num` steps."""
  return np.append(np.ones(num - 1), not terminated).astype(np.float32)


def _action_spec(shape: Tuple[int, ...], dtype: np.dtype, arrays: Callable[[], Any],
                 names: Tuple[str, ...]) -> dm_specs.Array:
  """Returns the spec of actions `[T, ...]`; single integers are discrete.

  Without `names` of them, their number comes from `arrays()`, a list of all actions.
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


def _open_hdf5(path: pathlib.Path, needed_by: str) -> Any:
  h5py = optional.load('h5py', needed_by, 'offline')
  with _errors_in_one_line(path):
    return h5py.File(path, 'r')


@_importer
def d4rl(path: Union[str, pathlib.Path], max_episode_steps: Optional[int] = None,
         action_names: Tuple[str, ...] = ()) -> Recording:
  """Reads an HDF5 file of D4RL: observations, actions, rewards, terminals, timeouts.

  Steps after the last end belong to an unfinished episode and are left out, as in
  D4RL's own readers. Integer actions are discrete, with the named values, or else with
  values up to the greatest in the file.

  Args:
    path: the path of the file.
    max_episode_steps: number of steps after which episodes were cut off; for older
      files, which have no `timeouts`.
    action_names: what each discrete action does.
  """
  file = _open_hdf5(pathlib.Path(path), "The importer of D4RL's files")
  if max_episode_steps is not None and 'timeouts' in file:
    raise DatasetError(f'{path}: has timeouts: expected no max_episode_steps, which is '
                       f'{max_episode_steps}')
  for name in ('rewards', 'observations', 'actions', 'terminals',
               *['timeouts'] * (max_episode_steps is None)):
    if name not in file:
      hint = ('; without it, max_episode_steps must be the number of steps after which '
              'episodes were cut off') * (name == 'timeouts')
      raise DatasetError(f'{path}: has no array {name!r}{hint}')
    if len(file[name]) != len(file['rewards']):
      raise DatasetError(f'{path}: {name} has {len(file[name])} steps: expected '
                         f'{len(file["rewards"])}, as many as rewards')
  specs = format_lib.Specs(
      dm_specs.Array(file['observations'].shape[1:],
                     specs_lib.narrowed(file['observations'].dtype)),
      _action_spec(file['actions'].shape, file['actions'].dtype,
                   lambda: [file['actions'][:]], action_names))
  checksum = _checksum(*(file[name][:] for name in ('actions', 'rewards', 'terminals')))
  settings = f'd4rl {pathlib.Path(path).name} {checksum} {max_episode_steps or ""}'.strip()
  return Recording(settings, specs, False, _d4rl_episodes(file, specs, max_episode_steps))


def _d4rl_episodes(file, specs, max_episode_steps) -> Iterator[format_lib.Episode]:
  with file:
    terminals = file['terminals'][:].reshape(-1).astype(bool)
    if max_episode_steps is None:
      timeouts = file['timeouts'][:].reshape(-1).astype(bool)
      ends = np.flatnonzero(terminals | timeouts)
    else:
      ends = _ends(terminals, max_episode_steps)
    begin = 0
    for end in ends:
      steps = slice(begin, end + 1)
      yield format_lib.make_episode(
          file['observations'][steps].astype(specs.observation.dtype),
          file['actions'][steps].astype(specs.action.dtype),
          file['rewards'][steps].reshape(-1).astype(np.float32),
          _discounts(end + 1 - begin, terminals[end]))
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
def minari(name: Union[str, pathlib.Path]) -> Recording:
  """Reads a local Minari dataset, such as one that `minari.DataCollector` has recorded.

  Reads spaces of type Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple, as
  `GymnasiumEnvironment` shows them, but for the bounds of MiniGrid's cells, which stay 0
  and 255; texts in dictionaries are left out. Nothing is downloaded.

  Args:
    name: the dataset's folder, or its id as for `minari.load_dataset`. An id names a
      folder in `~/.minari/datasets`, or in the folder that the environment variable
      `MINARI_DATASETS_PATH` names.
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
  metadata = json.loads(metadata_file.read_bytes())
  if metadata.get('data_format', 'hdf5') != 'hdf5':
    raise DatasetError(f'{metadata_file}: data_format is {metadata["data_format"]!r}: '
                       "expected 'hdf5'")
  specs = format_lib.Specs(*(
      _minari_spec(json.loads(metadata[f'{kind}_space']), str(metadata_file), kind)
      for kind in ('observation', 'action')))
  file = _open_hdf5(folder / 'data' / 'main_data.hdf5', 'The importer of Minari')
  settings = f'minari {folder.name} {files_lib.checksum(metadata_file)}'
  return Recording(settings, specs, True, _minari_episodes(file, specs))


def _minari_spec(space: Dict[str, Any], place: str, name: str) -> Any:
  kind = space['type']
  if kind in ('Discrete', 'MultiDiscrete'):
    num = space['n' if kind == 'Discrete' else 'nvec']
    return specs_lib.integers(num, space.get('start', 0), name)
  if kind == 'MultiBinary':
    return dm_specs.BoundedArray(
        np.ravel(space['n']).tolist(), np.int8, 0, 1, name)
  if kind == 'Box':
    dtype = specs_lib.narrowed(np.dtype(space['dtype']))
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


def _minari_episodes(file, specs: format_lib.Specs) -> Iterator[format_lib.Episode]:
  def read(node: Any, spec: Any) -> Any:
    if isinstance(spec, dict):
      return {key: read(node[key], spec[key]) for key in spec}
    if isinstance(spec, tuple):
      return tuple(read(node[f'_index_{i}'], subspec) for i, subspec in enumerate(spec))
    if node.shape[1:] != spec.shape and node.dtype in (np.uint8, object):
      return _minari_pictures(node, spec)
    return node[:].astype(spec.dtype)

  with file:
    for name in sorted(file, key=lambda name: int(name.removeprefix('episode_'))):
      group = file[name]
      observation = read(group['observations'], specs.observation)
      action = read(group['actions'], specs.action)
      reward = group['rewards'][:]
      if not len(reward):
        raise DatasetError(f'{file.filename}: {name} has no steps')
      lengths = {len(leaf) for leaf in tree.flatten(observation)}
      if lengths != {len(reward) + 1}:
        raise DatasetError(f'{file.filename}: {name} has {len(reward)} rewards and '
                           f'{sorted(lengths)} observations: expected one more')
      yield format_lib.with_final(
          observation, action, reward.astype(np.float32),
          _discounts(len(reward), group['terminations'][-1]),
          float(group.attrs.get('success', np.nan)))


def _minari_pictures(node: Any, spec: dm_specs.Array) -> np.ndarray:
  """Decodes pictures, which Minari stores as [T, bytes] or as arrays of bytes.

  Before version 0.5.4, it makes JPEG of arrays of uint8 of any shape, which changes the
  values slightly, but for an array of a single number.
  """
  place, shape = f'{node.file.filename}: {node.name.lstrip("/")}', spec.shape
  is_image = spec.dtype == np.uint8 and len(shape) in (2, 3) and (
      min(shape[:2]) >= _MINARI_IMAGE)
  arrays = np.empty((len(node), *shape), spec.dtype)
  for i in range(len(node)):
    with Image.open(io.BytesIO(node[i].tobytes()), formats=('JPEG', 'PNG')) as picture:
      if picture.format == 'JPEG' and not is_image and math.prod(shape) > 1:
        raise DatasetError(
            f'{place}: Minari stored uint8 of shape {shape} as JPEG, which changes the '
            'values: expected a recording by Minari 0.5.4 or later, or in another dtype')
      array = np.asarray(picture)
    if array.size > 1 and array.shape != shape:
      raise DatasetError(f'{place}: has a picture of shape {array.shape}: expected {shape}')
    arrays[i] = array.reshape(shape)
  return arrays


@_importer
def rlds(folder: Union[str, pathlib.Path], action_names: Tuple[str, ...] = ()
         ) -> Recording:
  """Reads all splits of a dataset of RLDS that TensorFlow Datasets has stored.

  The last step of an episode gives the final observation. An episode whose last step is
  not terminal was cut off. Integers are discrete where the feature is a `ClassLabel`;
  scalar integer actions are always discrete, with the named values, or else with values
  up to the greatest in the data. Texts in dictionaries are left out.

  Args:
    folder: has `dataset_info.json`, as for `tfds.builder_from_directory`.
    action_names: what each discrete action does.
  """
  folder = pathlib.Path(folder)
  if not (folder / 'dataset_info.json').exists():
    raise DatasetError(f'{folder / "dataset_info.json"}: missing')
  tfds = optional.load('tensorflow_datasets', 'The importer of RLDS', 'offline')
  builder = tfds.builder_from_directory(folder)
  features = builder.info.features
  steps = features['steps'].feature if 'steps' in features else {}
  for name in ('observation', 'action', 'reward', 'is_last', 'is_terminal'):
    if name not in steps:
      raise DatasetError(f'{folder}: has no {name!r} in steps: expected the fields of '
                         f'RLDS, got {sorted(steps)}')

  def episodes() -> Iterator[Dict[str, Any]]:
    read_config = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)

    def whole(episode: Dict[str, Any]) -> Dict[str, Any]:
      steps = episode['steps'].batch(2**31).get_single_element()
      return {**episode, 'steps': steps}

    yield from tfds.as_numpy(
        builder.as_dataset('all', read_config=read_config).map(whole))

  action = _rlds_spec(tfds.features, steps['action'], f'{folder}: action')
  if isinstance(action, dm_specs.Array) and not action.shape and not isinstance(
      action, dm_specs.BoundedArray):
    action = _action_spec((0,), action.dtype, lambda: [
        x['steps']['action'] for x in episodes()] or [np.zeros(1)], action_names)
  specs = format_lib.Specs(_rlds_spec(
      tfds.features, steps['observation'], f'{folder}: observation'), action)
  checksum = files_lib.checksum(folder / 'dataset_info.json')
  return Recording(
      f'rlds {builder.info.full_name} {checksum}', specs, True,
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
  info = feature.get_tensor_info()
  if dtype.kind in 'iu' and None not in (info.minimum, info.maximum):
    return dm_specs.BoundedArray(feature.shape, dtype, info.minimum, info.maximum, name)
  return dm_specs.Array(feature.shape, specs_lib.narrowed(dtype), name)


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
  discount[-1] *= not steps['is_terminal'][-1]
  return format_lib.with_final(
      observation, tree.map_structure(lambda x: x[:-1], action),
      steps['reward'][:-1].astype(np.float32), discount,
      float(episode.get('success', np.nan)))


def _taken(spec: Any, nest: Any) -> Any:
  """Returns the arrays of a nest that the spec has, with its dtypes."""
  if isinstance(spec, dict):
    return {key: _taken(spec[key], nest[key]) for key in spec}
  return nest.astype(spec.dtype)


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
  actions = [_array(folder, 'action', number) for number in numbers]
  with _open_array(folder, 'observation', numbers[0]) as stream:
    picture, dtype = _array_header(stream)
  specs = format_lib.Specs(
      dm_specs.Array((*picture[1:], 1), dtype),
      _action_spec(actions[0].shape, actions[0].dtype, lambda: actions, action_names))
  return Recording(
      f'dqn_replay {folder.name} {_checksum(*actions)} '
      f'{max_steps_per_file or ""}'.strip(), specs, False,
      _dqn_episodes(folder, numbers, specs, max_steps_per_file))


def _dqn_episodes(folder: pathlib.Path, numbers: List[int], specs: format_lib.Specs,
                  max_steps: Optional[int]) -> Iterator[format_lib.Episode]:
  for number in numbers:
    action, reward, terminal = (
        _array(folder, name, number) for name in ('action', 'reward', 'terminal'))
    with _open_array(folder, 'observation', number) as stream:
      shape, dtype = _array_header(stream)
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
          steps = pictures, action[begin:end + 1], reward[begin:end + 1]
          skipped = 0
          while skipped < min(_DOPAMINE_PADDING, num) and not any(
              np.any(x[skipped]) for x in steps):
            skipped += 1
          if skipped < num:
            yield format_lib.make_episode(
                pictures[skipped:, ..., None],
                steps[1][skipped:].astype(specs.action.dtype),
                steps[2][skipped:].astype(np.float32), _discounts(num - skipped, True))
            done += num - skipped
        begin = int(end) + 1


@contextlib.contextmanager
def _open_array(folder: pathlib.Path, name: str, number: int) -> Iterator[gzip.GzipFile]:
  """Opens a file of one gzipped array."""
  path = folder / f'$store$_{name}_ckpt.{number}.gz'
  with _errors_in_one_line(path), gzip.open(path, 'rb') as stream:
    yield stream


def _array_header(stream: gzip.GzipFile) -> Tuple[Tuple[int, ...], np.dtype]:
  """Returns the shape and the dtype of the array whose values follow."""
  np.lib.format.read_magic(stream)
  shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
  if fortran_order:
    raise ValueError('expected an array in C order')
  return shape, dtype


def _array(folder: pathlib.Path, name: str, number: int) -> np.ndarray:
  """Reads a complete array."""
  with _open_array(folder, name, number) as stream:
    return np.lib.format.read_array(stream, allow_pickle=False)
