"""Writes an actor's rows to Reverb, and items that refer to them."""

from __future__ import annotations

import collections
import math
from typing import Any, List, Optional, Tuple

import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf.replay import lazy_reverb as reverb
from gtrxl_tf.replay import prioritized
from gtrxl_tf.replay import server_lost
from gtrxl_tf.replay import unroll
from gtrxl_tf.settings import config

TABLE = 'unrolls'
_SECONDS_FOR_AN_ANSWER = 10
# The columns that an item does not have in the row after its last action.
_OF_THE_NEXT_UNROLL = ('action', 'policy', 'record', 'task', 'target_step')


def chunk_length(unroll_length: int) -> int:
  """Returns the rows per chunk: the largest divisor of the unroll's length up to 32.

  With a divisor, the last row of an unroll completes a chunk, so that its item is sent
  at once. Chunks longer than 32 were slower to write and read at the paper's size.
  """
  return max(d for d in range(1, 33) if unroll_length % d == 0)


def check_signature(client: reverb.Client, signature: unroll.Unroll, whose: str,
                    table: str) -> None:
  """Checks that a server's unrolls have the given signature.

  Args:
    client: a client of the server.
    signature: the result of `unroll.signature`.
    whose: the owner of the signature, for the message.
    table: the name of the table of unrolls.

  Raises:
    ServerLost: there is no server.
  """
  with server_lost.converted():
    tables = client.server_info(_SECONDS_FOR_AN_ANSWER)
  if table not in tables:
    raise config.ConfigError(
        f'the server at {client.server_address} has no table {table!r}: expected it by '
        'these settings')
  misfit = unroll.misfit(signature, unroll.Unroll(*tables[table].signature))
  if misfit:
    raise config.ConfigError(
        f"{whose} unrolls do not fit the server's: {misfit}. Both need the same "
        'settings')


class UnrollWriter:
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

  A replay table, if there is one, gets the items, and the queue gets a notice of each.
  The items may then overlap by more than a row, and begin every T - overlap rows.
  """

  def __init__(self, client: reverb.Client, row: unroll.Unroll, unroll_length: int,
               memory_length: int, identity: Optional[int] = None,
               replay: Optional[prioritized.Replay] = None):
    """Creates a writer; `open` connects it.

    Args:
      client: a client of the server.
      row: arrays or specs with the shapes and dtypes of a row.
      unroll_length: T.
      memory_length: M.
      identity: the upper half of the items' ids, below 2**31; random if None.
      replay: the settings of the replay table; None if there is none.

    Raises:
      ValueError: a length is not an integer, or is too small.
    """
    self._client = client
    self._unroll_length = unroll_length
    self._overlap = replay.overlap if replay else 0
    windows = unroll.columns(unroll_length, memory_length)
    # For each table of items: its name, priorities, and the window of each leaf.
    self._items = [(TABLE, 1.0, _leaf_windows(row, windows, row))]
    self._table = TABLE  # The table that has the unrolls.
    if replay:
      self._table = prioritized.TABLE
      self._items = [
          (prioritized.TABLE, replay.initial_priority, self._items[0][2]),
          (TABLE, 1.0, _leaf_windows(
              row, unroll.notice_columns(unroll_length, self._overlap),
              unroll.notice(row)))]
    self._signature = unroll.signature(row, unroll_length, memory_length)
    self._chunk_length = chunk_length(
        math.gcd(unroll_length, unroll_length - self._overlap))
    # The rows that an item refers to, and enough to end a chunk with its last row.
    before = max(memory_length, 1)
    before += (-1 - before) % self._chunk_length
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
    self._writer = None
    self._checked = False  # True once a row of this stream was compared by name.

  def open(self) -> None:
    """Connects, or reconnects after an error.

    The new stream begins with the last rows of the old one, so that memory survives.
    An unfinished unroll is lost.

    Raises:
      ServerLost: there is no server.
    """
    self.close()
    check_signature(self._client, self._signature, "this actor's", self._table)
    keep = self.history.maxlen + self._unroll_length + 1
    keep += -keep % self._chunk_length
    with server_lost.converted():
      self._writer = self._client.trajectory_writer(num_keep_alive_refs=keep)
      # Rows are flat lists, since Reverb would find every leaf's path each time.
      for i in range(len(self._leaves)):
        self._writer.configure(
            (i,), num_keep_alive_refs=keep, max_chunk_length=self._chunk_length)
      for row in self.history:
        self._writer.append(tree.flatten(row))
    self._rows = 0
    self._half_row = False  # True if `end_unroll` wrote a part of the next row.
    self._checked = False

  @property
  def is_open(self) -> bool:
    """Whether the writer is connected."""
    return self._writer is not None

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
    with server_lost.converted():
      self._writer.append(leaves)
    if complete and not self._half_row:
      self._create_item()
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
    with server_lost.converted():
      self._writer.append([leaf if ends else None
                           for leaf, ends in zip(leaves, self._ends_unroll)],
                          partial_step=True)
    self._half_row = True
    self._create_item()

  def _create_item(self) -> None:
    with server_lost.converted():
      for table, priority, windows in self._items:
        self._writer.create_item(
            table, priority=priority, trajectory=self._item(windows))
    self._next_id += 1

  def _checked_leaves(self, row: unroll.Unroll) -> List[np.ndarray]:
    """Returns the row as a flat list. Only a stream's first row is compared by name."""
    # Reverb checks too, but only after writing half of the row.
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

  def _item(self, windows: List[Optional[Tuple[int, int]]]) -> List[Any]:
    """Returns the newest unroll, in the order of the leaves of `Unroll`."""
    columns = []
    for window, column in zip(windows, self._writer.history):
      if window:
        start = window[0] - self._unroll_length - 1  # From the end of the stream.
        columns.append(column[start:(start + window[1]) or None])
    return columns

  def wait(self, pending_items: int, timeout_ms: int) -> bool:
    """Waits until at most `pending_items` are not yet in the queue.

    Returns:
      True, or False after the time-out, because the queue is full or the server is
      gone. The caller may try again.

    Raises:
      ServerLost: the connection is broken.
    """
    with server_lost.converted():
      try:
        self._writer.flush(pending_items, timeout_ms=timeout_ms)
      except reverb.DeadlineExceededError:
        return False
    return True

  def close(self) -> None:
    """Closes the stream. Items that are not yet in the queue are lost."""
    if self._writer is not None:
      with server_lost.converted():
        self._writer.close()
      self._writer = None


def _leaf_windows(row: unroll.Unroll, windows: unroll.Unroll, kept: unroll.Unroll
                  ) -> List[Optional[Tuple[int, int]]]:
  """Returns the window of each leaf of a row; None where `kept` has `()` as column."""
  return [window if tree.flatten(keeps) else None
          for column, window, keeps in zip(row, windows, kept)
          for _ in tree.flatten(column)]
