"""The unrolls of a batch of environments: when one may begin, and what it contains."""

from __future__ import annotations

import time
from typing import Any, Tuple

from absl import logging
import numpy as np
import tree

from gtrxl_tf.replay import unroll
from gtrxl_tf.replay import unroll_writer
from gtrxl_tf.training.online import experiment as experiment_lib

# What a policy waits for.
QUEUE = 'the learner, which takes nothing from the queue'
WEIGHTS = 'the learner, which publishes no newer weights'
# How long a policy waits for newer weights, if it does. It then acts with the ones it
# has: the unrolls that the learner needs to make newer ones may have been lost.
_MAX_SECONDS_FOR_WEIGHTS = 30


class UnrollStream:
  """Writes what a policy does in E environments, and says when it must wait.

  Before each unroll the policy takes the newest weights, so that an unroll has a single
  policy. It also waits until the unroll before is in the queue: a full queue stops it,
  so that data is never older than the queue is long. With
  `OnlineExperiment.batches_per_weights` it also waits for newer weights.

  Attributes:
    writer: writes to the queue.
  """

  def __init__(self, experiment: experiment_lib.OnlineExperiment,
               writer: unroll_writer.UnrollWriter, tasks: np.ndarray):
    """Creates the stream.

    Args:
      experiment: the experiment of the run.
      writer: writes to the queue; it is not open yet.
      tasks: the number of each environment's task, int32 `[E]`.
    """
    self.writer = writer
    self._tasks = tasks
    self._memory_length = experiment.memory_length
    self._limit = experiment.unrolls_per_weights
    self.took_weights(0)

  def took_weights(self, target_step: int) -> None:
    """Notes that from now on the weights of learner step `target_step` act."""
    self._target_step = target_step
    self._begun = 0  # Unrolls begun with these weights.
    self._waits_since = None  # When it began to wait for newer ones.

  def blocked(self, seen: Any, in_queue: bool) -> str:
    """Returns what the policy must wait for before an unroll; '' if it may begin.

    Call it where the writer `starts_unroll`, after `UnrollWriter.wait` and then newer
    weights, if there are any; and again as long as it returns something.

    Args:
      seen: the time steps that the policy is to answer.
      in_queue: what `UnrollWriter.wait` returned.
    """
    if not in_queue:
      return QUEUE
    if self._limit is not None and self._begun >= self._limit:
      if self._waits_since is None:
        self._waits_since = time.monotonic()
        # Otherwise the learner would wait for the unroll that the next row completes.
        self.writer.end_unroll(self.row(seen))
        return QUEUE
      waited = time.monotonic() - self._waits_since
      if waited <= _MAX_SECONDS_FOR_WEIGHTS:
        return WEIGHTS
      logging.warning('actor: no newer weights for %d s; acting with those of learner '
                      'step %d', waited, self._target_step)
    self._waits_since = None
    self._begun += 1
    return ''

  def open(self) -> None:
    """Connects, or reconnects after an error, see `UnrollWriter.open`."""
    self.writer.open()
    # The unroll that was lost may be one that the learner needs for newer weights.
    self._begun = 0
    self._waits_since = None

  def row(self, seen: Any, action: Any = (), policy: Any = (), record: Any = ()
          ) -> unroll.Unroll:
    """Returns the row of `seen` and of what a policy answers to it."""
    return unroll.Unroll(
        observation=seen.observation, step_type=seen.step_type, reward=seen.reward,
        discount=seen.discount, action=action, policy=policy, record=record,
        episode_return=seen.episode_return, episode_success=seen.episode_success,
        task=self._tasks, target_step=np.int64(self._target_step),
        unroll_id=np.int64(0))

  def memory(self) -> Tuple[Any, np.ndarray]:
    """Returns records and step types of the last M rows, `[E, M, ...]`; M is not 0."""
    rows = list(self.writer.history)[-self._memory_length:]
    return tree.map_structure(
        lambda *x: np.stack(x, axis=1),
        *((row.record, row.step_type) for row in rows))
