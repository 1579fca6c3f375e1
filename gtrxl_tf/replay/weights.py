"""Weights from the learner to the actors, through a table of one item."""

from typing import Optional, Sequence

import numpy as np
import reverb
import tensorflow as tf

TABLE = 'weights'


def table(variables: Sequence[tf.Variable]) -> reverb.Table:
  """The table that holds the newest `variables` and the step they are of."""
  return reverb.Table(
      TABLE, sampler=reverb.selectors.Uniform(), remover=reverb.selectors.Fifo(),
      max_size=1, rate_limiter=reverb.rate_limiters.MinSize(1),
      signature=[tf.TensorSpec([], tf.int64),
                 *(tf.TensorSpec(v.shape, v.dtype) for v in variables)])


class WeightsChannel:
  """One end of the way from a learner's network to an actor's.

  Both ends hold networks of the same make; variables go in their order. TF-Agents'
  ReverbVariableContainer is not used: a second one in a process, as connecting anew
  needs, loses its client with the first ("Resource ... ReverbClient does not exist"),
  and it cannot tell whether there is anything new.
  """

  def __init__(self, address: str, variables: Sequence[tf.Variable]):
    """Prepares the channel; connects at its first use."""
    self._client = reverb.Client(address)
    self._variables = list(variables)
    self._received = 0

  def publish(self, step: int) -> None:
    """Offers the variables as they are now, as those of learner step `step`."""
    self._client.insert(
        [np.int64(step), *(v.numpy() for v in self._variables)], {TABLE: 1.0})

  def published(self, timeout: int = 10) -> bool:
    """Whether the server has weights; one that was started anew has none."""
    try:
      return self._client.server_info(timeout)[TABLE].current_size > 0
    except (RuntimeError, reverb.ReverbError):
      return False

  def receive(self, timeout: int = 10) -> Optional[int]:
    """Assigns the newest weights to the variables.

    Args:
      timeout: seconds for the server to say whether there is anything new.

    Returns:
      Their step, or None if nothing has been published since the last call.
    """
    info = self._client.server_info(timeout)[TABLE]
    published = info.rate_limiter_info.insert_stats.completed
    if info.current_size == 0 or published == self._received:
      return None
    sample, = self._client.sample(TABLE, emit_timesteps=False)
    # An inserted item comes back as a sequence of one.
    step, *values = (column[0] for column in sample.data)
    for variable, value in zip(self._variables, values):
      variable.assign(value)
    self._received = published
    return int(step)
