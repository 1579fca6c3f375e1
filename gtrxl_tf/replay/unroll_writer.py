"""Writes an actor's rows, and items that refer to them."""

from __future__ import annotations

import abc
import collections
from typing import List, Optional, Sequence

import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf.replay import unroll

# The columns that an item does not have in the row after its last action.
_OF_THE_NEXT_UNROLL = ('action', 'policy', 'record', 'task', 'target_step')


class UnrollWriter(abc.ABC):
  """Writes rows of E environments, and an item for every T rows.

  Nothing is copied: items refer to rows and share them.

    rows     . . . . M M M M M|0 1 2 3 4 5 6 7 8|9
    item k            `memory'  `--- unroll --'  ^ row T, for its value
    item k+1         . . . . . . . . . M M M M M|0 1 2 3 . . .

  The last row of an unroll is the first of the next. One stream of rows continues
  through all episodes. Step types mark where an episode ends within an unroll, and the
  learner masks the steps before, so every item has the same static shape. Rows before
  an actor's first row are blank and masked in the same way, because the first row is
  FIRST.

  An item holds the unrolls of all E environments of an actor, which step in one call.
  Separate items would have the same windows at the same time, at E times the cost.

  For a replay table items may overlap by more than a row: they begin every T - overlap
  rows. Where there is no server, methods raise `ServerLost`.
  """

  def __init__(self, layout: unroll.Layout, identity: Optional[int] = None,
               more_history: int = 0):
    """Creates a writer; `open` connects it.

    Args:
      layout: what the processes of the run exchange.
      identity: the upper half of the items' ids, below 2**31; random if None.
      more_history: how many rows to keep beside those that an item refers to.
    """
    self._layout = layout
    self._unroll_length = layout.unroll_length
    blank = tree.map_structure(
        lambda x: np.zeros(x.shape, tf.as_dtype(x.dtype).as_numpy_dtype), layout.row)
    self._blank = {name: getattr(blank, name) for name in _OF_THE_NEXT_UNROLL}
    self._ends_unroll = [
        name not in _OF_THE_NEXT_UNROLL
        for name, column in blank._asdict().items() for _ in tree.flatten(column)]
    before = layout.before + more_history
    self.history = collections.deque([blank] * before, maxlen=before)
    if identity is None:
      identity = int(np.random.default_rng().integers(2**31))
    self._next_id = identity << 32
    self._rows = 0  # Rows of the current unroll.
    self._half_row = False  # True if `end_unroll` wrote a part of the next row.

  def open(self) -> None:
    """Connects, or reconnects after an error.

    The new stream begins with the last rows of the old one, so that memory survives.
    An unfinished unroll is lost.
    """
    self.close()
    self._begin([tree.flatten(row) for row in self.history])
    self._rows = 0
    self._half_row = False

  @property
  def starts_unroll(self) -> bool:
    """Whether the next row is the first of the stream or the last of an unroll."""
    return self._rows in (0, self._unroll_length)

  def append(self, row: unroll.Unroll) -> bool:
    """Writes a row, and sets its `unroll_id`; returns whether it completed an item."""
    complete = self._rows == self._unroll_length
    row = row._replace(unroll_id=np.int64(self._next_id - self._half_row))
    self.history.append(row)  # Even if writing fails: `open` writes it again.
    leaves = tree.flatten(row)
    if self._half_row:
      leaves = [None if written else leaf
                for leaf, written in zip(leaves, self._ends_unroll)]
    self._write(leaves)
    if complete and not self._half_row:
      self._create_item()
      self._next_id += 1
    self._half_row = False
    self._rows = 1 + (self._layout.overlap if complete else self._rows)
    return complete

  def end_unroll(self, row: unroll.Unroll) -> None:
    """Writes the item that the next row completes, before the policy acts in that row.

    It may be called where `starts_unroll` is true, unless the stream has just begun.
    `append` comes next, with the entire row. What the policy adds to a row is not read:
    `action`, `policy`, `record`, `task` and `target_step`.
    """
    if self._rows != self._unroll_length or self._half_row:
      raise ValueError(f'{self._rows} rows of the unroll are written: expected '
                       f'{self._unroll_length}, and one call of `end_unroll`')
    row = row._replace(unroll_id=np.int64(self._next_id), **self._blank)
    self._write([leaf if ends else None
                 for leaf, ends in zip(tree.flatten(row), self._ends_unroll)],
                partial=True)
    self._half_row = True
    self._create_item()
    self._next_id += 1

  @abc.abstractmethod
  def wait(self, timeout_ms: int) -> bool:
    """Waits until all items are in the queue, and the next unroll may be written.

    Returns:
      True, or False after the time-out, because the queue is full or the server is
      gone. The caller may try again.
    """

  @property
  @abc.abstractmethod
  def is_open(self) -> bool:
    """True if the writer is connected."""

  @abc.abstractmethod
  def close(self) -> None:
    """Closes the stream. Items that are not yet in the queue are lost."""

  @abc.abstractmethod
  def _begin(self, rows: Sequence[List[np.ndarray]]) -> None:
    """Begins a stream with these rows, which are in no unroll."""

  @abc.abstractmethod
  def _write(self, leaves: List[Optional[np.ndarray]], partial: bool = False) -> None:
    """Writes a row; with `partial` a part of it, of which the next call has the rest."""

  @abc.abstractmethod
  def _create_item(self) -> None:
    """Puts the item into the queue whose last row was just written."""
