"""Transfer of weights from the learner to the actors, in a table of one item."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from gtrxl_tf import nests
from gtrxl_tf.environments import optional
from gtrxl_tf.replay import lazy_reverb as reverb
from gtrxl_tf.replay import server_lost
from gtrxl_tf.settings import config

TABLE = 'weights'
_TIMEOUT = 10  # Seconds for the server to answer.


def specs(variables: Sequence[tf.Variable], half: bool = False) -> List[tf.TensorSpec]:
  """Returns the specs of what is sent for variables.

  Args:
    variables: the variables of the network.
    half: whether weights have 16 bits, see `nests.to_half`. Variables that are not
      trained, such as statistics of observations, are not rounded: a mean may be far
      larger than the deviation from it.
  """
  return [tf.TensorSpec(v.shape, tf.uint16 if _is_halved(v, half) else v.dtype)
          for v in variables]


def _is_halved(variable: tf.Variable, half: bool) -> bool:
  return half and variable.trainable and variable.dtype == tf.float32


def vectors(weights: Sequence[tf.TensorSpec]) -> List[tf.TensorSpec]:
  """Returns the specs of weights as `Values.read` packs them, a vector for each dtype."""
  sizes = {}
  for spec in weights:
    sizes[spec.dtype] = sizes.get(spec.dtype, 0) + spec.shape.num_elements()
  return [tf.TensorSpec([size], dtype) for dtype, size in sizes.items()]


def item_specs(weights: Sequence[tf.TensorSpec]) -> List[tf.TensorSpec]:
  """Returns the specs of an item: its step, whether it is the last, and the vectors."""
  return [tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.bool), *vectors(weights)]


class Values:
  """The values of a network's variables, packed as `nests.Packing` does."""

  def __init__(self, variables: Sequence[tf.Variable], half: bool = False):
    """Traces how to read and assign them; see `specs`."""
    variables = list(variables)
    packing = nests.Packing(specs(variables, half))
    self._read = tf.function(lambda: packing.pack([
        nests.to_half(v.value()) if _is_halved(v, half) else v.value()
        for v in variables]), autograph=False)

    # It does not refer to `self`. Otherwise the client of a channel would outlive it until
    # garbage is collected, and new clients would share its broken connection.
    @functools.partial(tf.function, autograph=False)
    def assign(vectors):
      for variable, value in zip(variables, packing.unpack(vectors)):
        variable.assign(nests.from_half(value) if _is_halved(variable, half) else value)

    self._assign = assign

  def read(self) -> List[np.ndarray]:
    """Returns the vectors of the variables' values."""
    tensors = self._read()
    vectors = [x.numpy() for x in tensors]
    nests.free_attributes(tensors)
    return vectors

  def assign(self, vectors: Sequence[np.ndarray]) -> None:
    """Assigns what `read` returned to the variables."""
    tensors = list(map(tf.constant, vectors))
    self._assign(tensors)
    nests.free_attributes(tensors)


def table_info(client: reverb.Client, table: str, timeout: int = _TIMEOUT) -> Any:
  """Returns the `TableInfo` of a table.

  `Client.server_info` also decodes the signatures of all tables, which takes ten times
  as long, and actors ask before every unroll.
  """
  schema_pb2 = optional.load('reverb.cc.schema_pb2', 'online training', 'online')
  with server_lost.converted():
    tables = client._client.ServerInfo(timeout)  # pylint: disable=protected-access
  return next(info for info in map(schema_pb2.TableInfo.FromString, tables)
              if info.name == table)


def sample(client: reverb.Client, table: str) -> List[Any]:
  """Returns the columns of the item in a table of one."""
  item, = server_lost.call(lambda: list(client.sample(table, emit_timesteps=False)),
                           f'the server sends no {table}')
  return [column[0] for column in item.data]  # Reverb returns a sequence of one.


class WeightsChannel:
  """One end of the connection from a learner's network to an actor's.

  The networks at both ends have the same variables in the same order. TF-Agents'
  ReverbVariableContainer is not suitable: a second one in a process, needed to
  reconnect, loses its client with the first ("Resource ... ReverbClient does not
  exist"), and it cannot tell whether the weights are new.

  Attributes:
    finished: whether the received weights are the last of the run.
  """

  def __init__(self, address: str, variables: Sequence[tf.Variable],
               half: bool = False):
    """Creates a channel, which connects when it is first used; see `specs`."""
    self._client = reverb.Client(address)
    self._values = Values(variables, half)
    self.finished = False
    self._received = 0
    self._published = 0
    self._newest: Optional[List[Any]] = None  # The last published item.
    self._lock = threading.Lock()  # Held while an item is inserted.

  def publish(self, step: int, finished: bool = False) -> bool:
    """Publishes the current values of the variables.

    Args:
      step: the learner step of the values.
      finished: whether these weights are the last of the run.

    Returns:
      Whether the server had lost the weights that this channel published before.
    """
    return self._insert([np.int64(step), np.bool_(finished), *self._values.read()])

  def publish_again_if_lost(self, timeout: int = _TIMEOUT) -> bool:
    """Repeats the last `publish` if the server has lost its weights; returns whether.

    A server that was started again has none. Actors then wait for some, and a learner
    without unrolls publishes none. May be called from another thread than `publish`.
    """
    return self._insert(None, timeout)

  def _insert(self, values: Optional[List[Any]], timeout: int = _TIMEOUT) -> bool:
    """Inserts values, or if None the newest ones again unless the server has them."""
    # Another thread may be in an insert that waits for its deadline.
    if not self._lock.acquire(timeout=timeout):
      raise server_lost.ServerLost(
          'the server has not taken the weights published before')
    try:
      # Raises if there is no server; an insert would wait for one.
      before = self._inserts(timeout)
      lost = self._newest is not None and before != self._published
      if values is None:
        if not lost:
          return False
        values = self._newest
      server_lost.call(lambda: self._client.insert(values, {TABLE: 1.0}),
                       'the server takes no weights')
      # Not what the server counts now, which may include an insert by another channel.
      self._newest, self._published = values, before + 1
      return lost
    except ValueError as error:  # A server with other settings, which `check` names.
      raise server_lost.ServerLost(config.one_line(error)) from error
    finally:
      self._lock.release()

  def _inserts(self, timeout: int = _TIMEOUT) -> int:
    """Returns how often weights were published."""
    return table_info(
        self._client, TABLE, timeout).rate_limiter_info.insert_stats.completed

  def receive(self) -> Optional[int]:
    """Assigns the newest weights to the variables.

    Returns:
      Their learner step, or None if nothing was published since the last call.
    """
    published = self._inserts()
    if published == self._received:
      return None
    step, finished, *values = sample(self._client, TABLE)
    self._values.assign(values)
    self._received = published
    self.finished = bool(finished)
    return int(step)

  def wait(self, waited: float) -> None:
    """Waits for newer weights, longer after `waited` seconds: asking costs time too."""
    time.sleep(min(max(waited / 20, 0.001), 0.1))
