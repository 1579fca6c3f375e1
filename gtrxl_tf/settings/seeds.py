"""The random streams of environments: one for each purpose of a seed.

A run and the collection of its data often have the same seed. Their environments must
nevertheless differ, or a policy would be evaluated on episodes that it learned from.
"""

import enum

import numpy as np


class Stream(enum.IntEnum):
  """The purposes of environments. A comment names the `numbers` of a purpose."""
  SPECS = 0
  EVALUATION = 1
  ACTING = 2      # The actor, and the number of its start.
  COLLECTION = 3  # The piece of work.


def sequence(seed: int, stream: Stream, *numbers: int) -> np.random.SeedSequence:
  """Returns the seeds of a stream; different arguments give different ones.

  >>> sequence(0, Stream.EVALUATION).generate_state(2).tolist()
  [673228719, 1136656250]

  Args:
    seed: the seed of a run or a collection.
    stream: the purpose.
    *numbers: tell apart the parts that have the same purpose.
  """
  return np.random.SeedSequence(seed, spawn_key=(stream, *numbers))
