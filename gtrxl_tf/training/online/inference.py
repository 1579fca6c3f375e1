"""An inference server: acts for the environments of many other processes."""

import contextlib
import dataclasses
import math
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from absl import logging
import dm_env
import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf.replay import lazy_reverb as reverb
from gtrxl_tf.replay import server as server_lib
from gtrxl_tf.replay import server_lost
from gtrxl_tf.replay import weights
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences
from gtrxl_tf.training import gauges as gauges_lib
from gtrxl_tf.training import watchdog
from gtrxl_tf.training.online import actor
from gtrxl_tf.training.online import agreement
from gtrxl_tf.training.online import batched_policy
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import inference_call
from gtrxl_tf.training.online import placement
from gtrxl_tf.training.online import reconnect
from gtrxl_tf.training.online import unroll_stream

_VERSIONS = 2  # Sets of weights that may act at the same time.
# An actor that has not called for so long loses its unroll if newer weights wait for it.
_SILENT_SECONDS = 5.0
# After so long the answer to a call has failed, and the actor may call again.
_FAILED_SECONDS = 60.0
# How long a server that ends waits until its actors know, and its unrolls are in the
# queue.
_FAREWELL_SECONDS = 5.0
_SHOW_SECONDS = 1.0
# How long a call may wait for the queue. It occupies a thread of TensorFlow, of which
# there may be one. Reverb takes 0 for any length of time.
_QUEUE_MS = 1
_WEIGHTS_SECONDS = 0.05  # Between two looks for newer weights,
_WAITED_SECONDS = 0.002  # and if actors wait for them.

_NO_WEIGHTS = 'a learner, which has published no weights'
_NO_SERVER = 'the Reverb server, which does not answer'
_CALLED = 'the answer to its last call'


@dataclasses.dataclass
class _Actor:
  """What a server knows of an actor, a batch of environments."""
  row: int                     # The first of its rows in the policy.
  stream: unroll_stream.UnrollStream
  session: int = -1
  number: int = 0              # Calls of the session that were answered.
  actions: Tuple = ()          # The last answer, in case it was lost.
  connection: Optional[int] = None  # To Reverb. None: its next unroll is the first.
  loaded: int = 0              # The number of the weights that act for it.
  refreshes: bool = False      # Whether its cache is one of other weights.
  heard: float = 0.0           # When it last called.
  called: Optional[float] = None  # When it made the call that is being answered.
  seen: Any = None             # What that call has.

  def needs(self, version: int) -> bool:
    """Whether it is being answered, or within an unroll, by a version of the weights."""
    return (self.connection is not None and self.loaded % _VERSIONS == version
            and (self.called is not None or not self.stream.writer.starts_unroll))


