"""The replay of a run on many machines: unrolls and weights by way of a Reverb server."""

from __future__ import annotations

import math
import queue
import time
from typing import Any, Dict, List, Optional, Sequence

import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf.environments import optional
from gtrxl_tf.replay import lazy_reverb as reverb
from gtrxl_tf.replay import packed_weights
from gtrxl_tf.replay import server_lost
from gtrxl_tf.replay import staleness
from gtrxl_tf.replay import unroll
from gtrxl_tf.replay import unroll_queue
from gtrxl_tf.replay import unroll_writer
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences

# The tables of a server: the queue, the newest weights, and its settings.
UNROLLS, WEIGHTS, SETTINGS = 'unrolls', 'weights', 'settings'
_TIMEOUT = 10  # Seconds for the server to answer.
_ITEM_SECONDS = 30.0  # For items to come that wait in the queue.
# If the interpreter exited while a thread is inside Reverb's C++ code, the process would
# abort.
_JOIN_SECONDS = 5.0


class Connection:
  """A process's connection to a Reverb server."""

  def __init__(self, address: str, layout: unroll.Layout):
    """Creates the connection, which connects when it is first used."""
    self.address, self.name = address, f'the server at {address}'
    self._layout = layout
    self._client = reverb.Client(address)

  def check(self, settings: Optional[differences.Settings]) -> None:
    """Compares the server's settings and tables with those of this process.

    The usual mistake is a part that is started by hand, on another host, with other
    flags. All parts connect to the server, so its settings are the reference.

    Args:
      settings: the settings of this process; None for an experiment that was not made
        from gin, which is not compared. Neither is a server of such an experiment.

    Raises:
      ServerLost: the server does not answer, or has only just been started.
    """
    with server_lost.converted():
      tables = self._client.server_info(_TIMEOUT)
    if settings is not None and SETTINGS in tables:
      if not tables[SETTINGS].current_size:
        raise server_lost.ServerLost('the server has no settings yet')
      text, = sample(self._client, SETTINGS)
      compare(self.name, settings, differences.from_json(bytes(text).decode()))
    misfit = unroll.misfit(
        self._layout.signature, unroll.Unroll(*tables[UNROLLS].signature)
    ) or unroll.misfit(
        dict(weights=packed_weights.item_specs(self._layout.weights)),
        dict(weights=list(tables[WEIGHTS].signature)))
    if misfit:
      raise config.ConfigError(
          f'what this process exchanges does not fit {self.name}: {misfit}. Both need the '
          'same settings')

  def writer(self, actor: int = 0, identity: Optional[int] = None) -> Writer:
    """Returns a writer of an actor's rows."""
    del actor  # The server needs no index.
    return Writer(self._client, self._layout, identity)

  def weights(self, variables: Sequence[tf.Variable]) -> Weights:
    """Returns an end of the transfer of weights."""
    return Weights(self.address, variables, self._layout.half_weights)

  def queue(self, num_items: int, ledger: staleness.Ledger) -> Queue:
    """Returns the learner's end of the queue."""
    return Queue(self.address, self._layout, num_items, ledger)


def compare(server: str, ours: differences.Settings, theirs: differences.Settings
            ) -> None:
  """Compares a part's settings with those of a server."""
  different = differences.differences(ours, theirs, differences.OF_ONE_PART)
  if different:
    raise config.ConfigError(
        f'{server} has other settings: {differences.describe(different)}; expected the '
        'same in all parts of a run')


def tables(client: reverb.Client, timeout: int = _TIMEOUT) -> Dict[str, Any]:
  """Returns the `TableInfo` of each table.

  `Client.server_info` also decodes the signatures of all tables, which takes ten times
  as long, and actors ask before every unroll.
  """
  schema_pb2 = optional.load('reverb.cc.schema_pb2', 'online training', 'online')
  with server_lost.converted():
    found = client._client.ServerInfo(timeout)  # pylint: disable=protected-access
  return {info.name: info for info in map(schema_pb2.TableInfo.FromString, found)}


def _inserted(infos: Dict[str, Any]) -> int:
  """Returns how often weights were published."""
  return infos[WEIGHTS].rate_limiter_info.insert_stats.completed


def sample(client: reverb.Client, table: str) -> List[Any]:
  """Returns the columns of the item in a table of one."""
  item, = server_lost.call(lambda: list(client.sample(table, emit_timesteps=False)),
                           f'the server sends no {table}')
  return [column[0] for column in item.data]  # Reverb returns a sequence of one.


def _pause(waited: float) -> None:
  """Sleeps before the server is asked again, longer after `waited` seconds."""
  time.sleep(min(max(waited / 10, 0.002), 0.1))


def chunk_length(unroll_length: int) -> int:
  """Returns the rows per chunk: the largest divisor of the unroll's length up to 32.

  With a divisor, the last row of an unroll completes a chunk, so that its item is sent
  at once. Chunks longer than 32 were slower to write and read at the paper's size.
  """
  return max(d for d in range(1, 33) if unroll_length % d == 0)


