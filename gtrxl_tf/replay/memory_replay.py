"""The replay of a run on one machine: a ring of rows for each actor, a queue, and weights."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Callable, Iterator, List, Optional, Sequence

import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf.replay import mapped
from gtrxl_tf.replay import packed_weights
from gtrxl_tf.replay import staleness
from gtrxl_tf.replay import unroll
from gtrxl_tf.replay import unroll_queue
from gtrxl_tf.replay import unroll_writer

# Words of the header; the first says what it is. The numbers only grow: items taken from
# the queue and put into it; weights that the learner has begun to write, and published.
TAKEN, PUT, BEGUN, PUBLISHED = range(1, 5)
_CHECK_SECONDS = 1.0  # Between two calls of `alive_or_stop`.


def specs(layout: unroll.Layout) -> List[mapped.Spec]:
  """Returns the arrays of a replay, in the order of `Connection`'s attributes."""
  slot = [([2], np.int64), *(
      (spec.shape, spec.dtype.as_numpy_dtype)
      for spec in packed_weights.vectors(layout.weights))]
  rows = _ring_rows(layout)
  ring = [([rows, *spec.shape], spec.dtype.as_numpy_dtype)
          for spec in tree.flatten(layout.row)]
  return [([PUBLISHED + 1], np.int64), ([layout.queue_size, 2], np.int64),
          ([layout.num_actors], np.int64), *slot, *slot, *layout.num_actors * ring]


