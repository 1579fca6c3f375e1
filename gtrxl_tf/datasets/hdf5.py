"""Imports HDF5 files: datasets of Minari and of D4RL."""

import io
import itertools
import json
import math
import os
import pathlib
from typing import Any, Dict, Iterator, Optional, Tuple, Union

from dm_env import specs as dm_specs
import numpy as np
from PIL import Image
import tree

from gtrxl_tf import files as files_lib
from gtrxl_tf.datasets import format as format_lib
from gtrxl_tf.datasets import importers
from gtrxl_tf.environments import optional
from gtrxl_tf.environments import specs as specs_lib

DatasetError = format_lib.DatasetError

_MINARI_IMAGE = 32  # Minari decodes JPEG of at least this height and width.


@importers.importer
def minari(name: Union[str, pathlib.Path]) -> importers.Recording:
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
  specs = []
  for kind in ('observation', 'action'):
    if f'{kind}_space' not in metadata:
      raise DatasetError(f'{metadata_file}: has no {kind}_space')
    space = json.loads(metadata[f'{kind}_space'])
    specs.append(_minari_spec(space, str(metadata_file), kind))
  file = _open_hdf5(folder / 'data' / 'main_data.hdf5', 'The importer of Minari')
  settings = f'minari {folder.name} {files_lib.checksum(metadata_file)}'
  specs = format_lib.Specs(*specs)
  return importers.Recording(settings, specs, True, _minari_episodes(file, specs))


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
      success = float(group.attrs.get('success', np.nan))
      try:
        observation = read(group['observations'], specs.observation)
        action = read(group['actions'], specs.action)
        reward = group['rewards'][:]
        if not len(reward):
          raise DatasetError(f'{file.filename}: {name} has no steps')
        terminated = bool(group['terminations'][-1])
      except KeyError as error:
        raise DatasetError(f'{file.filename}: {name}: {error.args[0]}') from error
      lengths = {len(leaf) for leaf in tree.flatten(observation)}
      if lengths != {len(reward) + 1}:
        raise DatasetError(f'{file.filename}: {name} has {len(reward)} rewards and '
                           f'{sorted(lengths)} observations: expected one more')
      yield importers.make_episode(
          tree.map_structure(lambda x: x[:-1], observation), action, reward, terminated,
          tree.map_structure(lambda x: x[-1], observation), success)


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


@importers.importer
def d4rl(path: Union[str, pathlib.Path], max_episode_steps: Optional[int] = None,
         action_names: Tuple[str, ...] = ()) -> importers.Recording:
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
  specs = format_lib.Specs(
      dm_specs.Array(file['observations'].shape[1:],
                     specs_lib.narrowed(file['observations'].dtype)),
      importers.action_spec(
          file['actions'].shape, file['actions'].dtype,
          lambda: [file['actions'][:]], action_names))
  checksum = importers.checksum(
      *(file[name][:] for name in ('actions', 'rewards', 'terminals')))
  settings = f'd4rl {pathlib.Path(path).name} {checksum} {max_episode_steps or ""}'.strip()
  return importers.Recording(
      settings, specs, False, _d4rl_episodes(file, specs, max_episode_steps))


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
      yield importers.make_episode(
          file['observations'][steps].astype(specs.observation.dtype),
          file['actions'][steps].astype(specs.action.dtype),
          file['rewards'][steps].reshape(-1), terminals[end])
      begin = end + 1


def _ends(terminals: np.ndarray, max_episode_steps: int) -> Iterator[int]:
  """Yields the last steps of episodes that are cut off after a number of steps."""
  begin = 0
  for terminal in itertools.chain(np.flatnonzero(terminals), [len(terminals)]):
    yield from range(begin + max_episode_steps - 1, terminal, max_episode_steps)
    if terminal < len(terminals):
      yield terminal
    begin = terminal + 1


def _open_hdf5(path: pathlib.Path, needed_by: str) -> Any:
  h5py = optional.load('h5py', needed_by, 'offline')
  if not path.is_file():
    raise DatasetError(f'{path}: missing: expected an HDF5 file')
  try:
    return h5py.File(path, 'r')
  except OSError as error:
    raise DatasetError(f'{path}: not an HDF5 file: '
                       f'{" ".join(str(error).split()):.100}') from error
