"""Exports datasets to formats of other libraries, with these libraries.

The libraries are in the extra `offline`.
"""

import contextlib
import importlib
import inspect
import io
import os
import pathlib
import shutil
import tempfile
from typing import Any, Dict, Iterator, List, Tuple, Union
import warnings

from dm_env import specs as dm_specs
import numpy as np
from PIL import Image
import tree

from gtrxl_tf import environments
from gtrxl_tf.datasets import format as format_lib
from gtrxl_tf.datasets import reader
from gtrxl_tf.environments import optional
from gtrxl_tf.environments import specs as specs_lib

DatasetError = format_lib.DatasetError


def minari(dataset: reader.Dataset, name: str) -> pathlib.Path:
  """Writes a dataset that `minari.load_dataset(name)` loads.

  | spec | space |
  |---|---|
  | `DiscreteArray`; `BoundedArray` of one int32 that is not from 0 on | `Discrete` |
  | `BoundedArray` of int32, of rank 1 | `MultiDiscrete` |
  | `BoundedArray` of int8, 0 and 1; bool of rank 1 or more | `MultiBinary` |
  | a single bool | `Box` of int8, 0 and 1 |
  | any other array | `Box`, of the dtype's bounds if the spec has none |

  No value changes: Minari 0.5.4 stores images as they are, and earlier versions get PNG
  where they expect JPEG. `success` becomes an entry of each episode's metadata.

  Args:
    dataset: has episodes with final observations and discounts 0 and 1, which is what
      Minari's format can hold.
    name: the id, which ends with a version, as in `'my_t_maze-v0'`.

  Returns:
    The folder, in `~/.minari/datasets` or in the folder that the environment variable
    `MINARI_DATASETS_PATH` names.
  """
  library = optional.load('minari', 'The export to Minari', 'offline')
  try:
    library.dataset.minari_dataset.parse_dataset_id(name)
  except (TypeError, ValueError) as error:
    raise DatasetError(f'{name}: not an id of Minari: expected one that ends with a '
                       "version, such as 'my_t_maze-v0'") from error
  _check_episodes(dataset, 'Minari')
  spaces = {kind: _space(spec, kind) for kind, spec in (
      ('observation', dataset.observation_spec()), ('action', dataset.action_spec()))}
  parameters = inspect.signature(library.create_dataset_from_buffers).parameters
  unchanged = {'jpeg_encoding': False} if 'jpeg_encoding' in parameters else {}
  folder = library.storage.datasets_root_dir.get_dataset_path(name)
  if folder.exists():
    raise DatasetError(f'{folder}: exists: expected an id that Minari does not have')
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')  # It warns that authors and the like are unknown.
      stored = library.create_dataset_from_buffers(
          name, _minari_episodes(dataset, spaces, png=not unchanged), **unchanged,
          observation_space=spaces['observation'], action_space=spaces['action'],
          description=f'{dataset.environment or "Episodes"}, exported from gtrxl_tf')
    if not np.isnan(dataset.successes).all():
      stored.storage.update_episode_metadata(
          {'success': float(success)} for success in dataset.successes)
  except BaseException:
    shutil.rmtree(folder, ignore_errors=True)
    raise
  return folder


