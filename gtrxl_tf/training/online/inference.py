"""An inference server: acts for the environments of many other processes."""

import contextlib
import dataclasses
import json
import math
import queue
import socket
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from absl import logging
import dm_env
import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf import machine
from gtrxl_tf.replay import connection
from gtrxl_tf.replay import mapped
from gtrxl_tf.replay import server as server_lib
from gtrxl_tf.replay import server_lost
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences
from gtrxl_tf.training import devices
from gtrxl_tf.training import gauges as gauges_lib
from gtrxl_tf.training import trainer
from gtrxl_tf.training import watchdog
from gtrxl_tf.training.online import actor
from gtrxl_tf.training.online import batched_policy
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import inference_call
from gtrxl_tf.training.online import placement
from gtrxl_tf.training.online import reconnect
from gtrxl_tf.training.online import unroll_stream

_VERSIONS = 2  # Sets of weights that may act at the same time.
# The time that a step of an actor's environments may take. An actor that has not called
# for longer after an answer loses its unroll if newer weights wait for it. Another
# process may then take its place.
_SILENT_SECONDS = 10.0
# A server that is told to stop waits this long until its unrolls are in the queue.
_FAREWELL_SECONDS = 5.0
# A server whose run is over waits this long until all actors know. They may be in a
# step of their environments, or about to connect again.
_TELL_SECONDS = 60.0
_SHOW_SECONDS = 1.0
_WEIGHTS_SECONDS = 0.05  # The time between two looks for newer weights.
_WAITED_SECONDS = 0.002  # The same, while actors wait for them.
_QUEUE_MS = 1  # How long to wait for the queue. To Reverb, 0 means any length of time.
_NO_WEIGHTS = 'a learner, which has published no weights'
_NO_SERVER = 'the Reverb server, which does not answer'


@dataclasses.dataclass
class _Actor:
  """The server's record of an actor, which is a batch of E environments."""
  rows: np.ndarray           # Its rows in the policy.
  stream: unroll_stream.UnrollStream
  connected: Optional[socket.socket] = None
  seen: Any = None           # The time steps that wait for an answer.
  heard: float = 0.0         # When these came, or when it got its last answer.
  is_open: bool = False      # Whether the stream is open; if not, it must be opened first.
  loaded: int = 0            # The value of `InferenceServer._loaded` of its weights.


