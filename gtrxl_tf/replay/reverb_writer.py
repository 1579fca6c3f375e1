"""Writes an actor's rows to Reverb."""

from __future__ import annotations

import math
from typing import List, Optional, Sequence

import numpy as np

from gtrxl_tf.replay import lazy_reverb as reverb
from gtrxl_tf.replay import server_lost
from gtrxl_tf.replay import unroll
from gtrxl_tf.replay import writer

TABLE = 'unrolls'


def chunk_length(unroll_length: int) -> int:
  """Returns the rows per chunk: the largest divisor of the unroll's length up to 32.

  With a divisor, the last row of an unroll completes a chunk, so that its item is sent
  at once. Chunks longer than 32 were slower to write and read at the paper's size.
  """
  return max(d for d in range(1, 33) if unroll_length % d == 0)


class ReverbWriter(writer.UnrollWriter):
  """Writes rows to a Reverb server, in chunks that its items share."""

  def __init__(self, client: reverb.Client, layout: unroll.Layout,
               identity: Optional[int] = None):
    """Creates a writer; `open` connects it. See `UnrollWriter`."""
    length = layout.unroll_length
    self._chunk_length = chunk_length(math.gcd(length, length - layout.overlap))
    # An item should end a chunk with its last row.
    super().__init__(layout, identity, -(layout.before + 1) % self._chunk_length)
    self._client = client
    self._writer = None

  def _begin(self, rows: Sequence[List[np.ndarray]]) -> None:
    keep = len(rows) + self._unroll_length + 1
    keep += -keep % self._chunk_length
    with server_lost.converted():
      self._writer = self._client.trajectory_writer(num_keep_alive_refs=keep)
      # Rows are flat lists, since Reverb would find every leaf's path each time.
      for i in range(len(self._layout.windows)):
        self._writer.configure(
            (i,), num_keep_alive_refs=keep, max_chunk_length=self._chunk_length)
      for row in rows:
        self._writer.append(row)

  @property
  def is_open(self) -> bool:
    return self._writer is not None

  def _write(self, leaves: List[Optional[np.ndarray]], partial: bool = False) -> None:
    with server_lost.converted():
      self._writer.append(leaves, partial_step=partial)

  def _create_item(self) -> None:
    columns = []
    for (start, length), column in zip(self._layout.windows, self._writer.history):
      start -= self._unroll_length + 1  # From the end of the stream.
      columns.append(column[start:(start + length) or None])
    with server_lost.converted():
      self._writer.create_item(TABLE, priority=1.0, trajectory=columns)

  def wait(self, timeout_ms: int) -> bool:
    with server_lost.converted():
      try:
        self._writer.flush(0, timeout_ms=timeout_ms)
      except reverb.DeadlineExceededError:
        return False
    return True

  def close(self) -> None:
    if self._writer is not None:
      with server_lost.converted():
        self._writer.close()
      self._writer = None
