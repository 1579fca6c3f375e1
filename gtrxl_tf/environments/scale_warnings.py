"""Warnings about observations from whose layout or scale networks learn little."""

from typing import Any, Callable, Sequence, Tuple

from absl import logging
from dm_env import specs
import numpy as np

from gtrxl_tf.environments import specs as specs_lib

# Until the first number of steps, scales are checked more often than later: a check takes as
# long as a step of 32 small tasks. Small scales are reported only after the second number.
_FIRST_STEPS, _MANY_STEPS = 1000, 100
# Numbers without two bounds are large from here on: a network learns slowly from a scale of
# 1,000, and not from 10,000. Bytes in this range are small, and scaled numbers in that.
_LARGE, _SMALL_BYTES, _SMALL = 300.0, 16, 1e-3


class Scales:
  """The ranges of values so far, of an observation's arrays with these names and specs."""

  def __init__(self, leaves: Sequence[Tuple[str, Any]]):
    self._watched = [(place, *leaf, specs_lib.kind(leaf[1]), [np.inf, -np.inf])
                     for place, leaf in enumerate(leaves)
                     if leaf[0] != f'observation[{specs_lib.MASK!r}]']

  def look(self, arrays: Sequence[np.ndarray], kinds: Sequence[str], last: np.ndarray,
           num_steps: int, time: Callable[[int], str]) -> None:
    """Logs one warning: of the first array of these `specs.kind`s with such a fault."""
    is_early = num_steps < _FIRST_STEPS
    over = is_early and bool(last.any())
    if not kinds or not over and num_steps % (10 if is_early else 100) != 2:
      return
    for place, name, spec, kind, span in self._watched:
      concern = _misshapen(name, spec)
      if not concern and kind in kinds:
        values = arrays[place].astype(np.float64, copy=False)
        span[:] = (np.minimum(span[0], values.min(axis=0)),
                   np.maximum(span[1], values.max(axis=0)))
        concern = _off_scale(name, spec, values, *span, over or num_steps > _MANY_STEPS, time)
      if concern:
        logging.warning('%s', concern)
        self._watched = []
        return


def _misshapen(name: str, spec: specs.Array) -> str:
  """Says how to mend an array that seems to be an image in another layout; else ''."""
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
  """Says what is wrong with the scale of `values`, `[E, ...]`, or of all so far; else ''."""
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
