"""Writes the observations of many environments into arrays, if they fit their spec."""

from typing import Any, Callable, Optional

from absl import logging
import numpy as np
import tree

from gtrxl_tf.environments import batched_specs
from gtrxl_tf.environments import specs as specs_lib


class Misfit(Exception):
  """A value that does not fit its spec: the environment's number, and a description."""


class ObservationWriter:
  """Writes observations of E environments with one spec.

  Attributes:
    spec: nest of specs of what is written, with float32 for float64.
  """

  def __init__(self, spec: Any, num_environments: int):
    """Creates the writer; `spec` is that of an environment's observations."""
    self.spec = tree.map_structure(batched_specs.with_narrow_floats, spec)
    self._source_spec = spec
    leaves = batched_specs.named_leaves('observation', spec)
    self._leaves = [(name, leaf.shape, leaf.dtype) for name, leaf in leaves]
    self._is_nested = tree.is_nested(spec)
    self._array_specs = [((num_environments, *leaf.shape), leaf.dtype)
                         for leaf in tree.flatten(self.spec)]
    # Places of leaves that are checked further: the action mask, and integers with
    # their bounds.
    self._masks = [place for place, (name, _) in enumerate(leaves)
                   if name == f'observation[{specs_lib.MASK!r}]']
    self._bounded = [(place, leaf.minimum, leaf.maximum,
                      specs_lib.describe_bounds(leaf))
                     for place, (_, leaf) in enumerate(leaves)
                     if place not in self._masks and specs_lib.is_narrow(leaf)]
    self._stepped = set()  # Environments in which the names after a step were compared.
    self._far = [(place, *limits) for place, (_, leaf) in enumerate(leaves)
                 if (limits := specs_lib.far(leaf)) is not None]

  def new_arrays(self) -> list[np.ndarray]:
    """Returns arrays for one step of all environments."""
    return [np.empty(shape, dtype) for shape, dtype in self._array_specs]

  def write(self, arrays: list[np.ndarray], i: int, observation: Any, begins: bool
            ) -> None:
    """Writes an observation of environment `i`.

    Args:
      arrays: made by `new_arrays`.
      i: number of the environment.
      observation: the observation of a time step.
      begins: whether it is the first of an episode. The names in a nest are compared
        then, and once for each environment in another step. Comparing them at every
        step takes twice as long as the rest.

    Raises:
      Misfit: structure, shape or dtype are not those of the spec.
    """
    if self._is_nested:
      leaves = tree.flatten(observation)
      if begins or i not in self._stepped or len(leaves) != len(arrays):
        self._check_structure(i, observation)
        if not begins:
          self._stepped.add(i)
    else:
      leaves = (observation,)
    for leaf, array, (name, shape, dtype) in zip(leaves, arrays, self._leaves):
      # The assignment alone would broadcast and cast silently.
      if getattr(leaf, 'shape', None) != shape or leaf.dtype != dtype:
        leaf = self._fitting(i, leaf, name, shape, dtype)
      array[i] = leaf

  def checked(self, arrays: list[np.ndarray], last: np.ndarray) -> Any:
    """Returns the arrays as a nest.

    Args:
      arrays: made by `new_arrays`; the observations of all environments are in them.
      last: bool [E], whether the steps are last ones, in which no action is needed.

    Raises:
      Misfit: floats are not finite, integers are out of their bounds, or a mask allows
        no action.
    """
    for (name, *_), values in zip(self._leaves, arrays):
      if values.dtype.kind == 'f' and (i := first_false(np.isfinite(values))) is not None:
        raise Misfit(i, f'{name} = {" ".join(str(values[i]).split()):.60}: '
                     'expected finite numbers')
    for place, low, high, expected in self._bounded:
      values = arrays[place]
      if (i := first_false((values >= low) & (values <= high))) is not None:
        raise Misfit(i, f'{self._leaves[place][0]} = '
                     f'{values[i].tolist()!s:.60}: expected {expected}')
    for place in self._masks:
      values = arrays[place]
      if (i := first_false(values.any(axis=-1) | last)) is not None:
        raise Misfit(i, f'{self._leaves[place][0]} = '
                     f'{values[i].tolist()!s:.60} allows no action: '
                     'expected at least one nonzero entry')
    return tree.unflatten_as(self.spec, arrays)

  def warn_of_far(self, arrays: list[np.ndarray], time: Callable[[int], str]) -> None:
    """Logs a warning, once, if an observation is far outside its bounds.

    Args:
      arrays: made by `new_arrays`; the observations of all environments are in them.
      time: returns the episode and the step of an environment, given its number.
    """
    for place, low, high in self._far:
      values = arrays[place].astype(np.float64, copy=False)
      is_far = (values < low) | (values > high)
      if is_far.any():
        i, *where = np.argwhere(is_far)[0]
        name, spec = self._leaves[place][0], tree.flatten(self._source_spec)[place]
        least, most = (x[tuple(where)] for x in specs_lib.bounds(spec))
        logging.warning(
            'environment %d: %s has a value of %g, and bounds of %g and %g (%s): expected '
            'values near the bounds. Networks learn little from numbers of another scale: '
            'correct the bounds, or scale the observation', i, name,
            values[(i, *where)], least, most, time(i))
        self._far = []
        return

  def _check_structure(self, i: int, observation: Any) -> None:
    found = [name for name, _ in batched_specs.named_leaves('observation', observation)]
    expected = [name for name, *_ in self._leaves]
    if found != expected:  # dm-tree's check does not compare keys.
      raise Misfit(i, f'returned {found}: expected {expected}')

  def _fitting(self, i: int, value: Any, name: str, shape: tuple, dtype: np.dtype
               ) -> np.ndarray:
    """Returns `value` as an array; raises an error if that does not fit the spec."""
    try:
      value = np.asarray(value)
    except ValueError as error:  # Lists of different lengths.
      raise Misfit(i, f'{name} is not an array: expected {shape} and {dtype}, as its '
                   'spec says') from error
    if value.dtype.kind not in 'biuf':  # For example, None.
      raise Misfit(i, f'{name} = {value.tolist()!r:.60}: expected an array of shape '
                   f'{shape} and dtype {dtype}, as its spec says')
    if value.shape != shape or value.dtype != dtype:
      raise Misfit(
          i, f'{name} has shape {value.shape} and dtype {value.dtype}: expected {shape} '
          f'and {dtype}, as its spec says')
    return value


def first_false(fits: np.ndarray) -> Optional[int]:
  """Returns the number of the first environment with a False in bools [E, ...]."""
  if fits.all():
    return None
  return int(np.argmin(fits.reshape(len(fits), -1).all(axis=1)))
