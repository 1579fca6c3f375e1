"""The format of episodes on disk.

A dataset is a folder; NumPy and a JSON reader are enough to read it:

  dataset.json      describes the dataset
  shard-00000/      some of the episodes, all complete
    offset.npy            int64 [E + 1], the first step of each episode, and S, the
                          number of steps
    success.npy           float32 [E], 1 or 0; NaN if the environment does not say
    observation.npy       [S, ...], of the dtype and shape in dataset.json
    action.npy            [S, ...]
    reward.npy            [S]
    discount.npy          [S]
    end.npy               uint8 [S], values of `End`
    final_observation.npy [E, ...], only if dataset.json says so
  shard-00001/
  ...

If an observation or an action is a dictionary, each entry has its own file, such as
`observation.image.npy`; so has each entry of a tuple, such as `observation.[0].npy`.
No array holds Python objects: nothing is ever unpickled.

A step is an observation, the action taken on it, and the result. In terms of dm_env, an
episode of T actions has the time steps 0 to T, and

  step t          has                                         for t = 0 .. T - 1
  observation     time_steps[t].observation
  action          the action taken on it
  reward          time_steps[t + 1].reward, which results from the action
  discount        time_steps[t + 1].discount
  end             NONE for t < T - 1; for t = T - 1, TERMINATION if the discount is 0,
                  else TRUNCATION

`final_observation` is that of the last time step, T, on which no action was taken. In
RLDS the same episode has T + 1 steps, the last with this observation only.

A dataset of the kind `histories` holds learning histories instead. A history is a
complete learning process; episodes in it may end at any step, and the last one may be
unfinished. Where files are described, "episode" then means a history.

dataset.json has

  format, version   'gtrxl_tf episodes', 2. In version 1, the values of gymnasium's
                    Discrete and MultiDiscrete count from 0, whatever their `start`
  kind              'episodes' or 'histories'
  environment       its name, for people
  settings          the gin settings of the collection, or ''
  arrays            for each array of steps: the dtype, the shape of a step and, if the
                    spec has them, minimum and maximum, or num_values and the
                    names of these values
  final_observation whether there are any
  num_episodes, num_steps
  progress          where the writer is to continue, in the writer's own terms
  shards            for each shard: name, num_episodes, num_steps, and for each file its
                    bytes and crc32
  crc32             of all the above, see `files.seal`

Bounds may be Infinity, which Python's JSON writes and reads. Arrays are little-endian.

A shard is written to a temporary folder, which is then renamed. It is part of the
dataset once dataset.json, which is replaced atomically, lists it. A writer that is
killed at any moment therefore leaves a valid dataset.
"""

import enum
import functools
import pathlib
import re
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Union

import dm_env
from dm_env import specs as dm_specs
import numpy as np
import tree

from gtrxl_tf import environments
from gtrxl_tf import files

FORMAT, VERSION = 'gtrxl_tf episodes', 2
KINDS = ('episodes', 'histories')

_KEY = re.compile(r'[A-Za-z0-9_-]+')


class DatasetError(ValueError):
  """Episodes that cannot be used as they are. The message is one line."""


class End(enum.IntEnum):
  """Whether and how an episode ends with a step."""
  NONE = 0
  TERMINATION = 1  # The task was over.
  TRUNCATION = 2   # The episode was cut off and could have continued.


class Episode(NamedTuple):
  """An episode of T steps, as the module's docstring defines them.

  Attributes:
    observation: nest of [T, ...].
    action: nest of [T, ...].
    reward: [T].
    discount: [T].
    end: uint8 [T], values of `End`.
    success: 1 or 0; NaN if it is not known.
    final_observation: nest of [...], or None.
  """
  observation: Any
  action: Any
  reward: np.ndarray
  discount: np.ndarray
  end: np.ndarray
  success: float = float('nan')
  final_observation: Any = None


_SCALAR = dm_specs.Array((), np.float32)


def array_name(root: str, path: Sequence[Union[str, int]]) -> str:
  """Returns the name of the array that is found at a path within a nest."""
  return '.'.join([root, *(f'[{key}]' if isinstance(key, int) else str(key)
                           for key in path)])


def _check_node(root: str, node: Any) -> None:
  """Raises a `DatasetError` if the names of a nest's arrays do not determine it."""
  if isinstance(node, list) or isinstance(node, Mapping) and not all(
      isinstance(key, str) and _KEY.fullmatch(key) for key in node):
    keys = 'a list' if isinstance(node, list) else [*node]
    raise DatasetError(f'{root}_spec has {keys}: expected dictionaries with keys of '
                       'letters, digits, _ and - only, or tuples')


class Specs(NamedTuple):
  """`dm_env.specs` of a step: arrays, or nested dictionaries and tuples of arrays."""
  observation: Any
  action: Any
  reward: dm_specs.Array = _SCALAR
  discount: dm_specs.Array = _SCALAR

  def leaves(self) -> Dict[str, dm_specs.Array]:
    """Returns the spec of each array of steps except `end`, by name."""
    found = {}
    for root, nest in self._asdict().items():
      tree.traverse(functools.partial(_check_node, root), nest)
      for path, spec in tree.flatten_with_path(nest):
        if not isinstance(spec, dm_specs.Array):
          raise DatasetError(
              f'{root}_spec has a {type(spec).__name__}: expected specs of dm_env, which '
              'environments.FromGymnasium makes of gymnasium\'s spaces')
        found[array_name(root, path)] = spec
    return found


