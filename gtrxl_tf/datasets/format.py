"""The format of episodes on disk.

A dataset is a folder, and numpy with a reader of JSON is all that it takes to read it:

  dataset.json      what is there
  shard-00000/      some of the episodes, whole ones
    offset.npy            int64 [E + 1], where each episode begins, and S, all steps
    success.npy           float32 [E], 1 or 0; NaN where the environment tells nothing
    observation.npy       [S, ...], of the dtype and shape that dataset.json tells
    action.npy            [S, ...]
    reward.npy            [S]
    discount.npy          [S]
    end.npy               uint8 [S], values of `End`
    final_observation.npy [E, ...], only if dataset.json says so
  shard-00001/
  ...

Where an observation or an action is a dictionary, each entry has its own file, like
`observation.image.npy`. No array holds Python objects: nothing is ever unpickled.

A step is what the agent saw, what it did, and what came of it. In terms of dm_env, in
an episode of T actions, which has the time steps 0 to T,

  step t          has                                         for t = 0 .. T - 1
  observation     time_steps[t].observation
  action          the answer to it
  reward          time_steps[t + 1].reward, which answers the action
  discount        time_steps[t + 1].discount
  end             NONE but at t = T - 1, where it is TERMINATION if the discount is 0,
                  else TRUNCATION

and `final_observation` is that of the last time step, T, after which nothing was done.
In RLDS the same episode has T + 1 steps, of which the last holds this observation only.

A dataset of the kind `histories` holds learning histories instead, each a whole
process of learning, with the ends of the episodes in it at any steps (and at its last
step or not). What is said of an episode elsewhere then holds for a history.

dataset.json has

  format, version   'gtrxl_tf episodes', 1
  kind              'episodes' or 'histories'
  environment       a name, for people
  settings          the gin settings with which they were collected, or ''
  arrays            of each array of steps the dtype, the shape of a step and, if the
                    spec has them, minimum and maximum, or num_values
  final_observation whether there are any
  num_episodes, num_steps
  progress          where the writer is to go on, whatever that means to it
  shards            of each its name, num_episodes, num_steps, and of each file its
                    bytes and crc32
  crc32             of all the above, see `checksum`

Bounds may be Infinity, which Python's JSON writes and reads. Arrays are little-endian.

A shard comes to be by renaming a finished folder, and counts from when dataset.json,
which is replaced as a whole, lists it. So whatever kills a writer leaves a whole
dataset.
"""

import enum
import json
import pathlib
import re
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple
import zlib

import dm_env
from dm_env import specs as dm_specs
import numpy as np
import tree

FORMAT, VERSION = 'gtrxl_tf episodes', 1
KINDS = ('episodes', 'histories')

_KEY = re.compile(r'[A-Za-z0-9_-]+')


class DatasetError(ValueError):
  """Episodes that cannot be used, or not in this way. The message is one line."""


class End(enum.IntEnum):
  """What a step ends."""
  NONE = 0
  TERMINATION = 1  # The task was over.
  TRUNCATION = 2   # It was cut off, and could have gone on.


class Episode(NamedTuple):
  """T steps, as the module's docstring defines them.

  Attributes:
    observation: nest of [T, ...].
    action: nest of [T, ...].
    reward: [T].
    discount: [T].
    end: uint8 [T], values of `End`.
    success: 1 or 0; NaN where it is not known.
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


class Specs(NamedTuple):
  """`dm_env.specs` of a step: arrays, or dictionaries of them to any depth."""
  observation: Any
  action: Any
  reward: dm_specs.Array = _SCALAR
  discount: dm_specs.Array = _SCALAR

  def leaves(self) -> Dict[str, dm_specs.Array]:
    """The spec of each array of steps but `end`, by its name."""
    found = {}
    for root, nest in self._asdict().items():
      for path, spec in tree.flatten_with_path(nest):
        if not all(isinstance(key, str) and _KEY.fullmatch(key) for key in path):
          raise DatasetError(f'{root}_spec has {list(path)}: expected dictionaries '
                             'with keys of letters, digits, _ and - only')
        found['.'.join([root, *path])] = spec
    return found


def from_dm_env(time_steps: Sequence[dm_env.TimeStep], actions: Sequence[Any],
                specs: Specs, success: float = float('nan')) -> Episode:
  """The episode of T + 1 time steps, from FIRST to LAST, and T actions.

  Raises:
    DatasetError: they are not one whole episode.
  """
  kinds = [time_step.step_type for time_step in time_steps]
  if (len(kinds) < 2 or len(actions) != len(kinds) - 1
      or kinds[0] != dm_env.StepType.FIRST or kinds[-1] != dm_env.StepType.LAST
      or any(kind != dm_env.StepType.MID for kind in kinds[1:-1])):
    raise DatasetError(
        f'{len(kinds)} time steps with {len(actions)} actions: expected one FIRST, any '
        'MID, one LAST, and an action after each but that')
  stack = lambda spec, *rows: np.stack(rows).astype(spec.dtype, casting='same_kind')
  stacked = lambda nest, rows: tree.map_structure_up_to(
      nest, stack, nest, *rows, check_types=False)
  outcome = lambda name: np.array(
      [getattr(t, name) for t in time_steps[1:]], getattr(specs, name).dtype)
  end = np.zeros(len(actions), np.uint8)
  end[-1] = End.TERMINATION if time_steps[-1].discount == 0 else End.TRUNCATION
  observation = stacked(specs.observation, [t.observation for t in time_steps])
  return Episode(
      tree.map_structure(lambda x: x[:-1], observation),
      stacked(specs.action, list(actions)), outcome('reward'), outcome('discount'),
      end, success, tree.map_structure(lambda x: x[-1], observation))


def arrays_of(episode: Episode) -> Dict[str, np.ndarray]:
  """The episode's arrays of steps, by name."""
  return {'.'.join([root, *map(str, path)]): leaf
          for root in (*Specs._fields, 'end')
          for path, leaf in tree.flatten_with_path(getattr(episode, root))}