def _ring_rows(layout: unroll.Layout) -> int:
  """Returns the rows of an actor's ring.

  They are those that the next unroll refers to, those that are written until its end,
  and those of the actor's unrolls in the queue: all of the queue for one actor, and
  twice its share for many.
  """
  share = -(-2 * layout.queue_size // layout.num_actors)
  in_queue = min(layout.queue_size, max(2, share))
  length = layout.unroll_length
  return layout.before + in_queue * (length - layout.overlap) + 2 * length + 1


class Connection:
  """The replay of a run in a single process, in which learner and actor take turns.

  Attributes:
    address: what `connection.connect` takes; None for one in a single process.
    name: what messages call the replay.
    layout: what the ends of the replay exchange.
    act: called when the learner waits for an item; it should act for a moment.
    items: for each place of the queue, an item's actor and its first row.
    next_rows: for each actor, the first row that no item refers to.
    slots: two slots of weights, the newest in slot `PUBLISHED` modulo 2: their step and
      whether they are the run's last, and the vectors of their values.
    rings: for each actor, the leaves of its newest rows. Row i is at i modulo their
      number, so that each leaf of an item is one slice or two.
  """
  address: Optional[str] = None
  name = 'this process'

  def __init__(self, layout: unroll.Layout, arrays: Optional[List[np.ndarray]] = None):
    """Creates a replay.

    Args:
      layout: what its ends exchange.
      arrays: by `specs`; by default new ones.
    """
    self.layout = layout
    self.act: Callable[[], None] = lambda: None
    if arrays is None:
      arrays = [np.zeros(*spec) for spec in specs(layout)]
    self._words, self.items, self.next_rows, *rest = arrays
    num_leaves = len(tree.flatten(layout.row))
    rings = len(rest) - layout.num_actors * num_leaves
    self.slots = [rest[:rings // 2], rest[rings // 2:rings]]
    self.rings = [rest[i:i + num_leaves] for i in range(rings, len(rest), num_leaves)]
    self._thread_lock = threading.Lock()

  @contextlib.contextmanager
  def locked(self) -> Iterator[np.ndarray]:
    """Locks the replay; yields the words of the header."""
    with self._thread_lock:
      yield self._words

  def read(self, word: int) -> int:
    """Returns a word of the header, which may change at once."""
    return int(self._words[word])

  def wait(self, word: int, value: int, seconds: float) -> None:
    """Waits until a word is no longer `value`; it may return earlier."""
    del word, value, seconds
    self.act()

  def wake(self, word: int) -> None:
    """Wakes those that wait for a word, which has a new value."""

  def check(self, *_: Any) -> None:
    """Does nothing: all ends are of one run, whose settings they got from it."""

  def writer(self, actor: int, identity: Optional[int] = None) -> Writer:
    """Returns a writer of an actor's rows."""
    return Writer(self, actor, identity)

  def weights(self, variables: Sequence[tf.Variable]) -> Weights:
    """Returns an end of the transfer of weights."""
    return Weights(self, variables)

  def queue(self, num_items: int, ledger: staleness.Ledger) -> Queue:
    """Returns the learner's end of the queue."""
    return Queue(self, num_items, ledger)


class Writer(unroll_writer.UnrollWriter):
  """Writes an actor's rows into its ring. An item refers to them by their number."""

  def __init__(self, connection: Connection, actor: int, identity: Optional[int] = None):
    """Creates the writer of an actor, for which no other process writes."""
    super().__init__(connection.layout, identity)
    self._connection = connection
    self._actor = actor
    self._row: Optional[int] = None  # The next one, if the writer is open.
    self._rows_before: Sequence[List[np.ndarray]] = ()  # They are written with the next.
    self._pending: Optional[int] = None  # The first row of an item to be put.

  @property
  def is_open(self) -> bool:
    return self._row is not None

  def _begin(self, rows: Sequence[List[np.ndarray]]) -> None:
    self._row = int(self._connection.next_rows[self._actor])
    self._rows_before = rows
    self._pending = None

  def _write(self, leaves: List[Optional[np.ndarray]], partial: bool = False) -> None:
    rows_before, self._rows_before = self._rows_before, ()
    for row in [*rows_before, leaves]:
      for kept, leaf in zip(self._connection.rings[self._actor], row):
        if leaf is not None:
          kept[self._row % len(kept)] = leaf
      self._row += 1
    self._row -= partial

  def _create_item(self) -> None:
    self._pending = self._row + self._half_row - self._unroll_length - 1
    self._put()

  def _put(self) -> bool:
    """Puts the pending item, if any, into the queue; returns whether that succeeded."""
    if self._pending is None:
      return True
    connection = self._connection
    with connection.locked() as words:
      if words[PUT] - words[TAKEN] == len(connection.items):
        return False
      connection.items[words[PUT] % len(connection.items)] = self._actor, self._pending
      connection.next_rows[self._actor] = self._pending + self._unroll_length + 1
      words[PUT] += 1
    connection.wake(PUT)
    self._pending = None
    return True

  def _has_room(self) -> bool:
    """Returns whether the next unroll overwrites no row of an item in the queue."""
    connection = self._connection
    with connection.locked() as words:
      for i in range(words[TAKEN], words[PUT]):
        actor, first = connection.items[i % len(connection.items)]
        if actor == self._actor:
          needs = first - self._layout.before
          end = self._row + len(self._rows_before) + self._unroll_length
          return end <= needs + len(connection.rings[actor][0])
    return True

  def wait(self, timeout_ms: int) -> bool:
    end = time.monotonic() + timeout_ms / 1000
    while True:
      taken = self._connection.read(TAKEN)
      if self._put() and self._has_room():
        return True
      left = end - time.monotonic()
      if left <= 0:
        return False
      self._connection.wait(TAKEN, taken, left)

  def close(self) -> None:
    self._row = None


class Queue(unroll_queue.UnrollQueue):
  """Takes items from the queue in memory."""

  def __init__(self, connection: Connection, num_items: int, ledger: staleness.Ledger):
    """Creates the queue's end; see `UnrollQueue`."""
    super().__init__(connection.layout, num_items, ledger)
    self._connection = connection
    self._windows = connection.layout.windows

  def _take(self, num: int) -> bool:
    connection = self._connection
    put = connection.read(PUT)
    with connection.locked() as words:
      places = np.arange(words[TAKEN], words[PUT])[:num]
      items = connection.items[places % len(connection.items)]
    if not len(items):
      connection.wait(PUT, put, _CHECK_SECONDS)
      return connection.read(PUT) != put
    for actor, first in items:
      self._copy(connection.rings[actor], first)
    # Only now may actors overwrite the rows.
    with connection.locked() as words:
      words[TAKEN] += len(items)
    connection.wake(TAKEN)
    return True

  def _copy(self, ring: List[np.ndarray], first: int) -> None:
    """Copies an item from an actor's ring to the batch."""
    item = self.place()
    for rows, (start, length), place in zip(ring, self._windows, tree.flatten(item)):
      copied = 0
      while copied < length:
        begin = (first + start + copied) % len(rows)
        new = rows[begin:begin + length - copied]
        place[:, copied:copied + len(new)] = unroll_queue.batch_first(new)
        copied += len(new)
    self.admit(item)

  def length(self) -> float:
    with self._connection.locked() as words:
      return float(words[PUT] - words[TAKEN])


class Weights:
  """An end of the transfer of weights from the learner to the actors.

  Attributes:
    finished: whether the received weights are the last of the run.
  """

  def __init__(self, connection: Connection, variables: Sequence[tf.Variable]):
    """Creates an end for a network with these variables."""
    self._connection = connection
    self._values = packed_weights.Values(variables, connection.layout.half_weights)
    self._received = 0
    self.finished = False

  def publish(self, step: int, finished: bool = False) -> None:
    """Publishes the variables' values, of a learner step; `finished` if they are the last."""
    connection = self._connection
    with connection.locked() as words:
      number = int(words[PUBLISHED]) + 1
      words[BEGUN] = number
    marks, *vectors = connection.slots[number % 2]
    marks[:] = step, finished
    for vector, values in zip(vectors, self._values.read()):
      vector[:] = values
    with connection.locked() as words:
      words[PUBLISHED] = number
    connection.wake(PUBLISHED)

  def receive(self) -> Optional[int]:
    """Assigns the newest weights; returns their learner step, None if not new."""
    while True:
      with self._connection.locked() as words:
        published = int(words[PUBLISHED])
      if published == self._received:
        return None
      (step, finished), *vectors = map(
          np.copy, self._connection.slots[published % 2])
      with self._connection.locked() as words:
        if words[BEGUN] < published + 2:  # Otherwise newer ones overwrote them.
          break
    self._values.assign(vectors)
    self._received = published
    self.finished = bool(finished)
    return int(step)

  def wait(self, waited: float) -> None:
    """Waits for weights that were not received, half a second at most."""
    del waited
    self._connection.wait(PUBLISHED, self._received, 0.5)