def from_dm_env(time_steps: Sequence[dm_env.TimeStep], actions: Sequence[Any],
                specs: Specs, success: float = float('nan')) -> Episode:
  """Makes an episode from T + 1 time steps, FIRST to LAST, and T actions.

  Every time step needs an observation of its own: keep a copy if an environment returns
  the same array each time.
  """
  kinds = [time_step.step_type for time_step in time_steps]
  if (len(kinds) < 2 or len(actions) != len(kinds) - 1
      or kinds[0] != dm_env.StepType.FIRST or kinds[-1] != dm_env.StepType.LAST
      or any(kind != dm_env.StepType.MID for kind in kinds[1:-1])):
    raise DatasetError(
        f'{len(kinds)} time steps with {len(actions)} actions: expected one FIRST, any '
        'MID, one LAST, and an action after each but that')
  observation = _stacked(
      'observation', specs.observation, [t.observation for t in time_steps])
  return with_final(
      observation, _stacked('action', specs.action, actions),
      np.array([t.reward for t in time_steps[1:]], specs.reward.dtype),
      np.array([t.discount for t in time_steps[1:]], specs.discount.dtype), success)


def with_final(observation: Any, *rest: Any) -> Episode:
  """Makes an episode as `make_episode` does; its observations are [T + 1, ...]."""
  return make_episode(
      tree.map_structure(lambda x: x[:-1], observation), *rest,
      final_observation=tree.map_structure(lambda x: x[-1], observation))


def make_episode(observation: Any, action: Any, reward: np.ndarray, discount: np.ndarray,
                 success: float = float('nan'), final_observation: Any = None
                 ) -> Episode:
  """Makes an episode that ends with its last step: the task, if that discount is 0."""
  end = np.zeros(len(reward), np.uint8)
  end[-1:] = End.TRUNCATION if discount[-1] else End.TERMINATION
  return Episode(observation, action, reward, discount, end, success, final_observation)


def _stacked(root: str, specs: Any, rows: Sequence[Any]) -> Any:
  """Stacks nests of [...] to a nest of [T, ...], of the dtypes of `specs`."""
  def stack(spec: dm_specs.Array, *leaves: Any) -> np.ndarray:
    try:
      return np.stack(leaves).astype(spec.dtype, casting='same_kind')
    except (TypeError, ValueError) as error:
      raise DatasetError(
          f'{root}: {error}: expected arrays of {spec.dtype} {spec.shape}') from error

  return tree.map_structure_up_to(specs, stack, specs, *rows)


def to_arrays(episode: Episode) -> Dict[str, Any]:
  """Returns the arrays of an episode, or of specs of one, by name."""
  return {array_name(root, path): leaf
          for root, nest in episode._asdict().items() if nest is not None
          for path, leaf in tree.flatten_with_path(nest)}


def is_observation(name: str) -> bool:
  """Returns whether an array of steps belongs to the observation, by its name."""
  return name.split('.')[0] == 'observation'


def spec_to_json(name: str, spec: dm_specs.Array) -> Dict[str, Any]:
  """Returns the description of an array in dataset.json."""
  if spec.dtype.kind not in 'biuf':
    raise DatasetError(f'{name} has dtype {spec.dtype}: expected numbers or bools')
  entry = {'dtype': spec.dtype.name, 'shape': list(spec.shape)}
  if isinstance(spec, dm_specs.DiscreteArray):
    entry['num_values'] = int(spec.num_values)
    if isinstance(spec, environments.NamedActions):
      entry['names'] = list(spec.names)
  elif isinstance(spec, dm_specs.BoundedArray):
    entry['minimum'] = np.asarray(spec.minimum).tolist()
    entry['maximum'] = np.asarray(spec.maximum).tolist()
  return entry


def specs_from_json(entries: Dict[str, Dict[str, Any]]) -> Specs:
  """Returns the specs of the arrays, nested as their names say."""
  roots: Dict[str, Any] = {}
  for name, entry in entries.items():
    dtype, shape = np.dtype(entry['dtype']), tuple(entry['shape'])
    if 'names' in entry:
      spec = environments.NamedActions(entry['names'], dtype, name)
    elif 'num_values' in entry:
      spec = dm_specs.DiscreteArray(entry['num_values'], dtype, name)
    elif 'minimum' in entry:
      spec = dm_specs.BoundedArray(
          shape, dtype, entry['minimum'], entry['maximum'], name)
    else:
      spec = dm_specs.Array(shape, dtype, name)
    *path, key = name.split('.')
    nest = roots
    for step in path:
      nest = nest.setdefault(step, {})
    nest[key] = spec
  return Specs(**_with_tuples(roots))


def _with_tuples(nest: Any) -> Any:
  """Makes tuples of the dictionaries that stand for them."""
  if not isinstance(nest, dict):
    return nest
  found = {key: _with_tuples(value) for key, value in nest.items()}
  if any(key.startswith('[') for key in found):
    return tuple(found[f'[{i}]'] for i in range(len(found)))
  return found


def read_description(path: pathlib.Path) -> Optional[Dict[str, Any]]:
  """Reads dataset.json in the folder `path`; returns None if there is no such file."""
  file = path / 'dataset.json'
  if not file.exists():
    return None
  try:
    description = files.read_sealed(file)
  except files.DamagedFile as error:
    raise DatasetError(str(error)) from error
  if description.get('format') != FORMAT:
    raise DatasetError(f'{file}: not a dataset: expected the format {FORMAT!r}')
  if description.get('version') not in (1, VERSION):
    raise DatasetError(f'{file}: has version {description.get("version")!r}: '
                       f'expected 1 or {VERSION}')
  return description
