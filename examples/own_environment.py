"""Your own environment, trained online: a waiter who must remember orders.

The settings are in `own_environment.gin`, which imports this module. Start the run with

  gtrxl train --gin_file=examples/own_environment.gin --root_dir=runs/own_environment

With seed 0 this takes 103 s on a busy machine, and the return in 100 new episodes is
1.00; guessing gets 0.33.

`--gin_bindings='ActorCritic.core = @Memoryless()'` trains without memory. `serving.py`
shows how to use the policy that the run exports.
"""

from typing import Optional

import dm_env
from dm_env import specs
import numpy as np


class Orders(dm_env.Environment):
  """A waiter hears what each table orders, and then serves the tables in another order.

  In the first `num_tables` steps the observation shows a table and its dish. In the
  same number of steps after them it shows a table, and the action is the dish to bring.
  Each right dish gives a reward of `1 / num_tables`; other actions change nothing.
  """

  def __init__(self, num_tables: int = 3, num_dishes: int = 3,
               seed: Optional[int] = None):
    """Creates the environment. A run gives each of its environments another seed."""
    self._num_tables, self._num_dishes = num_tables, num_dishes
    self._random = np.random.default_rng(seed)
    self._time = 2 * num_tables  # As if an episode had ended.

  def observation_spec(self) -> dict[str, specs.Array]:
    return {'table': specs.BoundedArray([self._num_tables], np.float32, 0, 1),
            'dish': specs.BoundedArray([self._num_dishes], np.float32, 0, 1)}

  def action_spec(self) -> specs.DiscreteArray:
    return specs.DiscreteArray(self._num_dishes)

  def reset(self) -> dm_env.TimeStep:
    self._time = 0
    self._orders = self._random.integers(self._num_dishes, size=self._num_tables)
    self._tables = np.concatenate([
        self._random.permutation(self._num_tables) for _ in ('hears', 'serves')])
    return dm_env.restart(self._observe())

  def step(self, action: int) -> dm_env.TimeStep:
    if self._time == 2 * self._num_tables:
      return self.reset()  # dm_env's rule for the step after an episode's last one.
    reward = 0.0
    if self._time >= self._num_tables:
      served = self._tables[self._time]
      reward = float(action == self._orders[served]) / self._num_tables
    self._time += 1
    if self._time == 2 * self._num_tables:
      return dm_env.termination(reward, self._observe())
    return dm_env.transition(reward, self._observe())

  def _observe(self) -> dict[str, np.ndarray]:
    table, dish = np.zeros(self._num_tables), np.zeros(self._num_dishes)
    if self._time < 2 * self._num_tables:
      table[self._tables[self._time]] = 1
    if self._time < self._num_tables:
      dish[self._orders[self._tables[self._time]]] = 1
    return {'table': table.astype(np.float32), 'dish': dish.astype(np.float32)}
