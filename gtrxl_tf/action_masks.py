"""Action masks, which environments produce and networks read.

An action mask is the entry `action_mask` of an observation that is a dictionary: bools
or integers `[..., A]`, nonzero where the action is allowed. A is the number of values
of all discrete actions, in the order of the action spec's arrays and their elements.
"""

import collections.abc
from typing import Any, Tuple

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
