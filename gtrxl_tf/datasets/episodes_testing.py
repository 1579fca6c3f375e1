"""Random episodes for tests."""

from typing import Any, List, Tuple

from dm_env import specs as dm_specs
import numpy as np
import tree

from gtrxl_tf import datasets
from gtrxl_tf.datasets import format as format_lib


def random_specs(rng: np.random.Generator) -> datasets.Specs:
  """Draws specs of observations and actions with any structure, shapes and dtypes."""
  def shape() -> Tuple[int, ...]:
    return tuple(rng.integers(1, 4, size=rng.integers(0, 3)).tolist())

  leaves = [
      lambda: dm_specs.Array(shape(), np.float32),
      lambda: dm_specs.Array(shape(), bool),
      lambda: dm_specs.BoundedArray(shape(), np.float32, -np.inf, 1.5),
      lambda: dm_specs.BoundedArray((2,), np.int16, [-3, 0], [3, 5]),
      lambda: dm_specs.BoundedArray((4, 4, 3), np.uint8, 0, 255),
      lambda: dm_specs.DiscreteArray(int(rng.integers(1, 5))),
  ]
  def leaf() -> dm_specs.Array:
    return leaves[rng.integers(len(leaves))]()

  nests = [leaf, lambda: {'b': leaf(), 'a-1': leaf()},
           lambda: {'z': {'y': leaf(), 'x': leaf()}, 'a': leaf()},
           lambda: (leaf(), {'a': (leaf(),), 'b': leaf()})]
  def nest() -> Any:
    return nests[rng.integers(len(nests))]()

  reward_dtype = rng.choice(['float32', 'float16', 'int16'])
  return datasets.Specs(nest(), nest(), dm_specs.Array((), np.dtype(reward_dtype)),
                        dm_specs.Array((), np.float32))


def random_episode(specs: datasets.Specs, rng: np.random.Generator,
                   num_steps: int = 0, kind: str = 'episodes',
                   final_observation: bool = True) -> datasets.Episode:
  """Draws an episode of `num_steps` steps, or of 1 to 8."""
  num = num_steps or int(rng.integers(1, 9))

  def values(spec: dm_specs.Array, size: Tuple[int, ...]) -> np.ndarray:
    if spec.dtype.kind == 'f':
      return rng.normal(size=size).astype(spec.dtype)
    high = getattr(spec, 'num_values', 2)
    return rng.integers(high, size=size).astype(spec.dtype)

  steps = tree.map_structure(lambda spec: values(spec, (num, *spec.shape)), specs)
  end = np.zeros(num, np.uint8)
  if kind == 'histories':
    end[:] = rng.integers(3, size=num)
  else:
    end[-1] = rng.integers(1, 3)
  discount = np.where(end == datasets.End.TERMINATION, 0, 1).astype(np.float32)
  final = tree.map_structure(lambda spec: values(spec, spec.shape), specs.observation)
  return datasets.Episode(
      steps.observation, steps.action, steps.reward, discount, end,
      float(rng.choice([0, 1, np.nan])), final if final_observation else None)


def write(path, specs: datasets.Specs, episodes: List[datasets.Episode], **settings
          ) -> datasets.Dataset:
  """Writes a dataset of these episodes, one by one."""
  with datasets.EpisodeWriter(path, specs, **settings) as writer:
    for i, episode in enumerate(episodes):
      writer.write([episode], progress=i + 1)
  return datasets.open_dataset(path)


def assert_equal(found: datasets.Episode, expected: datasets.Episode) -> None:
  """Asserts that two episodes have the same values, dtypes and structure."""
  found_arrays, arrays = map(format_lib.to_arrays, (found, expected))
  assert found_arrays.keys() == arrays.keys(), (found_arrays.keys(), arrays.keys())
  for name, array in arrays.items():
    np.testing.assert_array_equal(found_arrays[name], array, err_msg=name)
    assert np.asarray(found_arrays[name]).dtype == np.asarray(array).dtype, name
