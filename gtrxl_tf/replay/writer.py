"""Writes an actor's rows, and items that refer to them."""

import collections
from typing import Optional

import numpy as np
import reverb
import tensorflow as tf
import tree

from gtrxl_tf import config
from gtrxl_tf.replay import unroll as unroll_lib

TABLE = 'unrolls'
_SECONDS_FOR_AN_ANSWER = 10


def chunk_length(unroll_length: int) -> int:
  """Rows a chunk: the largest divisor of the unroll's length of at most 32.

  A divisor, so that the last row of an unroll completes a chunk and its item leaves at
  once; 32, because longer chunks were slower to write and to read at the paper's size.
  """
  return max(d for d in range(1, 33) if unroll_length % d == 0)


def check_signature(client: reverb.Client, signature: unroll_lib.Unroll, whose: str
                    ) -> None:
  """Looks whether a server's unrolls have a signature.

  Args:
    client: of the server.
    signature: of `unroll.signature`.
    whose: it is; stands in the message.

  Raises:
    config.ConfigError: they have another, as with other settings.
    RuntimeError: there is no server.
  """
  served = client.server_info(_SECONDS_FOR_AN_ANSWER)[TABLE].signature
  misfit = unroll_lib.misfit(signature, unroll_lib.Unroll(*served))
  if misfit:
    raise config.ConfigError(
        f"{whose} unrolls do not fit the server's: {misfit}. Both need the same "
        'settings')


class UnrollWriter:
  """Writes rows of E environments, and an item for every T of them.

  Nothing is copied: an item refers to its rows, and items share rows,

    rows     . . . . M M M M M|0 1 2 3 4 5 6 7 8|9
    item k            `memory'  `--- unroll --'  ^ row T, for its value
    item k+1         . . . . . . . . . M M M M M|0 1 2 3 . . .

  the last row of an unroll being the first of the next. One stream of rows runs through
  all episodes: where one ends in the middle the step types say so, and the learner
  masks what came before. So every item has the same static shape. What precedes an
  actor's first row is blank, and is masked the same way since that row is FIRST.

  An item holds the unrolls of all E environments of an actor: they step in one call,
  and written apart they would make the same windows at the same moments, at E times
  the cost.
  """

  def __init__(self, client: reverb.Client, row: unroll_lib.Unroll, unroll_length: int,
               memory_length: int, identity: Optional[int] = None):
    """Creates a writer; `open` connects it.

    Args:
      client: of the server.
      row: arrays or specs with the shapes and dtypes of the rows to come.
      unroll_length: T.
      memory_length: M.
      identity: the upper half of its items' ids, below 2**31; random if None.

    Raises:
      ValueError: a length that is none.
    """
    self._client = client
    self._unroll_length = unroll_length
    self._columns = unroll_lib.columns(unroll_length, memory_length)
    self._signature = unroll_lib.signature(row, unroll_length, memory_length)
    self._chunk_length = chunk_length(unroll_length)
    # As many rows as an item refers to, and as end its last row with a chunk.
    before = max(memory_length, 1)
    before += (-1 - before) % self._chunk_length
    blank = tree.map_structure(
        lambda x: np.zeros(x.shape, tf.as_dtype(x.dtype).as_numpy_dtype), row)
    self._blank = blank
    self._leaves = [(leaf.shape, leaf.dtype) for leaf in tree.flatten(blank)]
    self.history = collections.deque([blank] * before, maxlen=before)
    if identity is None:
      identity = int(np.random.default_rng().integers(2**31))
    self._next_id = identity << 32
    self._writer = None

  def open(self) -> None:
    """Connects, or connects anew after an error.

    A new stream begins with the rows that were written last, so that memory survives.
    An unroll that was not finished does not.

    Raises:
      config.ConfigError: the server's unrolls are others, as with other settings.
      RuntimeError: there is no server.
    """
    self.close()
    check_signature(self._client, self._signature, "this actor's")
    keep = self.history.maxlen + self._unroll_length + 1
    keep += -keep % self._chunk_length
    self._writer = self._client.trajectory_writer(num_keep_alive_refs=keep)
    for path, _ in tree.flatten_with_path(self.history[0]):
      self._writer.configure(
          path, num_keep_alive_refs=keep, max_chunk_length=self._chunk_length)
    for row in self.history:
      self._writer.append(row)
    self._rows = 0

  @property
  def is_open(self) -> bool:
    """Whether it is connected."""
    return self._writer is not None

  @property
  def starts_unroll(self) -> bool:
    """Whether the next row is the first of an unroll (and the last of another)."""
    return self._rows in (0, self._unroll_length)

  def append(self, row: unroll_lib.Unroll) -> bool:
    """Writes a row, whose `unroll_id` is set here; returns whether it made an item.

    Raises:
      ValueError: a row that is not like the one that the writer was made with. It is
        not written, and whoever writes may go on with one that is.
    """
    self._check(row)
    complete = self._rows == self._unroll_length
    row = row._replace(unroll_id=np.int64(self._next_id))
    self.history.append(row)  # Whether or not it can be written: it happened.
    self._writer.append(row)
    self._rows += 1
    if complete:
      self._writer.create_item(TABLE, priority=1.0, trajectory=self._item())
      self._next_id += 1
      self._rows = 1
    return complete

  def _check(self, row: unroll_lib.Unroll) -> None:
    # Reverb would find it too, when half of the row is written.
    try:
      tree.assert_same_structure(self._blank, row, check_types=False)
      fits = self._leaves == [(leaf.shape, leaf.dtype) for leaf in tree.flatten(row)]
    except (AttributeError, TypeError, ValueError):
      fits = False
    if not fits:
      misfit = f'it is of type {type(row).__name__}: expected Unroll'
      if isinstance(row, unroll_lib.Unroll):
        misfit = unroll_lib.misfit(row, self._blank)
      raise ValueError(f'a row does not fit the unrolls: {misfit}')

  def _item(self) -> unroll_lib.Unroll:
    def rows_of(window, column):
      start, length = window
      start -= self._unroll_length + 1  # Counted from the end of the stream.
      return tree.map_structure(lambda x: x[start:(start + length) or None], column)
    return unroll_lib.Unroll(*map(rows_of, self._columns, self._writer.history))

  def wait(self, pending_items: int, timeout_ms: int) -> bool:
    """Waits until at most `pending_items` are not yet in the queue.

    Returns:
      Whether that is so. If not, the queue is full or the server gone: ask again.
    """
    try:
      self._writer.flush(pending_items, timeout_ms=timeout_ms)
    except reverb.DeadlineExceededError:
      return False
    return True

  def close(self) -> None:
    """Lets the stream go; items that are not yet in the queue are lost."""
    if self._writer is not None:
      self._writer.close()
      self._writer = None