class InferenceServer:
  """Acts for environments that other processes step, and writes their unrolls.

  Each actor, a batch of E environments, sends its time steps. The policy steps the
  environments of all that have come. Their caches are here, and so are the writers of
  their unrolls: records of memory do not cross the network.

  An unroll has a single policy, as with actors that act themselves: the weights before
  the newest are kept for unrolls that began with them. Still newer ones are taken when
  all of these unrolls are complete. An actor that stops calling loses its unroll.

  A thread for each connection receives; the thread that runs the server does the rest.
  """

  def __init__(self, experiment: experiment_lib.OnlineExperiment, address: str,
               port: int, should_stop: Callable[[], bool], start: int = 0,
               gauges: Optional[gauges_lib.Gauges] = None, host: str = 'localhost',
               device: Optional[str] = None):
    """Makes the policy; nothing listens yet.

    Args:
      experiment: the experiment of the run.
      address: the replay's address, see `connection.connect`.
      port: the port to listen on.
      should_stop: called while serving.
      start: the number of this start, which no earlier start in the same run had. With
        the run's seed it decides the noise of actions, together with the order in which
        calls come.
      gauges: shows the server's counts to Prometheus.
      host: the host to listen at.
      device: the device that acts, such as `GPU:1`; by default TensorFlow's.
    """
    if device:
      devices.check(device)
    if experiment.replay or experiment.exploration:
      raise config.ConfigError(
          'an inference server has no rates of exploration: expected None as '
          'OnlineExperiment.replay and OnlineExperiment.exploration')
    self._experiment = experiment
    self._address = address
    self._replay = connection.connect(address, experiment.layout)
    self._host, self._port = host, port
    self._should_stop = should_stop
    self._variables = experiment.acting_network.variables  # Where weights arrive.
    num = experiment.environments_per_actor
    settings = experiment.inference or placement.Inference()
    self._max_actors = settings.actors_per_server(experiment.num_actors)
    self._max_wait = settings.max_wait_ms / 1000
    noise = np.random.SeedSequence([experiment.seed, 1, start])
    with tf.device(device):
      policies = [experiment.make_policy(experiment.make_network(), with_record=True)
                  for _ in range(_VERSIONS)]
    self._policy = batched_policy.BatchedPolicy(
        policies, self._max_actors * num, num, settings.max_batch,
        noise.generate_state(len(policies)).view(np.int32).tolist(), device)
    self._most = self._policy.batch_sizes[-1] // num or 1  # Actors of a batch.
    self._seen_spec = inference_call.seen_spec(experiment)
    self._question, self._answer = (
        inference_call.question(experiment), inference_call.answer(experiment))
    self._calls: queue.SimpleQueue = queue.SimpleQueue()
    self._lock = threading.Lock()  # Guards `_claims`.
    self._claims: Dict[int, Optional[socket.socket]] = {}  # The actors' connections.
    self._actors: Dict[int, _Actor] = {}
    self._loaded = 0  # How often weights were loaded; modulo 2 it is their version.
    self._target_step = 0
    self._next_look = 0.0
    self._waits_for = _NO_SERVER
    self._lost: Optional[server_lost.ServerLost] = None
    self._finished = False
    self._gauges = gauges or gauges_lib.Gauges('inference')
    self._counts: Dict[str, float] = dict(
        environment_steps=0, unrolls=0, unrolls_given_up=0, reconnections=-1, calls=0,
        call_seconds=0.0)
    self._shown = time.monotonic(), {**self._counts, **self._policy.counts}
    self._watchdog = watchdog.Watchdog(experiment.stall_seconds, self._describe)

  def run(self) -> None:
    """Serves until told to stop or the run is over; reconnects to a lost Reverb server.

    Raises:
      actor.ActingFailed: the policy cannot act on the environments' observations.
    """
    server_lib.check_port(self._port, self._host)
    try:
      self._policy.warm_up()
    except ValueError as error:
      raise actor.ActingFailed(config.one_line(error)) from error
    with self._listening():
      with self._watchdog:
        self._serve_until_ended()
      self._farewell()

  # The methods that run in the threads of connections.

  @contextlib.contextmanager
  def _listening(self) -> Iterator[None]:
    listeners = [
        socket.create_server((address, self._port), family=(
            socket.AF_INET6 if ':' in address else socket.AF_INET))
        for address in machine.addresses(self._host, self._port)]
    for listener in listeners:
      threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
    logging.info('inference: listening at %s, in batches of up to %d environments',
                 machine.host_and_port(self._host, self._port),
                 self._policy.batch_sizes[-1])
    try:
      yield
    finally:
      for listener in listeners:
        _end(listener)
        listener.close()
      for connected in self._claims.values():
        _end(connected)

  def _accept(self, listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
      while True:
        connected, _ = listener.accept()
        threading.Thread(target=self._receive, args=(connected,), daemon=True).start()

  def _receive(self, connected: socket.socket) -> None:
    """Receives the time steps of an actor until its connection ends."""
    index = None
    with connected, contextlib.suppress(OSError):
      connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
      magic, index, *sizes = inference_call.HELLO.unpack(
          inference_call.receive(connected, inference_call.HELLO.size))
      if magic != inference_call.MAGIC:
        return
      refused, busy = self._claim(index, sizes, connected)
      text = json.dumps(dict(
          settings=differences.to_json(self._experiment.settings or {}),
          refused=refused, busy=busy)).encode()
      connected.sendall(
          inference_call.LENGTH.pack(inference_call.MAGIC, len(text)) + text)
      size = mapped.size(self._question)
      while not (refused or busy):
        self._calls.put((index, connected, inference_call.receive(connected, size)))
    with self._lock:
      if index is not None and self._claims.get(index) is connected:
        self._claims[index] = None

  def _claim(self, index: int, sizes: List[int], connected: socket.socket
             ) -> Tuple[str, str]:
    """Gives an actor's place to a connection, or returns why not: for good, or now."""
    expected = [mapped.size(self._question), mapped.size(self._answer)]
    if sizes != expected:
      return (f'actor {index} sends and gets {sizes} bytes: expected {expected} by the '
              "inference server's settings"), ''
    with self._lock:
      if index not in self._claims and len(self._claims) == self._max_actors:
        return (f'actor {index} is one too many for the inference server, which acts for '
                f'the {self._max_actors} actors {sorted(self._claims)}'), ''
      if self._claims.get(index) and not (
          index in self._actors and self._is_silent(index)):
        return '', f'another process plays actor {index}'
      _end(self._claims.get(index))
      self._claims[index] = connected
      return '', ''

  # The methods that run in the thread of the server.

  def _is_silent(self, index: int) -> bool:
    """Returns whether an actor has stopped calling."""
    one = self._actors[index]
    return self._claims[index] is not one.connected or (
        one.seen is None and time.monotonic() - one.heard > _SILENT_SECONDS)

  def _serve_until_ended(self) -> None:
    backoff = reconnect.Backoff('inference', self._address, self._ended)
    while not self._ended():
      try:
        self._replay.check(self._experiment.settings)
        channel = self._replay.weights(self._variables)
        self._counts['reconnections'] += 1
        for one in self._actors.values():
          one.is_open = False
        while not self._ended():
          self._take_weights(channel)
          self._collect()
          if self._act():
            backoff.reset()
          self._show()
      except server_lost.ServerLost as error:
        self._waits_for = _NO_SERVER
        backoff.wait(error)

  def _ended(self) -> bool:
    self._watchdog.alive()
    return self._finished or self._should_stop()

  def _describe(self, seconds: float) -> str:
    """Returns a log line that says what the server is waiting for."""
    calling = self._num_calling()
    waits_for = self._waits_for if calling else 'actors, which do not call'
    return (f'inference: no unroll for {seconds:.0f} s, with weights of learner step '
            f'{self._target_step} from the server at {self._address}: {calling} '
            f'actors call, and it waits for {waits_for or "actors"}')

  def _num_calling(self) -> int:
    return sum(not self._is_silent(index) for index in list(self._actors))

  def _take_weights(self, channel: connection.Weights) -> None:
    """Takes newer weights if there are any, unless the oldest here still act."""
    if time.monotonic() < self._next_look:
      return
    self._next_look = time.monotonic() + (
        _WAITED_SECONDS if self._waits_for == unroll_stream.WEIGHTS else _WEIGHTS_SECONDS)
    version = (self._loaded + 1) % _VERSIONS
    for index, one in self._actors.items():
      if (one.is_open and one.loaded % _VERSIONS == version
          and not one.stream.writer.starts_unroll):
        if not self._is_silent(index):
          return
        one.is_open = False
        self._counts['unrolls_given_up'] += 1
        logging.warning('inference: actor %d has not called for %.0f s and loses its '
                        'unroll', index, time.monotonic() - one.heard)
    step = channel.receive()
    if step is not None:
      self._policy.load(version, self._variables)
      self._loaded += 1
      self._target_step = step
    self._finished = channel.finished

  def _waiting(self) -> List[_Actor]:
    return [one for one in self._actors.values() if one.seen is not None]

  def _collect(self) -> None:
    """Takes the calls that have come. If there are none, it waits a little for one."""
    seconds = _WAITED_SECONDS if self._waiting() else _WEIGHTS_SECONDS
    with contextlib.suppress(queue.Empty):
      self._take(*self._calls.get(timeout=seconds))
      end = time.monotonic() + self._max_wait
      while len(self._waiting()) < min(self._most, self._max_actors):
        self._take(*self._calls.get(timeout=max(0, end - time.monotonic())))

  def _take(self, index: int, connected: socket.socket, buffer: bytearray) -> None:
    """Takes the time steps of an actor."""
    if self._claims[index] is not connected:
      return  # Another process has taken its place.
    if index not in self._actors:
      num = self._experiment.environments_per_actor
      self._actors[index] = _Actor(
          len(self._actors) * num + np.arange(num), unroll_stream.UnrollStream(
              self._experiment, self._replay.writer(index),
              self._experiment.tasks_of(num, index * num)))
    one = self._actors[index]
    if one.connected is not connected:
      one.connected, one.is_open = connected, False
    one.seen = tree.unflatten_as(self._seen_spec, mapped.arrays(buffer, self._question))
    one.heard = time.monotonic()

  def _act(self) -> bool:
    """Acts for all that need not wait; returns whether an unroll is complete."""
    ready, complete = [one for one in self._waiting() if not self._blocked(one)], False
    for version in range(_VERSIONS):
      ones = [one for one in ready if one.loaded % _VERSIONS == version]
      for i in range(0, len(ones), self._most):
        complete |= self._step(version, ones[i:i + self._most])
    if self._lost is not None:
      error, self._lost = self._lost, None
      raise error
    return complete

  def _blocked(self, one: _Actor) -> str:
    """Takes newer weights, and returns what to wait for before an actor's next unroll."""
    self._waits_for = '' if self._loaded else _NO_WEIGHTS
    if self._loaded and not one.is_open:
      one.stream.open()
      one.is_open = True
    if self._loaded and one.stream.writer.starts_unroll:
      in_queue = one.stream.writer.wait(_QUEUE_MS)
      if one.loaded != self._loaded:
        one.loaded = self._loaded
        one.stream.took_weights(self._target_step)
        if self._experiment.memory_length:
          self._policy.refresh(one.loaded % _VERSIONS, one.rows, *one.stream.memory())
      self._waits_for = one.stream.blocked(one.seen, in_queue)
    return self._waits_for

  def _step(self, version: int, ones: List[_Actor]) -> bool:
    """Steps the policy for some actors; returns whether an unroll is complete."""
    seen = tree.map_structure(lambda *x: np.concatenate(x), *(one.seen for one in ones))
    answer = self._policy.step(version, np.concatenate([one.rows for one in ones]),
                               dm_env.TimeStep(*(getattr(seen, name)
                                                 for name in dm_env.TimeStep._fields)))
    num, complete = self._experiment.environments_per_actor, 0
    for i, one in enumerate(ones):
      actions, sample, info = tree.map_structure(
          lambda x, i=i: x[i * num:(i + 1) * num], answer)
      try:
        complete += one.stream.writer.append(
            one.stream.row(one.seen, sample, info.policy, info.record))
      except server_lost.ServerLost as error:
        self._lost = error  # The others must get their answers.
      self._counts['calls'] += 1
      self._counts['call_seconds'] += time.monotonic() - one.heard
      self._send(one, False, tree.flatten(actions))
    self._counts['unrolls'] += complete
    self._counts['environment_steps'] += complete * self._experiment.unroll_length * num
    if complete:
      self._watchdog.progress()
    return bool(complete)

  def _send(self, one: _Actor, finished: bool, actions: List[np.ndarray]) -> None:
    """Answers an actor's call."""
    buffer = bytearray(mapped.size(self._answer))
    for array, x in zip(mapped.arrays(buffer, self._answer), [finished, *actions]):
      array[:] = x
    one.seen, one.heard = None, time.monotonic()
    with contextlib.suppress(OSError):  # The thread that receives finds it, too.
      one.connected.sendall(buffer)

  def _farewell(self) -> None:
    """Waits until the queue has the last unrolls.

    If the run is over, it waits until all actors that there may be are told: a server
    that was restarted has not heard from all of them yet.
    """
    end = time.monotonic() + (_TELL_SECONDS if self._finished else _FAREWELL_SECONDS)
    told: Set[int] = set()
    while (self._finished and len(told) < self._max_actors and time.monotonic() < end
           and not self._should_stop()):
      self._collect()
      for index, one in self._actors.items():
        if one.seen is not None:
          self._send(one, True, [])
          told.add(index)
    with contextlib.suppress(server_lost.ServerLost):  # The unrolls are lost with it.
      for one in self._actors.values():
        while (one.is_open and not self._finished and time.monotonic() < end
               and not one.stream.writer.wait(100)):
          pass
        one.stream.writer.close()

  def _show(self) -> None:
    """Shows the gauges once a second, as means since the last time."""
    then, before = self._shown
    elapsed = time.monotonic() - then
    if elapsed < _SHOW_SECONDS or not self._gauges.listens:
      return
    counts = {**self._counts, **self._policy.counts}
    new = {name: counts[name] - before[name] for name in counts}
    self._gauges.show({
        **{name: counts[name]
           for name in ('environment_steps', 'unrolls', 'unrolls_given_up',
                        'reconnections')},
        'actors': self._num_calling(), 'queue': len(self._waiting()),
        'target_step': self._target_step,
        'batch_size': new['rows'] / (new['batches'] or math.nan),
        'occupancy': new['seconds'] / elapsed,
        'wait_seconds': new['call_seconds'] / (new['calls'] or math.nan)})
    self._shown = time.monotonic(), counts


def _end(connected: Optional[socket.socket]) -> None:
  """Ends a connection, and with it the thread that receives."""
  if connected is not None:
    with contextlib.suppress(OSError):
      connected.shutdown(socket.SHUT_RDWR)


class LocalInference:
  """Runs an `InferenceServer` in a thread of a learner's process; use it as a context."""

  def __init__(self, experiment: experiment_lib.OnlineExperiment,
               process: trainer.Process):
    """Makes the policy of the server that `process.inference` asks for."""
    self._ended = threading.Event()
    self._should_stop = process.should_stop
    where = process.inference
    # The number of this start is the time in ns: this process knows no earlier start.
    self._server = InferenceServer(
        experiment, process.server, where.port, self._ended.is_set, time.time_ns(),
        process.gauges.of_part('inference'), where.host, where.device)
    self._error: Optional[Exception] = None
    self._thread = threading.Thread(target=self._run, daemon=True)

  def _run(self) -> None:
    try:
      self._server.run()
    except Exception as error:  # pylint: disable=broad-exception-caught
      self._error = error

  def check(self) -> None:
    """Raises the error that has ended the server, if one has."""
    if self._error is not None:
      raise self._error

  def __enter__(self) -> 'LocalInference':
    self._thread.start()
    return self

  def join(self) -> None:
    """Waits until the server has told its actors that the run is over."""
    end = time.monotonic() + _TELL_SECONDS
    while self._thread.is_alive() and time.monotonic() < end and not self._should_stop():
      self._thread.join(0.1)

  def __exit__(self, *_) -> None:
    self._ended.set()
    self._thread.join()
