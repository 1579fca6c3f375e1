"""The learner's end of the queue: batches of the unrolls that its ledger admits."""

from __future__ import annotations

import abc
from typing import Any, Callable, Optional

import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf.replay import staleness
from gtrxl_tf.replay import unroll


def batch_first(x: np.ndarray) -> np.ndarray:
  """Turns `[time, E, ...]` into `[E, time, ...]`; an item's numbers have no environments."""
  return x.swapaxes(0, 1) if x.ndim > 1 else x


class UnrollQueue(abc.ABC):
  """Copies items of the queue into batches, `[num_items * E, time, ...]`.

  No item is taken before the batch needs it: it would grow old before it is trained on.
  The ledger sees every item, including those that it refuses.
  """

  def __init__(self, layout: unroll.Layout, num_items: int, ledger: staleness.Ledger):
    """Creates the queue's end, for batches of items that the ledger admits."""
    self._ledger = ledger
    self._num_items = num_items
    self._unroll_length = layout.unroll_length
    self._spec = unroll.batch_spec(layout.signature, num_items)
    self._begin_batch()

  def _begin_batch(self) -> None:
    self._batch = tree.map_structure(
        lambda spec: np.empty(spec.shape, spec.dtype.as_numpy_dtype), self._spec)
    self._admitted = 0  # Items of the batch.

  def next(self, alive_or_stop: Callable[[], bool]) -> Optional[unroll.Unroll]:
    """Returns the next batch; None if the learner should stop.

    Args:
      alive_or_stop: called every second, or every ten while a server does not answer;
        returns whether to stop.

    Raises:
      ServerLost: the server does not answer, or was started again.
    """
    while self._admitted < self._num_items:
      if not self._take(self._num_items - self._admitted) and alive_or_stop():
        return None
    batch = tree.map_structure(tf.constant, self._batch)
    self._begin_batch()
    return batch

  def place(self) -> unroll.Unroll:
    """Returns the part of the batch into which the next item is copied."""
    def part(whole):
      size = len(whole) // self._num_items
      return whole[size * self._admitted:size * (self._admitted + 1)]

    return tree.map_structure(part, self._batch)

  def admit(self, item: unroll.Unroll) -> None:
    """Keeps the item that was copied into the batch, if the ledger admits it."""
    self._admitted += self._ledger.admit(
        item.unroll_id.item(), item.target_step.item(),
        item.step_type[:, -self._unroll_length:].T, item.episode_return.T,
        item.episode_success.T, item.task[:, 0])

  @abc.abstractmethod
  def _take(self, num: int) -> bool:
    """Admits up to `num` items; returns False if none came within a second."""

  @abc.abstractmethod
  def length(self) -> float:
    """Returns how many items wait; NaN if the server does not answer."""

  def connect(self, weights: Any = None) -> None:
    """Connects to a server, and then looks whether it keeps these published weights."""

  def abandon(self) -> None:
    """Gives up the connection: `next` raises `ServerLost` until the next `connect`."""

  def close(self) -> None:
    """Gives up the connection, and waits a little for its thread to end."""