def rlds(dataset: reader.Dataset, folder: Union[str, pathlib.Path]) -> pathlib.Path:
  """Writes a dataset of RLDS that `tfds.builder_from_directory(folder)` reads.

  An episode of T steps has T + 1 there; the last has the final observation only, and
  zeros for action, reward and discount. A `DiscreteArray` becomes a `ClassLabel`, any
  other array a `Tensor`; only single integers keep bounds. Episodes have `success`.

  Args:
    dataset: has episodes with final observations; without tuples, which RLDS lacks.
    folder: a new one, which is returned.
  """
  tfds = optional.load('tensorflow_datasets', 'The export to RLDS', 'offline')
  folder = pathlib.Path(folder)
  if folder.exists():
    raise DatasetError(f'{folder}: exists: expected a new folder')
  _check_episodes(dataset, 'RLDS')

  def feature(spec: Any) -> Any:
    if isinstance(spec, dict):
      return tfds.features.FeaturesDict({k: feature(v) for k, v in spec.items()})
    if isinstance(spec, tuple):
      raise DatasetError(f'{dataset.path}: has tuples: RLDS can hold dictionaries only')
    if isinstance(spec, environments.NamedActions):
      return tfds.features.ClassLabel(names=spec.names)
    if isinstance(spec, dm_specs.DiscreteArray):
      return tfds.features.ClassLabel(num_classes=spec.num_values)
    bounds = {}
    if specs_lib.is_discrete(spec) and not spec.shape:
      bounds = {'minimum': int(spec.minimum), 'maximum': int(spec.maximum)}
    return tfds.features.Tensor(shape=spec.shape, dtype=spec.dtype, **bounds)

  steps = {root: feature(spec) for root, spec in dataset.specs._asdict().items()}
  steps.update(is_first=np.bool_, is_last=np.bool_, is_terminal=np.bool_)
  features = tfds.features.FeaturesDict(
      {'steps': tfds.features.Dataset(steps), 'success': np.float32})
  folder.parent.mkdir(parents=True, exist_ok=True)
  tfds.disable_progress_bar()
  # The folder exists when it is complete; TensorFlow Datasets adds others beside it.
  with tempfile.TemporaryDirectory(
      dir=folder.parent, prefix=f'{folder.name}.partial') as partial:
    with contextlib.redirect_stdout(io.StringIO()):
      builder = tfds.dataset_builders.store_as_tfds_dataset(
          'episodes', '1.0.0', features, {'train': _rlds_episodes(dataset)},
          data_dir=partial, disable_shuffling=True,
          description=f'{dataset.environment or "Episodes"}, exported from gtrxl_tf')
    os.rename(builder.data_dir, folder)
  return folder


def _rlds_episodes(dataset: reader.Dataset) -> Iterator[Tuple[int, Dict[str, Any]]]:
  """Yields numbers of episodes, and the episodes as RLDS has them."""
  for i in range(dataset.num_episodes):
    episode = dataset.episode(i)
    steps = {root: tree.map_structure(lambda x: np.append(x, np.zeros_like(x[:1]), 0),
                                      getattr(episode, root))
             for root in ('action', 'reward', 'discount')}
    steps['observation'] = _with_final(episode)
    number = np.arange(len(episode.reward) + 1)
    steps['is_first'], steps['is_last'] = number == 0, number == number[-1]
    steps['is_terminal'] = steps['is_last'] & (
        episode.end[-1] == format_lib.End.TERMINATION)
    yield i, {'steps': steps, 'success': np.float32(episode.success)}


def _check_episodes(dataset: reader.Dataset, library: str) -> None:
  """Checks that episodes can be written in Minari's format or in RLDS."""
  lacks = (f'{dataset.kind}: {library} can hold episodes only'
           if dataset.kind != 'episodes' else
           'no episodes to export' if not dataset.num_episodes else
           f'no final observations, which {library} needs'
           if dataset.episode(0).final_observation is None else '')
  if lacks:
    raise DatasetError(f'{dataset.path}: has {lacks}')


def _with_final(episode: format_lib.Episode) -> Any:
  """Returns all observations of an episode, a nest of [T + 1, ...]."""
  return tree.map_structure(lambda x, last: np.append(x, last[None], axis=0),
                            episode.observation, episode.final_observation)


