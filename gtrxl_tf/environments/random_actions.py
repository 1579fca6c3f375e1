"""Random actions of any action spec."""

from typing import Any, Optional, Set

import dm_env
from dm_env import specs
import numpy as np
import tree

from gtrxl_tf.environments import specs as specs_lib


def play(environment: dm_env.Environment, num_actions: int,
         random: np.random.Generator) -> dm_env.TimeStep:
  """Resets an environment and takes random actions.

  Returns:
    The step after `num_actions` actions, or after more of them if that is a last step.

  Raises:
    ValueError: an episode does not begin with a first step.
  """
  time_step, method = environment.reset(), 'reset()'
  begins = True
  while True:
    if not callable(getattr(time_step, 'first', None)):
      raise ValueError(f'{method} returned a {type(time_step).__name__}: expected a '
                       'dm_env.TimeStep')
    if begins and not time_step.first():
      raise ValueError(f'{method} returned a step of type {time_step.step_type!r} '
                       'where an episode begins: expected FIRST')
    begins = time_step.last()
    if num_actions <= 0 and not begins:
      return time_step
    time_step = environment.step(
        random_action(environment.action_spec(), time_step.observation, random))
    method = 'step()'
    num_actions -= 1


def random_action(action_spec: Any, observation: Any, random: np.random.Generator,
                  tried: Optional[Set[int]] = None) -> Any:
  """Draws an action, which is an allowed one if the observation has an action mask.

  Integers that were not `tried` come first, and are added to it, as places in a mask.
  """
  _, mask = specs_lib.split_mask(observation)
  if mask is None and tried is None:
    return tree.map_structure(lambda spec: random_value(spec, random), action_spec)
  begin = 0  # Where the mask of the next integer begins.

  def draw(spec: specs.Array) -> np.ndarray:
    nonlocal begin
    if not specs_lib.is_discrete(spec):
      return random_value(spec, random)
    values = []
    for num_values in specs_lib.num_values(spec):
      allowed = range(num_values)
      if mask is not None and np.any(mask[begin:begin + num_values]):
        allowed = np.flatnonzero(mask[begin:begin + num_values])
      value = allowed[random.choice(len(allowed))]
      if tried is not None:
        value = next((x for x in allowed if begin + x not in tried), value)
        tried.add(begin + value)
      values.append(value)
      begin += num_values
    return (np.reshape(values, spec.shape) + spec.minimum).astype(spec.dtype)[()]
  return tree.map_structure(draw, action_spec)


def random_value(spec: specs.Array, random: np.random.Generator) -> Any:
  """Draws an array, or a NumPy number, within the bounds of `spec`.

  Without bounds, the value is within [-1, 1]; a float with one bound is within 1 of
  it.
  """
  if spec.dtype.kind == 'f':
    middle, half = specs_lib.middle_and_half(spec)
    low, high = specs_lib.bounds(spec)
    value = random.uniform(np.maximum(low, middle - half),
                           np.minimum(high, middle + half), spec.shape)
  else:
    low, high = getattr(spec, 'minimum', -1), getattr(spec, 'maximum', 1)
    value = random.integers(low, high, spec.shape, endpoint=True)
  return np.asarray(value, spec.dtype)[()]
