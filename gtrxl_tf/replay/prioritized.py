"""The prioritized replay table, from which off-policy agents sample."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from gtrxl_tf.replay import deadline
from gtrxl_tf.replay import lazy_reverb as reverb
from gtrxl_tf.replay import newest_item
from gtrxl_tf.replay import server_lost
from gtrxl_tf.settings import config

TABLE = 'replay'
# With 0, an unroll whose TD errors are once 0 would never be sampled again.
_MIN_PRIORITY = 1e-6


@config.configurable
class Replay:
  """The settings of a prioritized table, from which a learner samples unrolls.

  An item has the unrolls of all environments of an actor, as in the queue, and is
  sampled with a probability proportional to its priority to the power of
  `priority_exponent`. The learner sets the priority of each item that it has sampled to
  the mean of its unrolls' priorities. With
  `OnlineExperiment.environments_per_actor = 1` these are the priorities of single
  sequences, as in the paper.

  Sampling never waits for new data, and the oldest item is removed when a new one comes
  into a full table. Therefore an unroll is used any number of times, or not at all, and
  it may be as old as the table is large: no unroll is refused for its age, which the
  column `oldest_unroll` of the metrics shows. The queue keeps actors and learner in
  step. It has a short notice of each new unroll, with its returns and without
  observations. The learner takes each notice once, and counts environment steps and
  episodes by it, so that a notice that comes twice is a repetition, as an unroll is
  elsewhere. It takes a step for every `unrolls_per_step` new unrolls; actors wait while
  the queue is full.

  A learner that was killed finds the table as it was. A server that was killed has lost
  what came after its last checkpoint, and the learner waits until the table has
  `min_unrolls` again, while notices are counted.

  Args:
    capacity: unrolls that the table holds. Each of their steps takes the memory of an
      observation and of the core's record, which Reverb compresses.
    min_unrolls: unrolls in the table before the learner takes a step. The paper does
      not give it; with the default, samples of a full batch rarely coincide.
    unrolls_per_step: new unrolls for each learner step, a multiple of
      `OnlineExperiment.environments_per_actor`. By default they are as many as the
      batch has, so that an unroll is used once on average. The speeds that the paper
      gives work out at 2.6 times as many for sequences without overlap.
    overlap: actions that consecutive unrolls of an environment share. The paper's
      sequences share 40 of 80 actions, besides their burn-in. With an overlap, weights
      may change within an unroll. If it is smaller than `R2D2Agent.burn_in`, some
      actions only serve as burn-in and are never learned from.
    priority_exponent: the exponent of priorities.
    importance_exponent: beta of the importance weights; see
      `losses.r2d2.importance_weights`.
    initial_priority: the priority of a new unroll. In the paper the actor computes it
      from its own TD errors. Here it is a number above most TD errors, so that new
      unrolls are soon sampled (as in Schaul et al., 2016). Rescaled TD errors are of
      the order of 1.

  The other defaults are the paper's.
  """

  def __init__(self, capacity: config.PositiveInt = 100_000,
               min_unrolls: config.PositiveInt = 5_000,
               unrolls_per_step: Optional[config.PositiveInt] = None,
               overlap: config.NonNegativeInt = 0,
               priority_exponent: config.NonNegativeFloat = 0.9,
               importance_exponent: config.UnitInterval = 0.6,
               initial_priority: config.PositiveFloat = 1.0):
    if min_unrolls > capacity:
      raise config.ConfigError(
          f'Replay.min_unrolls = {min_unrolls}: expected at most Replay.capacity = '
          f'{capacity}')
    self.capacity = capacity
    self.min_unrolls = min_unrolls
    self.unrolls_per_step = unrolls_per_step
    self.overlap = overlap
    self.priority_exponent = priority_exponent
    self.importance_exponent = importance_exponent
    self.initial_priority = initial_priority

  def table(self, signature: Any, environments: int) -> reverb.Table:
    """Makes the table.

    Args:
      signature: the signature of its items.
      environments: E, the unrolls of an item.
    """
    return reverb.Table(
        TABLE, sampler=reverb.selectors.Prioritized(self.priority_exponent),
        remover=reverb.selectors.Fifo(), max_size=-(-self.capacity // environments),
        # `is_filled` checks `min_unrolls`. If the table made the learner wait
        # here, nobody would empty the queue, and actors would wait too.
        rate_limiter=reverb.rate_limiters.MinSize(1), signature=signature)

  def is_filled(self, client: reverb.Client, environments: int) -> bool:
    """Returns whether the server's table has at least `min_unrolls` unrolls."""
    try:
      info = newest_item.table_info(client, TABLE, timeout=10)
    except server_lost.ServerLost:
      return False  # The next read from the queue raises it.
    return info.current_size * environments >= self.min_unrolls


def update_priorities(client: reverb.Client, keys: np.ndarray, priorities: np.ndarray) -> None:
  """Updates the priorities of items; those that are no longer in the table are ignored.

  Args:
    client: a client of the server.
    keys: the keys of the items, `[items]`.
    priorities: the priorities of their unrolls, `[items * E]`.

  Raises:
    ServerLost: the server does not answer.
  """
  means = priorities.reshape([len(keys), -1]).mean(axis=1)
  updates = {int(key): max(float(x), _MIN_PRIORITY)
             for key, x in zip(keys, means)}
  deadline.call(lambda: client.mutate_priorities(TABLE, updates=updates),
                'the server takes no priorities')