class InferenceServer:
  """Acts for environments that other processes step, and writes their unrolls.

  Each actor, a batch of E environments, calls with its time steps. The policy steps the
  environments of several actors in one batch. Their caches are here, and so are the
  writers of their unrolls: records of memory do not cross the network.

  An unroll has a single policy, as with actors that act themselves: the weights before
  the newest are kept for unrolls that began with them. Still newer ones are taken when
  all of these unrolls are complete. An actor that calls no more loses its unroll.

  A call never waits for the learner. If the actor must wait, the answer says for what.
  """

  def __init__(self, experiment: experiment_lib.OnlineExperiment, address: str,
               port: int, should_stop: Callable[[], bool], start: int = 0,
               gauges: Optional[gauges_lib.Gauges] = None, host: str = 'localhost',
               device: Optional[str] = None,
               source: Optional[weights.LocalWeights] = None):
    """Makes the policy; nothing listens yet.

    Args:
      experiment: the run's.
      address: the Reverb server's address.
      port: where to listen.
      should_stop: called while serving.
      start: the number of this start, which no earlier start in the same run had. With
        the run's seed it decides the noise of actions, together with the order in which
        calls come.
      gauges: shows its counts to Prometheus.
      host: where to listen.
      device: acts, such as `GPU:1`; by default TensorFlow's.
      source: gives the weights of a learner in this process. By default they come from
        the Reverb server.

    Raises:
      config.ConfigError: something listens on the port.
    """
    self._experiment = experiment
    self._address = address
    self._host, self._port = host, port
    self._should_stop = should_stop
    self._source = source
    self._settings = experiment.inference or placement.Inference()
    self._variables = experiment.acting_network.variables  # Where weights arrive.
    num = experiment.environments_per_actor
    self._most = self._settings.actors_per_server(experiment.num_actors)
    noise = np.random.SeedSequence([experiment.seed, 1, start])
    with tf.device(device):
      self._policy = batched_policy.BatchedPolicy(
          [experiment.make_policy(experiment.make_network(), with_record=True)
           for _ in range(_VERSIONS)],
          self._most * num, num, self._settings.max_batch, self._settings.max_wait_ms,
          noise.generate_state(_VERSIONS).view(np.int32).tolist())
    self._seen_spec = inference_call.seen_spec(experiment)
    self._has_memory = bool(experiment.memory_length)
    self._no_actions = [
        np.zeros([num, *spec.shape[1:]], spec.dtype.as_numpy_dtype)
        for spec in tf.nest.flatten(inference_call.action_spec(experiment))]
    self._client = reverb.Client(address)
    self._lock = threading.Lock()  # For what follows.
    self._actors: Dict[int, _Actor] = {}
    self._told = set()  # Actors that know that the run is over.
    self._connection: Optional[int] = None
    self._loaded = 0    # How often weights came. Their version is its remainder.
    self._target_step = 0
    self._lost: Optional[str] = None
    self._finished = self._closes = False
    self._counts = dict(environment_steps=0, unrolls=0, reconnections=-1)
    self._answered, self._waited = 0, 0.0  # Calls, and the seconds that they took.
    self._gauges = gauges or gauges_lib.Gauges('inference')
    self._shown = time.time(), self._policy.counts(), 0, 0.0
    self._blocked = _NO_SERVER, 0.0  # What an actor last waited for, and when.
    self._watchdog = watchdog.Watchdog(experiment.stall_seconds, self._describe)
    self._call = tf.function(
        self._answer, autograph=False, input_signature=[
            tf.TensorSpec([3], tf.int64), *tf.nest.flatten(self._seen_spec)])

  def run(self) -> None:
    """Serves until told to stop or the run is over; reconnects to a lost Reverb server.

    Raises:
      actor.ActingFailed: the policy cannot act on the environments' observations.
      config.ConfigError: the server has other settings, or the learner another
        network; or the port is taken.
    """
    server_lib.check_port(self._port)
    try:
      self._policy.warm_up()
    except ValueError as error:
      raise actor.ActingFailed(config.one_line(error)) from error
    server = self._listen()
    with self._watchdog:
      self._serve_until_ended()
    self._close()
    del server  # It listens as long as it exists.

  def _listen(self) -> Any:
    """Returns an RPC server."""
    text = differences.to_json(self._experiment.settings or {})
    settings = tf.function(lambda: tf.constant(text), input_signature=[])
    server = tf.distribute.experimental.rpc.Server.create(
        'grpc', f'{self._host}:{self._port}')
    server.register(inference_call.ACT, self._call)
    server.register(inference_call.SETTINGS, settings)
    server.start()
    logging.info('inference: listening at %s:%d for up to %d actors, in batches of up to '
                 '%d environments', self._host, self._port, self._most,
                 self._policy.batch_sizes[-1])
    return server

  def _serve_until_ended(self) -> None:
    backoff = reconnect.Backoff('inference', self._address, self._ended)
    while not self._ended():
      try:
        channel = self._connect()
        unrolls = self._counts['unrolls']
        while not self._ended():
          if self._lost:
            raise server_lost.ServerLost(self._lost)
          self._take_weights(channel)
          self._show()
          if self._counts['unrolls'] > unrolls:
            backoff.reset()
          time.sleep(self._seconds_to_wait())
      except server_lost.ServerLost as error:
        self._connection = None
        backoff.wait(error)

  def _ended(self) -> bool:
    self._watchdog.alive()
    return self._finished or self._should_stop()

  def _describe(self, seconds: float) -> str:
    """Returns a log line that says what the server is waiting for."""
    with self._lock:
      calling = sum(time.time() - x.heard < _SILENT_SECONDS
                    for x in self._actors.values())
    waits_for = self._blocked[0] if calling else 'actors, which do not call'
    return (f'inference: no unroll for {seconds:.0f} s, with weights of learner step '
            f'{self._target_step} from the server at {self._address}: {calling} actors '
            f'call, and it waits for {waits_for}')

  def _connect(self) -> Union[weights.WeightsChannel, weights.LocalWeights]:
    agreement.check_server(self._address, self._experiment.settings)
    channel = self._source or weights.WeightsChannel(self._address, self._variables)
    self._lost = None
    self._counts['reconnections'] += 1
    self._connection = self._counts['reconnections']
    return channel

  def _seconds_to_wait(self) -> float:
    what, when = self._blocked
    wanted = what == unroll_stream.WEIGHTS and time.time() - when < _WEIGHTS_SECONDS
    return _WAITED_SECONDS if wanted or not self._loaded else _WEIGHTS_SECONDS

  def _take_weights(self, channel: Union[weights.WeightsChannel, weights.LocalWeights]
                    ) -> None:
    """Takes newer weights if there are any, unless the oldest here still act."""
    version = (self._loaded + 1) % _VERSIONS
    with self._lock:
      for known in self._actors.values():
        if known.needs(version):
          if known.called or time.time() - known.heard < _SILENT_SECONDS:
            return
          known.connection = None
    step = channel.receive()
    if step is not None:
      self._policy.load(version, self._variables)
      with self._lock:
        self._loaded += 1
        self._target_step = step
    self._finished = channel.finished

  def _answer(self, numbers: tf.Tensor, *leaves: tf.Tensor) -> List[tf.Tensor]:
    """The graph that answers a call."""
    num = self._experiment.environments_per_actor
    says, version, row, refreshes, *actions = tf.numpy_function(
        self._begin, [numbers, *leaves],
        [tf.string, tf.int32, tf.int32, tf.bool, *(x.dtype for x in self._no_actions)])
    says, version, row, refreshes = (
        tf.ensure_shape(x, []) for x in (says, version, row, refreshes))
    seen = tf.nest.pack_sequence_as(self._seen_spec, leaves)

    def act():
      rows = tf.range(row, row + num)  # Of a size that the graph does not know.
      refreshed = tf.cond(
          refreshes, lambda: self._refresh(numbers, version, rows), tf.no_op)
      with tf.control_dependencies([refreshed]):
        answer = self._policy.act(version, rows, dm_env.TimeStep(
            seen.step_type, seen.reward, seen.discount, seen.observation))
      written = tf.numpy_function(self._end, [numbers, *answer], tf.string)
      with tf.control_dependencies([written]):
        return [tf.constant(inference_call.ACTED),
                *(tf.identity(x) for x in answer[:len(actions)])]

    return tf.cond(version < 0, lambda: [says, *actions], act)

  def _refresh(self, numbers: tf.Tensor, version: tf.Tensor, rows: tf.Tensor
               ) -> tf.Operation:
    """Rebuilds an actor's caches, in the graph."""
    row = self._experiment.row_spec()
    specs = tf.nest.flatten((row.record, row.step_type))
    found = tf.numpy_function(
        lambda numbers: tree.flatten(self._actors[numbers[0]].stream.memory()),
        [numbers], [spec.dtype for spec in specs])
    length = self._experiment.memory_length
    records, step_types = tf.nest.pack_sequence_as(
        (row.record, row.step_type),
        [tf.ensure_shape(x, [spec.shape[0], length, *spec.shape[1:]])
         for x, spec in zip(found, specs)])
    self._policy.refresh(version, rows, records, step_types)
    return tf.no_op()

  def _begin(self, numbers: np.ndarray, *leaves: np.ndarray) -> Tuple:
    """Begins to answer a call.

    Returns:
      What the answer says; the version of the weights that act, or -1 if none do; the
      first row of the actor; whether to refresh its cache; actions if none act.
    """
    known, says, actions = self._claim(*map(int, numbers))
    if known is not None:
      try:
        # TensorFlow's memory is valid only during this call.
        known.seen = tree.unflatten_as(self._seen_spec, [np.array(x) for x in leaves])
        blocked = self._prepare(known)
      except BaseException:
        known.called = None
        raise
      if not blocked:
        refreshes, known.refreshes = known.refreshes, False
        return (b'', np.int32(known.loaded % _VERSIONS), np.int32(known.row),
                np.bool_(refreshes), *actions)
      known.called = None
      self._blocked = blocked, time.time()
      says = blocked.encode()
    return says, np.int32(-1), np.int32(0), np.bool_(False), *actions

  def _claim(self, index: int, session: int, number: int
             ) -> Tuple[Optional[_Actor], bytes, Sequence[np.ndarray]]:
    """Returns the actor of a call that is to be answered; else None, and the answer."""
    nothing = self._no_actions
    with self._lock:
      if self._finished:
        self._told.add(index)
        return None, inference_call.FINISHED, nothing
      if self._closes:
        return None, _NO_SERVER.encode(), nothing
      known = self._actors.get(index)
      if known is None:
        if len(self._actors) == self._most:
          return None, inference_call.REFUSED + (
              f'actor {index}: this server acts for {self._most} actors, '
              f'{sorted(self._actors)}; expected one of them').encode(), nothing
        known = self._actors[index] = self._make_actor(index)
      known.heard = time.time()
      if known.called is not None and known.heard - known.called < _FAILED_SECONDS:
        return None, _CALLED.encode(), nothing
      if number == 0 and session != known.session:
        known.session, known.number, known.connection = session, 0, None
      if session == known.session and number == known.number - 1:
        return None, inference_call.ACTED, known.actions
      if session != known.session or number != known.number:
        return None, inference_call.RESET, nothing
      if self._connection is None or not self._loaded:
        says = _NO_SERVER if self._connection is None else _NO_WEIGHTS
        return None, says.encode(), nothing
      known.called = time.time()
      return known, b'', nothing

  def _make_actor(self, index: int) -> _Actor:
    num = self._experiment.environments_per_actor
    return _Actor(len(self._actors) * num, unroll_stream.UnrollStream(
        self._experiment, self._client, self._experiment.tasks_of(num, index * num)))

  def _prepare(self, known: _Actor) -> str:
    """Returns what an actor waits for; '' if it may act."""
    def take_newer():
      with self._lock:
        if known.loaded != self._loaded:
          known.loaded, known.refreshes = self._loaded, self._has_memory
          known.stream.took_weights(self._target_step)

    connection = self._connection
    try:
      if known.connection != connection:
        known.stream.open()
        known.connection = connection
      return known.stream.blocked(known.seen, take_newer, _QUEUE_MS)
    except server_lost.ServerLost as error:
      return self._lose(known, error)

  def _lose(self, known: _Actor, error: server_lost.ServerLost) -> str:
    """Makes the server reconnect to Reverb; its actor begins another unroll."""
    if known.connection in (None, self._connection):
      self._lost = str(error)
    known.connection = None
    return _NO_SERVER

  def _end(self, numbers: np.ndarray, *leaves: np.ndarray) -> bytes:
    """Writes what the policy has answered to a call."""
    known = self._actors[int(numbers[0])]
    try:
      actions, sample, info = self._policy.unflatten([np.array(x) for x in leaves])
      known.actions = tf.nest.flatten(actions)
      complete = False
      try:
        complete = known.stream.writer.append(
            known.stream.row(known.seen, sample, info.policy, info.record))
      except server_lost.ServerLost as error:
        self._lose(known, error)
      with self._lock:
        known.number += 1
        self._answered += 1
        self._waited += time.time() - known.called
        if complete:
          self._counts['unrolls'] += 1
          self._counts['environment_steps'] += (
              self._experiment.unroll_length * self._experiment.environments_per_actor)
      if complete:
        self._watchdog.progress()
    finally:
      known.called = None
    return inference_call.ACTED

  def _show(self) -> None:
    """Shows the gauges once a second, as means since the last time."""
    began, before, answered, waited = self._shown
    elapsed = time.time() - began
    if elapsed < _SHOW_SECONDS or not self._gauges.listens:
      return
    with self._lock:
      now = self._policy.counts()
      calls = [x.heard for x in self._actors.values()]
      queue = sum(x.called is not None for x in self._actors.values())
      new = {name: now[name] - before[name] for name in now}
      self._gauges.show({
          **self._counts, 'target_step': self._target_step, 'queue': queue,
          'actors': sum(time.time() - heard < _SILENT_SECONDS for heard in calls),
          'batch_size': new['rows'] / (new['batches'] or math.nan),
          'occupancy': new['seconds'] / elapsed,
          'wait_seconds': (self._waited - waited) / ((self._answered - answered)
                                                     or math.nan)})
      self._shown = time.time(), now, self._answered, self._waited

  def _close(self) -> None:
    """Answers the last calls, and waits a little until the queue has the unrolls."""
    end = time.time() + _FAREWELL_SECONDS
    self._closes = True
    while time.time() < end and not (
        self._told >= set(self._actors) if self._finished
        else all(x.called is None for x in self._actors.values())):
      time.sleep(0.05)
    with contextlib.suppress(server_lost.ServerLost):  # The unrolls are lost with it.
      for known in self._actors.values():
        if known.connection is not None:
          while not self._finished and time.time() < end and not known.stream.writer.wait(
              0, 100):
            pass
          known.stream.writer.close()