def is_observation(name: str) -> bool:
  """Whether an array of steps is of the observation, by its name."""
  return name.split('.')[0] == 'observation'


def array_specs(specs: Specs, final_observation: bool
                ) -> Tuple[Dict[str, dm_specs.Array], Dict[str, dm_specs.Array]]:
  """Specs of a step and of an episode: of the rows of every file but `offset.npy`."""
  steps = {**specs.leaves(), 'end': dm_specs.Array((), np.uint8)}
  episodes = {'success': _SCALAR}
  if final_observation:
    episodes.update({'final_' + name: spec for name, spec in steps.items()
                     if is_observation(name)})
  return steps, episodes


def check_steps(specs: Specs, kind: str, arrays: Dict[str, np.ndarray],
                offset: np.ndarray, first_episode: int = 0) -> None:
  """Refuses values that no episode has.

  Args:
    specs: of the steps.
    kind: of the dataset.
    arrays: [S, ...], of any names of `specs.leaves()` and `end`.
    offset: [E + 1], where each episode begins.
    first_episode: the number of the first one, for the error.

  Raises:
    DatasetError: names array, episode and step.
  """
  leaves = specs.leaves()
  for name, array in arrays.items():
    if name == 'end':
      wrong, expected = array > max(End), '0, 1 or 2'
      if kind == 'episodes':
        last = np.zeros(len(array), bool)
        last[offset[1:] - 1] = True
        wrong |= (array != End.NONE) != last
        expected = 'an end at the last step of an episode and nowhere else'
    elif name == 'discount':
      wrong, expected = ~((array >= 0) & (array <= 1)), 'a number in [0, 1]'
    elif isinstance(leaves[name], dm_specs.DiscreteArray):
      wrong = (array < 0) | (array >= leaves[name].num_values)
      expected = f'an integer in [0, {leaves[name].num_values})'
    elif array.dtype.kind == 'f':
      wrong, expected = ~np.isfinite(array), 'finite numbers'
    else:
      continue
    if wrong.any():
      row = int(np.argmax(wrong.reshape(len(array), -1).any(axis=1)))
      episode = int(np.searchsorted(offset, row, side='right')) - 1
      raise DatasetError(
          f'{name} of episode {first_episode + episode}, step {row - offset[episode]}, '
          f'is {str(array[row]):.60}: expected {expected}')


def spec_to_json(spec: dm_specs.Array) -> Dict[str, Any]:
  """What dataset.json says about an array."""
  if spec.dtype.kind not in 'biuf':
    raise DatasetError(f'{spec} has dtype {spec.dtype}: expected numbers or bools')
  entry = {'dtype': spec.dtype.name, 'shape': list(spec.shape)}
  if isinstance(spec, dm_specs.DiscreteArray):
    entry['num_values'] = int(spec.num_values)
  elif isinstance(spec, dm_specs.BoundedArray):
    entry['minimum'] = np.asarray(spec.minimum).tolist()
    entry['maximum'] = np.asarray(spec.maximum).tolist()
  return entry


def specs_from_json(entries: Dict[str, Dict[str, Any]]) -> Specs:
  """The specs of the arrays, nested as their names say."""
  roots: Dict[str, Any] = {}
  for name, entry in entries.items():
    dtype, shape = np.dtype(entry['dtype']), tuple(entry['shape'])
    if 'num_values' in entry:
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
  return Specs(**roots)


def checksum(description: Dict[str, Any]) -> str:
  """Of all of dataset.json but the checksum in it, whatever the white space."""
  text = json.dumps({key: value for key, value in description.items()
                     if key != 'crc32'}, sort_keys=True)
  return f'{zlib.crc32(text.encode()):08x}'


def read_description(path: pathlib.Path) -> Optional[Dict[str, Any]]:
  """dataset.json of the folder `path`; None if there is none.

  Raises:
    DatasetError: it is not as a writer left it, or of another version.
  """
  file = path / 'dataset.json'
  if not file.exists():
    return None
  try:
    description = json.loads(file.read_bytes())
  except ValueError as error:
    raise DatasetError(f'{file}: not JSON: {error}') from error
  if not isinstance(description, dict) or description.get('format') != FORMAT:
    raise DatasetError(f'{file}: not a dataset: expected the format {FORMAT!r}')
  if description.get('version') != VERSION:
    raise DatasetError(f'{file}: has version {description.get("version")!r}: '
                       f'expected {VERSION}')
  if description.get('crc32') != checksum(description):
    raise DatasetError(f'{file}: was changed after it was written: its checksum is '
                       f'{checksum(description)}, expected {description.get("crc32")}')
  return description