class Writer(unroll_writer.UnrollWriter):
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
      self._writer.create_item(UNROLLS, priority=1.0, trajectory=columns)

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


class Queue(unroll_queue.UnrollQueue):
  """Takes items from a server's queue.

  It asks for no more items than wait there, nor than the batch lacks. Reverb's datasets
  would fetch items early, which grow old before they are trained on.
  """

  def __init__(self, address: str, layout: unroll.Layout, num_items: int,
               ledger: staleness.Ledger):
    """Creates the queue's end, which connects when it is first used; see `UnrollQueue`."""
    super().__init__(layout, num_items, ledger)
    self._address = address
    self.connect()

  def connect(self, weights: Optional[Weights] = None) -> None:
    self._client = reverb.Client(self._address)
    self._weights = weights
    self._abandoned = False
    # A thread waits for items: if the network is cut, Reverb does not return.
    self._call: Optional[server_lost.Call] = None
    self._asked = time.monotonic()  # When it asked for items, or got the last ones.

  def abandon(self) -> None:
    self._abandoned = True

  def _take(self, num: int) -> bool:
    if self._abandoned:
      raise server_lost.ServerLost('it may have lost the newest weights')
    waited = time.monotonic() - self._asked
    if self._call is None:
      waiting = self._look()
      if not waiting:
        _pause(waited)
        return False
      self._asked, num = time.monotonic(), min(num, waiting)
      client = self._client
      self._call = server_lost.Call(
          lambda: list(client.sample(UNROLLS, num, emit_timesteps=False)))
    try:
      items = self._call.result(1)
    except queue.Empty:
      if (waiting := self._look()) and waited > _ITEM_SECONDS:
        raise server_lost.ServerLost(f'{waiting} unrolls wait in the queue and none has '
                                     f'come for {waited:.0f} s') from None
      return False
    self._call, self._asked = None, time.monotonic()
    for item in items:
      place = self.place()
      for batch, leaf in zip(tree.flatten(place), item.data):
        batch[:] = unroll_queue.batch_first(leaf)
      self.admit(place)
    return True

  def _look(self) -> int:
    """Returns how many items wait, after a look whether the server has the weights."""
    infos = tables(self._client)
    if self._weights:
      self._weights.check_kept(infos)
    return infos[UNROLLS].current_size

  def length(self) -> float:
    try:
      return float(tables(self._client, timeout=1)[UNROLLS].current_size)
    except server_lost.ServerLost:
      return math.nan

  def close(self) -> None:
    if self._call:
      self._call.thread.join(_JOIN_SECONDS)


class Weights:
  """An end of the transfer of weights from the learner to the actors.

  The networks at both ends have the same variables in the same order. TF-Agents'
  ReverbVariableContainer is not suitable: a second one in a process, needed to
  reconnect, loses its client with the first ("Resource ... ReverbClient does not
  exist"), and it cannot tell whether the weights are new.

  Attributes:
    finished: whether the received weights are the last of the run.
  """

  def __init__(self, address: str, variables: Sequence[tf.Variable], half: bool = False):
    """Creates an end, which connects when it is first used; see `weights.specs`."""
    self._client = reverb.Client(address)
    self._values = packed_weights.Values(variables, half)
    self.finished = False
    self._received = self._published = 0  # How often weights were published then.

  def publish(self, step: int, finished: bool = False) -> None:
    """Publishes the variables' values, of a learner step; `finished` if they are the last.

    Raises:
      ServerLost: the server does not answer, or has lost what was published before.
    """
    infos = tables(self._client)  # It raises if there is no server; an insert would wait.
    try:
      self.check_kept(infos)
    except server_lost.ServerLost:
      self._published = 0  # The next call succeeds.
      raise
    values = [np.int64(step), np.bool_(finished), *self._values.read()]
    try:
      server_lost.call(lambda: self._client.insert(values, {WEIGHTS: 1.0}),
                       'the server takes no weights')
    except ValueError as error:  # A server with other settings, which `check` names.
      raise server_lost.ServerLost(config.one_line(error)) from error
    self._published = _inserted(infos) + 1

  def check_kept(self, infos: Dict[str, Any]) -> None:
    """Raises `ServerLost` if a server with these `tables` has lost the weights.

    It was started again, perhaps with other settings. Actors wait for weights from it.
    """
    if _inserted(infos) < self._published:
      raise server_lost.ServerLost('it was started again, and has no weights')

  def receive(self) -> Optional[int]:
    """Assigns the newest weights; returns their learner step, None if not new."""
    published = _inserted(tables(self._client))
    if published == self._received:
      return None
    step, finished, *values = sample(self._client, WEIGHTS)
    self._values.assign(values)
    self._received = published
    self.finished = bool(finished)
    return int(step)

  def wait(self, waited: float) -> None:
    """Waits for newer weights, longer after `waited` seconds: asking costs time too."""
    _pause(waited)
