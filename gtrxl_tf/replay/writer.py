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
  rows.
  """

  def __init__(self, row: unroll.Unroll, unroll_length: int, memory_length: int,
               identity: Optional[int] = None, overlap: int = 0,
               more_history: int = 0):
    """Creates a writer; `open` connects it.

    Args:
      row: arrays or specs with the shapes and dtypes of a row.
      unroll_length: T.
      memory_length: M.
      identity: the upper half of the items' ids, below 2**31; random if None.
      overlap: the actions that consecutive items share, fewer than T.
      more_history: how many rows to keep beside those that an item refers to.

    Raises:
      ValueError: a length is not an integer, or is too small.
    """
    unroll.columns(unroll_length, memory_length)  # Checks the lengths.
    self._unroll_length = unroll_length
    self._overlap = overlap
    before = max(memory_length, 1) + more_history
    blank = tree.map_structure(
        lambda x: np.zeros(x.shape, tf.as_dtype(x.dtype).as_numpy_dtype), row)
    self._blank = blank
    self._leaves = [(leaf.shape, leaf.dtype) for leaf in tree.flatten(blank)]
    self._ends_unroll = [
        name not in _OF_THE_NEXT_UNROLL
        for name, column in zip(row._fields, row) for _ in tree.flatten(column)]
    self.history = collections.deque([blank] * before, maxlen=before)
    if identity is None:
      identity = int(np.random.default_rng().integers(2**31))
    self._next_id = identity << 32
    self._rows = 0  # Rows of the current unroll.
    self._half_row = False  # True if `end_unroll` wrote a part of the next row.
    self._checked = False  # True once a row of this stream was compared by name.

  def open(self) -> None:
    """Connects, or reconnects after an error.

    The new stream begins with the last rows of the old one, so that memory survives.
    An unfinished unroll is lost.

    Raises:
      ServerLost: there is no server.
    """
    self.close()
    self._begin([tree.flatten(row) for row in self.history])
    self._rows = 0
    self._half_row = False
    self._checked = False

  @property
  def starts_unroll(self) -> bool:
    """Whether the next row is the first of the stream or the last of an unroll."""
    return self._rows in (0, self._unroll_length)

  def append(self, row: unroll.Unroll) -> bool:
    """Writes a row, and sets its `unroll_id`.

    Returns:
      Whether the row completed an item.

    Raises:
      ValueError: the row's structure, shapes or dtypes are not those given to the
        constructor. The row is not written; the caller may continue with others.
      ServerLost: the connection is broken.
    """
    leaves = self._checked_leaves(row)
    complete = self._rows == self._unroll_length
    unroll_id = np.int64(self._next_id - self._half_row)
    leaves[-1] = unroll_id
    # The history has it even if writing fails: `open` writes it again.
    self.history.append(row._replace(unroll_id=unroll_id))
    if self._half_row:
      leaves = [None if written else leaf
                for leaf, written in zip(leaves, self._ends_unroll)]
    self._write(leaves)
    if complete and not self._half_row:
      self._create_item()
      self._next_id += 1
    self._half_row = False
    self._rows = 1 + (self._overlap if complete else self._rows)
    return complete

  def end_unroll(self, row: unroll.Unroll) -> None:
    """Writes the item that the next row completes, before the policy acts in that row.

    It may be called where `starts_unroll` is true, unless the stream has just begun.
    `append` comes next, with the entire row.

    Args:
      row: as for `append`. What the policy adds is not read: `action`, `policy`,
        `record`, `task` and `target_step`.

    Raises:
      ValueError: as `append`, or the next row does not complete an item.
      ServerLost: as `append`.
    """
    if self._rows != self._unroll_length or self._half_row:
      raise ValueError(f'{self._rows} rows of the unroll are written: expected '
                       f'{self._unroll_length}, and one call of `end_unroll`')
    leaves = self._checked_leaves(row._replace(
        **{name: getattr(self._blank, name) for name in _OF_THE_NEXT_UNROLL}))
    leaves[-1] = np.int64(self._next_id)
    self._write([leaf if ends else None
                 for leaf, ends in zip(leaves, self._ends_unroll)], partial=True)
    self._half_row = True
    self._create_item()
    self._next_id += 1

  def _checked_leaves(self, row: unroll.Unroll) -> List[np.ndarray]:
    """Returns the row as a flat list. Only a stream's first row is compared by name."""
    leaves = tree.flatten(row)
    found = [(getattr(leaf, 'shape', None), getattr(leaf, 'dtype', None))
             for leaf in leaves]
    is_unroll = isinstance(row, unroll.Unroll)
    if not (self._checked and is_unroll and found == self._leaves):
      misfit = (unroll.misfit(row, self._blank) if is_unroll
                else f'it has type {type(row).__name__}: expected Unroll')
      if misfit:
        raise ValueError(f'a row does not fit the unrolls: {misfit}')
      self._checked = True
    return leaves

  @abc.abstractmethod
  def wait(self, timeout_ms: int) -> bool:
    """Waits until all items are in the queue, and the next unroll may be written.

    Returns:
      True, or False after the time-out, because the queue is full or the server is
      gone. The caller may try again.

    Raises:
      ServerLost: the connection is broken.
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
