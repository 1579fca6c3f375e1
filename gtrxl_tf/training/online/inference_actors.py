"""What an inference server knows of its actors: their calls, unrolls and weights."""

import contextlib
import dataclasses
import threading
import time
from typing import Any, Callable, Dict, Optional, Sequence, Set, Tuple

from absl import logging
import numpy as np

from gtrxl_tf.replay import connection
from gtrxl_tf.replay import server_lost
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import inference_call
from gtrxl_tf.training.online import unroll_stream

VERSIONS = 2  # Sets of weights that may act at the same time.
# The time that a step of an actor's environments may take. An actor that has not called
# for longer after an answer loses its unroll if newer weights wait for it. Another
# process may then take its place.
_SILENT_SECONDS = 10.0
# After so long the answer to a call has failed, and the actor may call again.
_FAILED_SECONDS = 60.0
# How long a call may wait for the queue. It occupies a thread of TensorFlow, which may
# have only one. To Reverb, 0 means any length of time.
_QUEUE_MS = 1

_NO_WEIGHTS = 'a learner, which has published no weights'
NO_SERVER = 'the Reverb server, which does not answer'
_CALLED = 'the answer to its last call'


@dataclasses.dataclass
class Actor:
  """The server's record of an actor, which is a batch of E environments."""
  row: int                     # The first of its rows in the policy.
  stream: unroll_stream.UnrollStream
  session: int = -1
  number: int = 0              # Calls of the session that were answered.
  actions: Sequence[np.ndarray] = ()  # The last answer, in case it was lost.
  connection: Optional[int] = None    # To Reverb. None: its next unroll is the first.
  loaded: int = 0              # The value of `Actors.loaded` of the weights that act for it.
  refreshes: bool = False      # Whether its cache is one of other weights.
  heard: float = 0.0           # When it last called, or got an answer.
  called: Optional[float] = None  # When it made the call that is being answered.
  seen: Any = None             # The time steps of that call.

  @property
  def version(self) -> int:
    """Which of the policy's weights act for it."""
    return self.loaded % VERSIONS

  @property
  def waits(self) -> bool:
    """Whether it waits for the answer to a call that has not failed."""
    return self.called is not None and time.monotonic() - self.called < _FAILED_SECONDS

  @property
  def is_silent(self) -> bool:
    """Whether the actor has stopped calling."""
    return not self.waits and time.monotonic() - self.heard > _SILENT_SECONDS


