"""Bounds for agents that must find the Numpad's hidden sequence themselves.

The informed policy knows the hidden sequence, so no agent reaches its return. This
command prints two numbers, which show how close an agent is to the optimum:

  python -m tools.numpad_search 3
"""

import collections
import functools
import sys
from typing import Dict, List, Tuple

import numpy as np

from gtrxl_tf.environments import numpad

Pads = Tuple[int, ...]

_EPISODE_LENGTH = 100


@functools.cache
def _neighbours(size: int) -> List[List[int]]:
  return [sorted({*pads} - {pad}) for pad, pads in enumerate(numpad.destinations(size))]


def _distance(a: int, b: int, size: int) -> int:
  """Returns the number of moves from one pad to another."""
  (row, column), (other_row, other_column) = divmod(a, size), divmod(b, size)
  return max(abs(row - other_row), abs(column - other_column))


def sequences(size: int, begin: Pads = ()) -> List[Pads]:
  """Lists every sequence that can be hidden: 24 of size 2, 784 of size 3."""
  if len(begin) == size**2:
    return [begin]
  pads = _neighbours(size)[begin[-1]] if begin else range(size**2)
  return [x for pad in pads if pad not in begin for x in sequences(size, (*begin, pad))]


def _successors(size: int) -> Dict[Pads, collections.Counter]:
  """Returns how many sequences continue each beginning with each pad."""
  counts = collections.defaultdict(collections.Counter)
  for sequence in sequences(size):
    for k, pad in enumerate(sequence):
      counts[sequence[:k]][pad] += 1
  return counts


def bound(size: int) -> float:
  """Returns an upper bound of the mean return of any agent in 100 steps.

  When k pads are known, a wrong press costs at least its own step and the k presses
  that light the known pads again. It reveals nothing but that the pad is not the next
  one, so trying pads in the order of their probability minimizes wrong presses. All
  other steps are counted as rewarded, though many are needed to walk.

  Args:
    size: pads along each side. With 4, one sequence in twenty can take longer than an
      episode, which then ends before all counted steps are lost: the true bound is 0.4
      higher than the result.
  """
  counts, lost = _successors(size), 0.
  for known, found in counts.items():
    for count in found.values():
      # Pads of equal probability come in random order.
      before = sum(x > count for x in found.values())
      equal = sum(x == count for x in found.values())
      lost += count * (before + (equal - 1) / 2) * (1 + len(known))
  return _EPISODE_LENGTH - lost / counts[()].total()


def search_return(size: int, num_episodes: int = 200) -> float:
  """Returns the mean return, in 100 steps, of a search with a perfect memory.

  The search knows all sequences that can be hidden, remembers every press, and tries
  the pad with the highest ratio of probability to the steps that a failure costs.

  Args:
    size: pads along each side.
    num_episodes: episodes to play, with the seeds 0, 1, 2 and so on.
  """
  counts, neighbours = _successors(size), _neighbours(size)
  returns = []
  for seed in range(num_episodes):
    task = numpad.Numpad(size, _EPISODE_LENGTH, seed)
    position = int(np.argmax(task.reset().observation['position']))
    known, excluded, lit, total, last = (), set(), 0, 0., False
    while not last:
      exploring = lit == len(known)
      if exploring:
        tried = {pad: count for pad, count in counts[known].items()
                 if pad not in excluded and (not lit or pad in neighbours[position])}

        def worth(pad):
          way = _distance(position, pad, size) or 2
          back = _distance(pad, known[0], size) + len(known) - 1 if known else 0
          return tried[pad] / (way + back)

        target = max(tried, key=worth)
      else:
        target = known[lit]
      if target == position:  # It can be entered only from another pad.
        target = neighbours[position][0]
      time_step = task.step(numpad.move_towards(target, position, size))
      last, total = time_step.last(), total + time_step.reward
      position = int(np.argmax(time_step.observation['position']))
      if exploring and time_step.reward:
        known, excluded = (*known, position), set()
        while len(counts[known]) == 1:  # The only way to go on.
          known += tuple(counts[known])
      elif exploring:
        excluded.add(position)
      lit = int(time_step.observation['pads'].sum())
    returns.append(total)
  return float(np.mean(returns))


if __name__ == '__main__':
  SIZE = int(sys.argv[1])
  print(f'{SIZE} x {SIZE}, 100 steps: no agent returns more than {bound(SIZE):.2f}; '
        f'a search with a perfect memory returns {search_return(SIZE):.2f}')