def _space(spec: Any, name: str) -> Any:
  """Returns the space of gymnasium for a nest of specs."""
  from gymnasium import spaces  # pylint: disable=import-outside-toplevel
  if isinstance(spec, dict):
    return spaces.Dict({key: _space(value, f'{name}.{key}')
                        for key, value in spec.items()})
  if isinstance(spec, tuple):
    return spaces.Tuple([_space(value, f'{name}.[{i}]')
                         for i, value in enumerate(spec)])
  if isinstance(spec, dm_specs.DiscreteArray):
    return spaces.Discrete(int(spec.num_values))
  if specs_lib.is_index(spec, 2**30) and spec.dtype == np.int32:
    num, start = specs_lib.num_values(spec), specs_lib.minimum(spec)
    if len(spec.shape) == 1:
      return spaces.MultiDiscrete(num, np.int32, start=start)
    if not spec.shape and start:
      return spaces.Discrete(num[0], start=int(start))
  limits = (-np.inf, np.inf) if spec.dtype.kind == 'f' else (0, 1)
  if spec.dtype.kind in 'iu':
    limits = np.iinfo(spec.dtype).min, np.iinfo(spec.dtype).max
  low, high = (
      np.full(spec.shape, getattr(spec, name, limit), spec.dtype)
      for name, limit in zip(('minimum', 'maximum'), limits))
  if spec.shape and spec.dtype in (bool, np.int8) and (
      not low.any() and np.all(high == 1)):
    return spaces.MultiBinary(list(spec.shape))
  if spec.dtype == bool:  # gymnasium's boxes hold only numbers.
    return spaces.Box(0, 1, spec.shape, np.int8)
  space = spaces.Box(low, high, spec.shape, spec.dtype)
  if _is_image(space) and spec.shape[2:] not in ((), (3,), (4,)):
    raise DatasetError(f'{name} has images of shape {spec.shape}: Minari can hold images '
                       'of [height, width] or with 3 or 4 channels')
  return space


def _is_image(space: Any) -> bool:
  """Returns whether Minari decodes the values of a space."""
  return importlib.import_module('minari.dataset.minari_storage').is_image_space(space)


def _minari_episodes(dataset: reader.Dataset, spaces: Any, png: bool) -> Iterator[Any]:
  make = importlib.import_module('minari.data_collector').EpisodeBuffer
  for i in range(dataset.num_episodes):
    episode = dataset.episode(i)
    strange = episode.discount != 1
    strange[-1] &= episode.discount[-1] != 0
    if strange.any():
      step = int(np.argmax(strange))
      raise DatasetError(
          f'{dataset.path}: episode {i} has the discount {episode.discount[step]} at '
          f'step {step}: Minari can hold 0, at the end, and 1')
    yield make(
        observations=_stored(spaces['observation'], _with_final(episode), png),
        actions=_stored(spaces['action'], episode.action, png),
        rewards=episode.reward, terminations=episode.end == format_lib.End.TERMINATION,
        truncations=episode.end == format_lib.End.TRUNCATION)


def _stored(space: Any, nest: Any, png: bool) -> Any:
  """Returns a nest of [T, ...] in the form in which Minari stores it unchanged."""
  if isinstance(nest, dict):
    return {key: _stored(space[key], value, png) for key, value in nest.items()}
  if isinstance(nest, tuple):
    return tuple(_stored(space[i], value, png) for i, value in enumerate(nest))
  array = np.ascontiguousarray(nest, space.dtype)
  if png and _is_image(space):
    array = _encoded(array)
  # Minari before 0.5.4 makes JPEG of every NumPy array of bytes with two axes or more,
  # and that changes values; it stores other buffers as they are.
  return list(map(memoryview, array)) if array.dtype == np.uint8 and array.ndim > 1 \
      else array


def _encoded(images: np.ndarray) -> np.ndarray:
  """Encodes [T, height, width, ...] as PNG: [T, bytes], zeros after the shorter ones."""
  encoded: List[bytes] = []
  for image in images:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format='PNG')
    encoded.append(buffer.getvalue())
  length = max(map(len, encoded))
  return np.stack([np.frombuffer(x.ljust(length, b'\0'), np.uint8) for x in encoded])
