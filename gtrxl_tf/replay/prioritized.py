"""The prioritized replay table, from which off-policy agents sample."""

from __future__ import annotations

import os
import pathlib
from typing import Any, List, Optional, Sequence
import zlib

from absl import logging
import numpy as np
import tensorflow as tf

from gtrxl_tf.losses import r2d2
from gtrxl_tf.replay import mapped
from gtrxl_tf.replay import unroll as unroll_lib
from gtrxl_tf.settings import config

# With 0, an unroll whose TD errors are once 0 would never be sampled again.
_MIN_PRIORITY = 1e-6
_BOOT = pathlib.Path('/proc/sys/kernel/random/boot_id')


@config.configurable
class Replay:
  """The settings of a prioritized table, from which a learner samples unrolls.

  An item has the unrolls of all environments of an actor, as in the queue, and is
  sampled with a probability proportional to its priority to the power of
  `priority_exponent`. The learner sets the priority of each item that it has sampled to
  the mean of its unrolls' priorities. With
  `OnlineExperiment.environments_per_actor = 1` these are the priorities of single
  sequences, as in the paper.

  The oldest item is removed when a new one comes into a full table. Therefore an unroll
  is used any number of times, or not at all, and it may be as old as the table is large:
  no unroll is refused for its age, which the column `oldest_unroll` of the metrics
  shows. The queue keeps actors and learner in step: the learner moves `unrolls_per_step`
  new unrolls from the queue to the table before each step, and actors wait while the
  queue is full.

  Args:
    capacity: unrolls that the table holds, whole and not compressed: those that overlap
      share no memory.
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


class Table:
  """The unrolls that a learner samples from, in a file of the run's folder.

  The kernel keeps what was written when the process is killed, so that a learner that is
  started again finds the table as it was. An item that was being written is lost.
  """

  def __init__(self, path: pathlib.Path, settings: Replay, signature: unroll_lib.Unroll,
               seed: Sequence[int]):
    """Opens the table, or makes an empty one.

    A file that does not fit is replaced: it is damaged, or the machine stopped before all
    of it was on disk.

    Args:
      path: the file. It has its full size from the beginning.
      settings: the settings.
      signature: the specs of an item, `Layout.signature`.
      seed: decides what is sampled.
    """
    self._settings = settings
    self._environments = signature.reward.shape[1]
    self._random = np.random.default_rng(list(seed))
    self._header, self._priorities, *leaves = _open(path, specs(settings, signature))
    self._leaves = tf.nest.pack_sequence_as(signature, leaves)
    self._powers = np.zeros(len(self._priorities))  # 0 where there is no item.
    self._set(np.flatnonzero(self._priorities), self._priorities[self._priorities > 0])
    self._sampled = np.zeros(0, np.int64)

  @property
  def size(self) -> int:
    """The number of unrolls."""
    return np.count_nonzero(self._priorities) * self._environments

  @property
  def is_filled(self) -> bool:
    """True once the table has at least `min_unrolls` unrolls."""
    return self.size >= self._settings.min_unrolls

  def add(self, unrolls: unroll_lib.Unroll) -> None:
    """Adds unrolls `[items * E, time, ...]`, in place of the oldest if it is full."""
    items = [np.reshape(x, [-1, *kept.shape[1:]]) for x, kept in zip(
        tf.nest.flatten(unrolls), tf.nest.flatten(self._leaves))]
    for item in zip(*items):
      slot = int(self._header[_ADDED]) % len(self._priorities)
      self._priorities[slot] = 0.0  # So that a killed process leaves no half of an item.
      for kept, leaf in zip(tf.nest.flatten(self._leaves), item):
        kept[slot] = leaf
      self._set(slot, self._settings.initial_priority)
      self._header[_ADDED] += 1

  def sample(self, num_items: int) -> unroll_lib.Sample:
    """Samples `num_items` items, with replacement."""
    sums = np.cumsum(self._powers)
    slots = np.searchsorted(sums, sums[-1] * self._random.random(num_items), 'right')
    self._sampled = slots
    weights = r2d2.importance_weights(
        self._powers[slots] / sums[-1],
        np.full(num_items, np.count_nonzero(self._powers)),
        self._settings.importance_exponent)

    def rows(kept):
      picked = kept[slots]
      return tf.constant(picked.reshape([-1, *picked.shape[2:]]))

    return unroll_lib.Sample(
        tf.nest.map_structure(rows, self._leaves), tf.repeat(weights, self._environments))

  def update(self, priorities: np.ndarray) -> None:
    """Sets the priorities of the unrolls that were sampled last, `[items * E]`."""
    means = priorities.reshape([len(self._sampled), -1]).mean(axis=1)
    self._set(self._sampled, np.maximum(means, _MIN_PRIORITY))

  def _set(self, slots: Any, priorities: Any) -> None:
    self._priorities[slots] = priorities
    self._powers[slots] = priorities ** self._settings.priority_exponent

  def close(self) -> None:
    """Waits until all is on disk."""
    buffer = self._header.base
    buffer.flush()
    self._header[_IS_WHOLE] = 1
    buffer.flush()


# The words of the header: what the file is, whether all of it is on disk, how many items
# were added, and which boot of the machine wrote it.
_HEADER = [6], np.int64
_KIND, _IS_WHOLE, _ADDED = range(3)


def specs(settings: Replay, signature: unroll_lib.Unroll) -> List[mapped.Spec]:
  """Returns the arrays of the file: header, priorities, and the leaves of the items."""
  num = -(-settings.capacity // signature.reward.shape[1])  # Items of E unrolls.
  return [_HEADER, ([num], np.float64), *(
      ([num, *spec.shape], spec.dtype.as_numpy_dtype)
      for spec in tf.nest.flatten(unroll_lib.batch_spec(signature, 1)))]


def _open(path: pathlib.Path, arrays: Sequence[mapped.Spec]) -> List[np.ndarray]:
  kind = zlib.crc32(repr([(list(shape), np.dtype(dtype).str) for shape, dtype in arrays]
                         ).encode())
  boot = np.frombuffer(_boot()[:24].ljust(24), np.int64)
  if path.exists():
    if path.stat().st_size == mapped.size(arrays):
      with open(path, 'r+b') as file:
        header, *rest = mapped.map_file(file.fileno(), arrays)
      if header[_KIND] == kind and (
          header[_IS_WHOLE] or np.array_equal(header[3:], boot)):
        header[_IS_WHOLE], header[3:] = 0, boot
        return [header, *rest]
    logging.warning('learner: %s is damaged or of other settings, or the machine stopped '
                    'before all of it was on disk: the replay table begins empty', path)
    path.unlink()
  path.parent.mkdir(parents=True, exist_ok=True)
  try:
    with open(path, 'w+b') as file:
      os.posix_fallocate(file.fileno(), 0, mapped.size(arrays))
      header, *rest = mapped.map_file(file.fileno(), arrays)
  except OSError as error:
    path.unlink(missing_ok=True)
    raise OSError(error.errno, f'the replay table {path} needs '
                  f'{mapped.size(arrays) / 2**30:,.1f} GiB: {error.strerror}') from error
  header[_KIND], header[3:] = kind, boot
  return [header, *rest]


def _boot() -> bytes:
  """Returns what differs after each start of the machine; nothing if it is unknown."""
  return _BOOT.read_bytes() if _BOOT.exists() else b''
