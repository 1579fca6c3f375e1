"""Weights from the learner to the actors, through a table of one item."""

from typing import Optional, Sequence

import numpy as np
import reverb
import tensorflow as tf

from gtrxl_tf import config

TABLE = 'weights'


def table(variables: Sequence[tf.Variable]) -> reverb.Table:
  """The table that holds the newest `variables`, the step they are of, and whether the
  run has come to its end."""
  return reverb.Table(
      TABLE, sampler=reverb.selectors.Uniform(), remover=reverb.selectors.Fifo(),
      max_size=1, rate_limiter=reverb.rate_limiters.MinSize(1),
      signature=[tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.bool),
                 *(tf.TensorSpec(v.shape, v.dtype) for v in variables)])


class WeightsChannel:
  """One end of the way from a learner's network to an actor's.

  Both ends hold networks of the same make; variables go in their order. TF-Agents'
  ReverbVariableContainer is not used: a second one in a process, as connecting anew
  needs, loses its client with the first ("Resource ... ReverbClient does not exist"),
  and it cannot tell whether there is anything new.

  Attributes:
    finished: whether the weights that were received are the last of the run.
  """

  def __init__(self, address: str, variables: Sequence[tf.Variable]):
    """Prepares the channel; connects at its first use."""
    self._client = reverb.Client(address)
    self._variables = list(variables)
    self.finished = False
    self._received = 0
    self._published = 0

  def publish(self, step: int, finished: bool = False, timeout: int = 10) -> None:
    """Offers the variables as they are now.

    Args:
      step: the learner step they are of.
      finished: whether they are the last.
      timeout: seconds for the server to answer.

    Raises:
      config.ConfigError: the server is for weights of another network.
    """
    # An insert waits for ever where there is no server.
    self._inserts(timeout)
    values = [np.int64(step), np.bool_(finished), *(v.numpy() for v in self._variables)]
    try:
      self._client.insert(values, {TABLE: 1.0})
    except ValueError as error:
      raise config.ConfigError(
          f'the server at {self._client.server_address} is for weights of another '
          f'network: {config.one_line(error)}') from error
    self._published = self._inserts(timeout)

  def published(self, timeout: int = 10) -> bool:
    """Whether the server has what was published; one that was started anew has nothing,
    or what an old checkpoint had."""
    try:
      return self._inserts(timeout) == self._published > 0
    except (RuntimeError, reverb.ReverbError):
      return False

  def _inserts(self, timeout: int) -> int:
    """How often weights were published, which a checkpoint of the server keeps."""
    info = self._client.server_info(timeout)[TABLE]
    return info.rate_limiter_info.insert_stats.completed

  def receive(self, timeout: int = 10) -> Optional[int]:
    """Assigns the newest weights to the variables.

    Args:
      timeout: seconds for the server to say whether there is anything new.

    Returns:
      Their step, or None if nothing has been published since the last call.

    Raises:
      config.ConfigError: they are of a network of another make.
    """
    published = self._inserts(timeout)
    if published == self._received:
      return None
    sample, = self._client.sample(TABLE, emit_timesteps=False)
    # An inserted item comes back as a sequence of one.
    step, finished, *values = (column[0] for column in sample.data)
    theirs = [f'{x.dtype}{list(x.shape)}' for x in values]
    ours = [f'{v.dtype.name}{v.shape.as_list()}' for v in self._variables]
    for i in range(max(len(theirs), len(ours))):
      got, expected = (dict(enumerate(x)).get(i, 'nothing') for x in (theirs, ours))
      if got != expected:
        raise config.ConfigError(
            f'the server at {self._client.server_address} has weights of another '
            f'network: variable {i} is {got}, and {expected} by these settings')
    for variable, value in zip(self._variables, values):
      variable.assign(value)
    self._received = published
    self.finished = bool(finished)
    return int(step)
