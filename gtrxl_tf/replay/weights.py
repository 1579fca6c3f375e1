"""Transfer of weights from the learner to the actors, in a table of one item."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from gtrxl_tf import nests
from gtrxl_tf.replay import deadline
from gtrxl_tf.replay import lazy_reverb as reverb
from gtrxl_tf.replay import newest_item
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


def table(variables: Sequence[tf.Variable], half: bool = False) -> reverb.Table:
  """Makes a table for the newest weights, their step, and whether the run ended.

  Args:
    variables: as for `specs`.
    half: whether weights have 16 bits.
  """
  return newest_item.make(TABLE, [
      tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.bool), *specs(variables, half)])


class Values:
  """The values of a network's variables, packed as `nests.Packing` does."""

  def __init__(self, variables: Sequence[tf.Variable], half: bool = False):
    """Traces how to read and assign them.

    Args:
      variables: the network's variables.
      half: whether weights have 16 bits on the way, see `specs`.
    """
    variables = list(variables)
    self.specs = specs(variables, half)
    self.packing = packing = nests.Packing(self.specs)
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
    """Creates a channel that connects when it is first used.

    Args:
      address: the Reverb server's address.
      variables: the network's variables.
      half: whether weights have 16 bits on the way, see `specs`.
    """
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

    Raises:
      ServerLost: the server does not answer.
    """
    values = self._values.packing.unpack(self._values.read())
    return self._insert([np.int64(step), np.bool_(finished), *values], _TIMEOUT)

  def publish_again_if_lost(self, timeout: int = _TIMEOUT) -> bool:
    """Repeats the last `publish` if the server no longer holds its weights.

    A restarted server holds nothing, or the weights of its last checkpoint. Actors
    would act with those until newer ones are published, but a learner that refuses
    unrolls of such weights never publishes newer ones. May be called from another
    thread than `publish`.

    Args:
      timeout: seconds for the server to answer.

    Returns:
      Whether the weights were published again.

    Raises:
      ServerLost: as `publish`.
    """
    return self._insert(None, timeout)

  def _insert(self, values: Optional[List[Any]], timeout: int) -> bool:
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
      deadline.call(lambda: self._client.insert(values, {TABLE: 1.0}),
                    'the server takes no weights')
      # Not what the server counts now, which may include an insert by another channel.
      self._newest, self._published = values, before + 1
      return lost
    except ValueError as error:
      raise config.ConfigError(
          f'the server at {self._client.server_address} is for weights of another '
          f'network: {config.one_line(error)}') from error
    finally:
      self._lock.release()

  def _inserts(self, timeout: int) -> int:
    """Returns how often weights were published; the server's checkpoints keep it."""
    return self._info(timeout).rate_limiter_info.insert_stats.completed

  def _info(self, timeout: int) -> Any:
    """Returns the `TableInfo` of the weights."""
    info = newest_item.table_info(self._client, TABLE, timeout)
    if info is None:
      raise config.ConfigError(
          f'the server at {self._client.server_address} has no table {TABLE!r}')
    return info

  def step_at_server(self) -> Optional[int]:
    """Returns the learner step of the server's weights; None if it has none.

    It is for diagnosis only, because all weights are transferred.

    Raises:
      ServerLost: the server does not answer.
    """
    if not self._info(_TIMEOUT).current_size:
      return None
    step, *_ = newest_item.sample(self._client, TABLE)
    return int(step)

  def receive(self) -> Optional[int]:
    """Assigns the newest weights to the variables.

    Returns:
      Their learner step, or None if nothing was published since the last call.

    Raises:
      ServerLost: the server does not answer.
    """
    published = self._inserts(_TIMEOUT)
    if published == self._received:
      return None
    step, finished, *values = newest_item.sample(self._client, TABLE)
    theirs = [f'{x.dtype}{list(x.shape)}' for x in values]
    ours = [f'{x.dtype.name}{x.shape.as_list()}' for x in self._values.specs]
    for i in range(max(len(theirs), len(ours))):
      got, expected = (dict(enumerate(x)).get(i, 'nothing') for x in (theirs, ours))
      if got != expected:
        raise config.ConfigError(
            f'the server at {self._client.server_address} has weights of another '
            f'network: variable {i} is {got}: expected {expected} by these settings')
    self._values.assign(self._values.packing.pack(values))
    self._received = published
    self.finished = bool(finished)
    return int(step)

  def wait(self, waited: float) -> None:
    """Waits for newer weights, longer after `waited` seconds: asking costs time too."""
    time.sleep(min(max(waited / 20, 0.001), 0.1))
