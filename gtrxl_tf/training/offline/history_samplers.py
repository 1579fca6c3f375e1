"""Samplers of training on learning histories: the steps in each batch.

A trajectory of T steps, K in each of N segments, may begin in the middle of a history;
it includes the step before its first.
"""

import collections
from typing import Any, Callable, Dict, Mapping, NamedTuple, Sequence

import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf import datasets
from gtrxl_tf.agents import distillation
from gtrxl_tf.networks import distillation as network_lib
from gtrxl_tf.settings import config
from gtrxl_tf.training.offline import samplers

_WINDOWS, _FIRST_ROWS, _NEXT_ROWS = range(3)  # Streams of random numbers.


class _Rows(NamedTuple):
  """The parts of histories in a batch."""
  history: np.ndarray  # [B]
  start: np.ndarray    # [B]


def gather(dataset: datasets.Dataset, histories: Sequence[int], starts: Sequence[int],
           length: int, state: Any = ()) -> distillation.HistoryBatch:
  """Reads parts of B histories, each of T steps and the step before.

  Before a history's first step and after its last one, everything is 0.

  Args:
    dataset: a dataset of the kind 'histories'.
    histories: [B], numbers of histories.
    starts: [B], the first step of each part.
    length: T.
    state: the batch's state, see `HistoryBatch`.
  """
  histories, starts = np.asarray(histories), np.asarray(starts)
  steps = starts[:, np.newaxis] + np.arange(-1, length)
  valid = steps[:, 1:] < dataset.lengths[histories][:, np.newaxis]
  specs = dataset.specs._replace(discount=())
  observation, action, reward, _ = tree.unflatten_as(
      specs, [dataset.take(name, histories, steps)
              for name in dataset.array_names if name != 'discount'])
  is_first = np.zeros((len(starts), length), bool)
  is_first[:, 0] = starts == 0
  position = (starts[:, np.newaxis] + np.arange(length)).astype(np.int32)
  return distillation.HistoryBatch(
      tf.nest.map_structure(tf.constant, network_lib.Histories(
          observation, action, reward.astype(np.float32),
          dataset.take('end', histories, steps) != 0, is_first, position)),
      tf.constant(valid), tf.nest.map_structure(tf.convert_to_tensor, state))


class HistorySampler(samplers.Sampler):
  """The base class of samplers for histories."""

  def __init__(self, trajectories: samplers.Trajectories,
               initial_state: Callable[[int], Any], learner_steps: int):
    super().__init__(trajectories, initial_state, learner_steps)
    dataset = trajectories.dataset
    if dataset.kind != 'histories':
      raise config.ConfigError(f'{dataset.path} has {dataset.kind}: expected histories')
    self._dataset = dataset
    self._length = trajectories.segment_length * trajectories.num_segments

  def _random(self, stream: int, step: int) -> np.random.Generator:
    return np.random.default_rng([self._trajectories.seed, stream, step])

  def _histories(self, random: np.random.Generator) -> np.ndarray:
    """Draws [B] histories with replacement."""
    return random.integers(
        self._dataset.num_episodes, size=self._trajectories.batch_size)


@config.configurable
class HistoryWindows(HistorySampler):
  """Trains on windows of T steps, drawn uniformly over histories and starts.

  ADF, ADR and MEM are trained in this way, where T is the context. Cores with a
  recurrence can be trained in this way too; every window starts with an empty memory.

  Args:
    whole_ends: whether the windows at both ends of a history are drawn T times as often
      as others. If not, a history's first and last steps are in one window each, and
      steps in the middle are in T. If so, no step is rarer than those in the middle,
      and none is more than twice as frequent in a history of 2T steps or more. The
      paper says only that chunks are sampled, so by default starts are uniform.
  """

  def __init__(self, trajectories: samplers.Trajectories,
               initial_state: Callable[[int], Any], learner_steps: int,
               whole_ends: bool = False):
    super().__init__(trajectories, initial_state, learner_steps)
    self._beyond = self._length - 1 if whole_ends else 0

  def batch(self, step: int) -> distillation.HistoryBatch:
    random = self._random(_WINDOWS, step)
    histories = self._histories(random)
    last = np.maximum(self._dataset.lengths[histories] - self._length, 0)
    # A start beyond an end stands for the window at that end.
    starts = random.integers(last + 1 + 2 * self._beyond) - self._beyond
    return gather(self._dataset, histories, np.clip(starts, 0, last), self._length)


@config.configurable
class HistoryChunks(HistorySampler):
  """Trains on consecutive chunks of histories, from the state after the last one.

  A chunk is the T steps of a learner step. This is truncated back-propagation through
  time, which XL and ED need: gradients pass through the N segments of a learner step,
  if the core lets them, and no further. The paper has N = 1. Rows begin at a random
  chunk of their first history, with an empty memory, because otherwise all would be at
  the same step. Later histories begin at their first step, where `is_first` makes the
  core forget the last history.
  """

  def __init__(self, trajectories: samplers.Trajectories,
               initial_state: Callable[[int], Any], learner_steps: int):
    super().__init__(trajectories, initial_state, learner_steps)
    random = self._random(_FIRST_ROWS, 0)
    histories = self._histories(random)
    # Numbers of chunks, with the last one, which may be shorter.
    counts = -(-self._dataset.lengths[histories] // self._length)
    # The numbers of the steps that were not observed, and their rows.
    self._rows = collections.deque(
        [(0, _Rows(histories, self._length * random.integers(counts)))])
    self.state = self._initial_state

  def batch(self, step: int) -> distillation.HistoryBatch:
    _, (history, start) = self._rows[-1]
    following = self._histories(self._random(_NEXT_ROWS, step))
    end = start + self._length
    over = end >= self._dataset.lengths[history]
    self._rows.append((step + 1, _Rows(
        np.where(over, following, history), np.where(over, 0, end))))
    return gather(self._dataset, history, start, self._length, self.state)

  def observe(self, step: int, metrics: Mapping[str, Any]) -> None:
    self.state = metrics['carried']
    while self._rows[0][0] <= step:
      self._rows.popleft()

  def arrays(self) -> Dict[str, np.ndarray]:
    return {**self._rows[0][1]._asdict(), **samplers.numbered(self.state)}

  def restore_arrays(self, arrays: Dict[str, np.ndarray]) -> None:
    self._rows = collections.deque(
        [(0, _Rows(*(arrays.pop(name) for name in _Rows._fields)))])
    self.state = samplers.from_numbered(self.state, arrays)
