"""Action masks, which environments produce and networks read.

An action mask is the entry `action_mask` of an observation that is a dictionary: bools
or integers `[..., A]`, nonzero where the action is allowed. A is the number of values
of all discrete actions, in the order of the action spec's arrays and their elements.
"""

import collections.abc
from typing import Any, List, Tuple

from dm_env import specs
import numpy as np

KEY = 'action_mask'


def split(observation: Any) -> Tuple[Any, Any]:
  """Takes the action mask out of an observation, or its spec out of a spec.

  >>> split({'position': 3, 'action_mask': [1, 0]})
  ({'position': 3}, [1, 0])

  Returns:
    The observation without the mask, and the mask, or None if there is none.
  """
  if not isinstance(observation, collections.abc.Mapping) or KEY not in observation:
    return observation, None
  observation = dict(observation)
  mask = observation.pop(KEY)
  return observation, mask


def num_values(spec: specs.BoundedArray) -> List[int]:
  """Returns the number of values of each element of an array of integers, in order.

  >>> num_values(specs.BoundedArray((2,), np.int32, [0, 1], [2, 5]))
  [3, 5]
  """
  low, high = (np.broadcast_to(bound, spec.shape).reshape(-1).tolist()
               for bound in (spec.minimum, spec.maximum))
  return [most - least + 1 for least, most in zip(low, high)]