class Actors:
  """The actors of an inference server. Calls come from several threads.

  Attributes:
    counts: counts unrolls, their environment steps, unrolls that were given up,
      connections to Reverb, and calls with the seconds from each to its answer.
    blocked: what an actor last had to wait for, and when.
    lost: why the connection to Reverb is lost; None if it is not.
    target_step: the learner step of the newest weights.
    loaded: how many times weights were loaded; modulo `VERSIONS` it is their version.
  """

  def __init__(self, experiment: experiment_lib.OnlineExperiment,
               replay: connection.Connection, max_actors: int,
               no_actions: Sequence[np.ndarray]):
    """Creates the table.

    Args:
      experiment: the experiment of the run.
      replay: the connection of this process.
      max_actors: how many actors there may be.
      no_actions: what an answer without actions has in their place.
    """
    self._experiment = experiment
    self._replay = replay
    self._max_actors = max_actors
    self._no_actions = no_actions
    self._lock = threading.Lock()
    self._actors: Dict[int, Actor] = {}
    self._told: Set[int] = set()  # Those that know that the run is over.
    self._connection: Optional[int] = None
    self._finished = self._closes = False
    self.counts = dict(environment_steps=0, unrolls=0, unrolls_given_up=0,
                       reconnections=-1, calls=0, call_seconds=0.0)
    self.blocked = NO_SERVER, 0.0
    self.lost: Optional[str] = None
    self.target_step = 0
    self.loaded = 0

  def __getitem__(self, index: int) -> Actor:
    return self._actors[index]

  def connected(self) -> None:
    """Notes that Reverb answers: actors may write, each in a new stream."""
    self.lost = None
    self.counts['reconnections'] += 1
    self._connection = self.counts['reconnections']

  def disconnected(self) -> None:
    """Notes that Reverb does not answer: actors wait."""
    self._connection = None

  def free_version(self) -> Optional[int]:
    """Returns the version for newer weights; None while an unroll still uses it.

    An actor that has stopped calling loses its unroll.
    """
    version = (self.loaded + 1) % VERSIONS
    with self._lock:
      for index, one in self._actors.items():
        if one.version == version and one.connection is not None and (
            one.called is not None or not one.stream.writer.starts_unroll):
          if not one.is_silent:
            return None
          one.connection = None
          self.counts['unrolls_given_up'] += 1
          logging.warning('inference: actor %d has not called for %.0f s and loses its '
                          'unroll', index, time.monotonic() - one.heard)
    return version

  def has_failed_calls(self) -> bool:
    """Returns whether any call has waited so long that it has failed."""
    with self._lock:
      return any(one.called is not None and not one.waits
                 for one in self._actors.values())

  def took_weights(self, target_step: int) -> None:
    """Notes that the free version has the weights of a learner step."""
    with self._lock:
      self.loaded += 1
      self.target_step = target_step

  def claim(self, index: int, session: int, number: int
            ) -> Tuple[Optional[Actor], bytes, Sequence[np.ndarray]]:
    """Returns the actor of a call that a policy must answer, or None and an answer."""
    with self._lock:
      if self._finished:
        self._told.add(index)
        return None, inference_call.FINISHED, self._no_actions
      if self._closes:
        return None, NO_SERVER.encode(), self._no_actions
      one = self._actors.get(index)
      if one is None:
        if len(self._actors) == self._max_actors:
          return None, inference_call.REFUSED + (
              f'actor {index} is one too many for the inference server, which acts for '
              f'the {self._max_actors} actors {sorted(self._actors)}').encode(), (
                  self._no_actions)
        one = self._actors[index] = self._make(index)
      if number == 0 and session != one.session:
        if one.session >= 0 and not one.is_silent:
          return None, f'another process, which plays actor {index}'.encode(), (
              self._no_actions)
        one.session, one.number, one.connection = session, 0, None
      # The session began with another server, or another process now plays the actor.
      if session != one.session:
        return None, inference_call.RESET, self._no_actions
      one.heard = time.monotonic()
      if one.waits:
        return None, _CALLED.encode(), self._no_actions
      if number == one.number - 1:
        return None, inference_call.ACTED, one.actions
      if number != one.number:
        return None, inference_call.RESET, self._no_actions
      if self._connection is None or not self.loaded:
        blocked = NO_SERVER if self._connection is None else _NO_WEIGHTS
        self.blocked = blocked, time.monotonic()
        return None, blocked.encode(), self._no_actions
      one.called = time.monotonic()
      return one, b'', self._no_actions

  def _make(self, index: int) -> Actor:
    num = self._experiment.environments_per_actor
    return Actor(len(self._actors) * num, unroll_stream.UnrollStream(
        self._experiment, self._replay.writer(index),
        self._experiment.tasks_of(num, index * num)))

  def prepare(self, one: Actor, seen: Any) -> str:
    """Returns what a claimed actor waits for; '' if it may act in `seen`."""
    def take_newer():
      with self._lock:
        if one.loaded != self.loaded:
          one.loaded, one.refreshes = self.loaded, True
          one.stream.took_weights(self.target_step)

    one.seen = seen
    connection = self._connection
    try:
      if one.connection != connection:
        one.stream.open()
        one.connection = connection
      blocked = one.stream.blocked(seen, take_newer, _QUEUE_MS)
    except server_lost.ServerLost as error:
      blocked = self._lose(one, connection, error)
    if blocked:
      self.blocked = blocked, time.monotonic()
    return blocked

  def write(self, one: Actor, actions: Sequence[np.ndarray], *answer: Any) -> bool:
    """Writes what the policy has done in the time steps of a call.

    Args:
      one: the actor.
      actions: leaves of the actions.
      *answer: the sample, the policy and the record.

    Returns:
      Whether an unroll is complete.
    """
    complete = False
    try:
      complete = one.stream.writer.append(one.stream.row(one.seen, *answer))
    except server_lost.ServerLost as error:
      self._lose(one, one.connection, error)
    experiment = self._experiment
    with self._lock:
      one.actions = actions
      one.number += 1
      one.heard = time.monotonic()
      self.counts['calls'] += 1
      self.counts['call_seconds'] += one.heard - one.called
      self.counts['unrolls'] += complete
      self.counts['environment_steps'] += complete * (
          experiment.unroll_length * experiment.environments_per_actor)
    return complete

  def _lose(self, one: Actor, connection: Optional[int],
            error: server_lost.ServerLost) -> str:
    """Makes the server reconnect to Reverb; the actor begins another unroll."""
    if connection == self._connection:
      self.lost = str(error)
    one.connection = None
    return NO_SERVER

  def gauges(self) -> Dict[str, float]:
    """Returns how many actors call, and how many calls are being answered."""
    with self._lock:
      return dict(actors=sum(not x.is_silent for x in self._actors.values()),
                  queue=sum(x.called is not None for x in self._actors.values()))

  def close(self, finished: bool, seconds: float,
            should_stop: Callable[[], bool] = lambda: False) -> None:
    """Answers the last calls, and waits until the queue has the last unrolls.

    Args:
      finished: whether the run is over. It then waits until it has told all actors that
        there may be, since a restarted server has not heard from all of them yet.
      seconds: how long to wait at most.
      should_stop: ends the wait for actors to be told.
    """
    end = time.monotonic() + seconds
    with self._lock:
      self._finished, self._closes = finished, True
      known = dict(self._actors)
    while time.monotonic() < end and not (
        len(self._told) >= self._max_actors or should_stop() if finished
        else all(one.called is None for one in known.values())):
      time.sleep(0.02)
    with contextlib.suppress(server_lost.ServerLost):  # The unrolls are lost with it.
      for one in known.values():
        writer = one.stream.writer
        if not finished and one.connection is not None:
          while time.monotonic() < end and not writer.wait(100):
            pass
        writer.close()
