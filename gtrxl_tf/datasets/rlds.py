"""Imports RLDS, the format of episodes in TensorFlow Datasets."""

import functools
import pathlib
from typing import Any, Dict, Iterator, Tuple, Union

from dm_env import specs as dm_specs
import numpy as np
import tree

from gtrxl_tf import environments
from gtrxl_tf import files
from gtrxl_tf.datasets import format as format_lib
from gtrxl_tf.datasets import importers
from gtrxl_tf.environments import optional
from gtrxl_tf.environments import specs as specs_lib

DatasetError = format_lib.DatasetError


@importers.importer
def rlds(folder: Union[str, pathlib.Path], action_names: Tuple[str, ...] = ()
         ) -> importers.Recording:
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
    import tensorflow as tf  # pylint: disable=import-outside-toplevel
    read_config = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)

    def whole(episode: Dict[str, Any]) -> Dict[str, Any]:
      steps = episode['steps'].batch(2**31).get_single_element()
      return {**episode, 'steps': steps}

    try:
      for episode in builder.as_dataset('all', read_config=read_config).map(whole):
        yield tree.map_structure(lambda x: x.numpy(), episode)
    except tf.errors.OpError as error:
      raise DatasetError(f'{folder}: cannot be read: '
                         f'{" ".join(error.message.split()):.100}') from error

  action = _spec(tfds.features, steps['action'], f'{folder}: action')
  if isinstance(action, dm_specs.Array) and not action.shape and not isinstance(
      action, dm_specs.BoundedArray):
    action = importers.action_spec((0,), action.dtype, lambda: [
        x['steps']['action'] for x in episodes()] or [np.zeros(1)], action_names)
  specs = format_lib.Specs(_spec(
      tfds.features, steps['observation'], f'{folder}: observation'), action)
  checksum = files.checksum(folder / 'dataset_info.json')
  return importers.Recording(
      f'rlds {builder.info.full_name} {checksum}', specs, True,
      map(functools.partial(_episode, folder, specs), episodes()))


def _spec(kinds: Any, feature: Any, place: str) -> Any:
  """Returns the specs of a feature of TensorFlow Datasets; None for a text."""
  if isinstance(feature, kinds.FeaturesDict):
    found = {key: _spec(kinds, feature[key], f'{place}.{key}')
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


def _episode(folder: pathlib.Path, specs: format_lib.Specs,
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
  return importers.make_episode(
      tree.map_structure(lambda x: x[:-1], observation),
      tree.map_structure(lambda x: x[:-1], action), steps['reward'][:-1], terminated,
      tree.map_structure(lambda x: x[-1], observation),
      float(episode.get('success', np.nan)))._replace(discount=discount)


def _taken(spec: Any, nest: Any) -> Any:
  """Returns the arrays of a nest that the spec has, with its dtypes."""
  if isinstance(spec, dict):
    return {key: _taken(spec[key], nest[key]) for key in spec}
  return nest.astype(spec.dtype)
