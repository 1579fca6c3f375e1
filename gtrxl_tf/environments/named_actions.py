"""The spec of discrete actions whose meaning is known."""

from typing import Sequence

from dm_env import specs
import numpy as np


class NamedActions(specs.DiscreteArray):
  """A `DiscreteArray` that names what each of its values does.

  Two tasks may have the same number of actions with different meanings. Datasets keep
  the names, so that no agent learns from the episodes of the wrong task.

  >>> NamedActions(['left', 'right']).num_values
  2
  """

  def __init__(self, names: Sequence[str], dtype=np.int32, name: str = 'action'):
    """Creates the spec; `names` has one name for each value, from 0 on."""
    super().__init__(len(names), dtype, name)
    self.names = tuple(names)

  def __reduce__(self):
    return NamedActions, (self.names, self.dtype, self.name)
