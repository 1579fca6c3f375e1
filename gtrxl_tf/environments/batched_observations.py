"""Writes the observations of many environments into arrays, if they fit their spec."""

from typing import Any, Callable, Optional, Sequence

from absl import logging
from dm_env import specs
import numpy as np
import tree

from gtrxl_tf.environments import batched_specs
from gtrxl_tf.environments import specs as specs_lib


class Misfit(Exception):
  """A value that does not fit its spec: the environment's number, and a description."""


# The scale of observations is looked at every so many steps, and judged after so many.
_STEPS_BETWEEN_LOOKS, _MANY_STEPS = 10, 100
# Numbers without two bounds are large from here on: a network learns slowly from a scale of
# 1,000, and not from 10,000. Bytes in this range are small, and scaled numbers in that.
_LARGE, _SMALL_BYTES, _SMALL = 300.0, 16, 1e-3


class ObservationWriter:
  """Writes observations of E environments with one spec.

  Attributes:
    spec: nest of specs of what is written, with float32 for float64.
  """

  def __init__(self, spec: Any, num_environments: int):
    """Creates the writer; `spec` is that of an environment's observations."""
    self.spec = tree.map_structure(batched_specs.with_narrow_floats, spec)
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
    self._watched = [(place, *leaf, specs_lib.kind(leaf[1]), [np.inf, -np.inf])
                     for place, leaf in enumerate(leaves) if place not in self._masks]

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

  def watch(self, arrays: list[np.ndarray], kinds: Sequence[str], last: np.ndarray,
            num_steps: int, time: Callable[[int], str]) -> None:
    """Logs a warning, once, of an array of some `specs.kind` that teaches networks little.

    `time` returns the episode and the step of an environment; for `last` see `checked`.
    """
    over = bool(last.any())
    if not kinds or not over and num_steps % _STEPS_BETWEEN_LOOKS != 2:
      return
    for place, name, spec, kind, span in self._watched:
      concern = _misshapen(name, spec)
      if not concern and kind in kinds:
        values = arrays[place].astype(np.float64, copy=False)
        span[:] = (np.minimum(span[0], values.min(axis=0)),
                   np.maximum(span[1], values.max(axis=0)))
        concern = _off_scale(
            name, spec, values, *span, over or num_steps > _MANY_STEPS, time)
      if concern:
        logging.warning('%s', concern)
        self._watched = []
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


def _misshapen(name: str, spec: specs.Array) -> str:
  """Says what to do with what seems to be an image in another layout; '' if none."""
  shape, is_byte = spec.shape, spec.dtype == np.uint8
  is_image = is_byte if len(shape) == 2 else len(shape) == 3 and (
      shape[0] in specs_lib.COLOURS and (is_byte or spec.dtype.kind == 'f'))
  if not is_image or specs_lib.is_index(spec) or min(shape[-2:]) < specs_lib.SMALLEST_IMAGE:
    return ''
  axes, mend = {2: ('[H, W]', 'x[..., None]'),
                3: ('[C, H, W]', 'np.moveaxis(x, 0, -1)')}[len(shape)]
  return (f'{name}: an array of shape {shape} seems to be an image {axes}: expected '
          f"[H, W, C], which {mend} makes of it in gymnasium's TransformObservation")


def _off_scale(name: str, spec: specs.Array, values: np.ndarray, least: np.ndarray,
               greatest: np.ndarray, over: bool, time: Callable[[int], str]) -> str:
  """Says why networks learn little from `values` `[E, ...]` or all so far; '' if not."""
  (low, high), (middle, half) = specs_lib.bounds(spec), specs_lib.middle_and_half(spec)
  _, scale = specs_lib.scaling(spec)
  is_far = np.abs(values - middle) > np.where(np.isinf(high - low), _LARGE, 3 * half)
  width, small = greatest - least, np.where(scale != 1, _SMALL * scale, 0)
  if spec.dtype == np.uint8 and (specs_lib.is_image(spec) or np.max(scale) > 1):
    width, small = greatest.max() - least.min(), _SMALL_BYTES
  is_small = over & (width > 0) & (width <= small)
  if is_far.any():
    i, *where = np.argwhere(is_far)[0]
    came = f'a value of {values[(i, *where)]:g}'
  elif is_small.any():
    i, *where = 0, *np.argwhere(is_small)[0]
    came = (f'values of only {np.min(least[tuple(where)]):g} to '
            f'{np.max(greatest[tuple(where)]):g}')
  else:
    return ''
  low, high = np.min(low[tuple(where)]), np.max(high[tuple(where)])
  mend = (' (bytes with bounds of at most 64 values are indices)'
          if specs_lib.is_image(spec) else
          ', or set ActorCritic.normalize_observations = True (offline: '
          'DecisionNetwork.normalize_observations = True)')
  return (f'environment {i}: {name} has {came}, and bounds of {low:g} and {high:g} '
          f'({time(i)}): expected values that fill the bounds, or below {_LARGE:g} without '
          f'two bounds. Networks learn little from others: correct the bounds{mend}')


def first_false(fits: np.ndarray) -> Optional[int]:
  """Returns the number of the first environment with a False in bools [E, ...]."""
  if fits.all():
    return None
  return int(np.argmin(fits.reshape(len(fits), -1).all(axis=1)))
