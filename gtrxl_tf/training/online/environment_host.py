"""An environment host: steps environments for which an inference server acts."""

import json
import select
import socket
import time
from typing import Any, Callable, List, Optional, Sequence

import numpy as np
import tree

from gtrxl_tf import environments
from gtrxl_tf.replay import mapped
from gtrxl_tf.replay import reverb_replay
from gtrxl_tf.replay import server_lost
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences
from gtrxl_tf.settings import seeds
from gtrxl_tf.training import gauges as gauges_lib
from gtrxl_tf.training import watchdog
from gtrxl_tf.training.online import actor
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import inference_call
from gtrxl_tf.training.online import reconnect

_CONNECT_SECONDS = 10.0
_MAX_WAIT = 4.0  # Seconds, until another attempt to connect.
# There is no warning in the first seconds: the server is started at the same time, and
# compiles before it listens.
_COMPILES = 60.0
_LOOK_SECONDS = 0.5  # Between two looks whether to stop, while no answer comes.


class _Actor:
  """A batch of environments, and its connection to the server."""

  def __init__(self, experiment: experiment_lib.OnlineExperiment, index: int, start: int):
    self._index = index
    num = experiment.environments_per_actor
    self._environment = experiment.make_environments(
        num, seeds.Stream.ACTING, index, start, first=index * num)
    self._random = np.random.default_rng([experiment.seed, 2 + index, start])
    self._most = experiment.max_head_start
    self._action_spec = inference_call.action_spec(experiment)
    self._question, self._answer = (
        inference_call.question(experiment), inference_call.answer(experiment))
    self._socket: Optional[socket.socket] = None

  def connect(self, address: str, settings: Optional[differences.Settings]) -> None:
    """Connects to the server, and begins new episodes in all environments."""
    host, _, port = address.rpartition(':')
    self._socket = socket.create_connection((host.strip('[]'), int(port)),
                                            _CONNECT_SECONDS)
    self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    self._socket.sendall(inference_call.HELLO.pack(
        inference_call.MAGIC, self._index, *map(
            mapped.size, (self._question, self._answer))))
    magic, length = inference_call.LENGTH.unpack(
        inference_call.receive(self._socket, inference_call.LENGTH.size))
    if magic != inference_call.MAGIC:
      raise config.ConfigError(
          f'no inference server, but something else answers at {address}: {magic}')
    told = json.loads(inference_call.receive(self._socket, length))
    if settings is not None and told['settings']:
      reverb_replay.compare(f'the inference server at {address}', settings,
                            differences.from_json(told['settings']))
    if told['refused']:
      raise config.ConfigError(told['refused'])
    if told['busy']:
      raise server_lost.ServerLost(told['busy'])
    self._seen = self._environment.reset(self._random.integers(
        self._most, size=self._environment.num_environments, endpoint=True))

  def fileno(self) -> int:
    """Returns what `select` waits for."""
    return self._socket.fileno()

  def send(self) -> None:
    """Sends the time steps."""
    buffer = bytearray(mapped.size(self._question))
    arrays = mapped.arrays(buffer, self._question)
    for array, leaf in zip(arrays, tree.flatten(self._seen)):
      array[:] = leaf
    self._socket.sendall(buffer)

  def step(self) -> bool:
    """Steps the environments by the server's answer; returns whether the run is over."""
    buffer = inference_call.receive(self._socket, mapped.size(self._answer))
    (over,), *actions = mapped.arrays(buffer, self._answer)
    if not over:
      self._seen = self._environment.step(tree.unflatten_as(self._action_spec, actions))
    return bool(over)

  def disconnect(self) -> None:
    """Ends the connection."""
    if self._socket is not None:
      self._socket.close()

  def close(self) -> None:
    """Ends the connection, and closes the environments."""
    self.disconnect()
    self._environment.close()


class EnvironmentHost:
  """Steps the environments of several actors, for which an inference server acts.

  While one actor waits for its answer, the host steps the environments of the next. It
  makes no network and takes no weights. An environment that is slower than the network
  has a core for itself if each process has one actor.

  If the server is lost, the host connects again. The actors then begin new episodes, and
  the rest of the earlier ones is in no unroll.
  """

  def __init__(self, experiment: experiment_lib.OnlineExperiment, address: str,
               indices: Sequence[int], should_stop: Callable[[], bool], start: int = 0,
               gauges: Optional[gauges_lib.Gauges] = None):
    """Makes the environments.

    Args:
      experiment: the experiment of the run.
      address: the inference server's address.
      indices: the actors' indices.
      should_stop: called before every step and while waiting.
      start: the number of this start; with the run's seed it decides the episodes.
      gauges: shows the counts to Prometheus.
    """
    self._experiment = experiment
    self._address = address
    self._should_stop = should_stop
    self._actors = [_Actor(experiment, index, start) for index in indices]
    self._finished = False
    self._gauges = gauges or gauges_lib.Gauges('actor')
    self._counts = dict(environment_steps=0, reconnections=-1)
    self._watchdog = watchdog.Watchdog(experiment.stall_seconds, self._describe)
    self._watchdog.waits_for = 'its environments'

  def run(self) -> None:
    """Steps environments until told to stop or the run is over.

    Raises:
      actor.ActingFailed: an environment failed.
    """
    try:
      with self._watchdog:
        self._play_until_ended()
    except environments.EnvironmentFailed as error:
      raise actor.ActingFailed(config.one_line(error)) from error
    finally:
      for one in self._actors:
        one.close()

  def _play_until_ended(self) -> None:
    began = time.monotonic()
    backoff = reconnect.Backoff(
        'actor', self._address, self._ended, 'inference server', _MAX_WAIT)
    while not self._ended():
      try:
        self._connect()
        self._play(backoff)
      except (server_lost.ServerLost, OSError) as error:
        for one in self._actors:
          one.disconnect()
        with self._watchdog.waiting_for('the inference server, which does not answer'):
          if self._counts['reconnections'] < 0 and time.monotonic() - began < _COMPILES:
            time.sleep(0.05)
          else:
            backoff.wait(error)

  def _ended(self) -> bool:
    self._watchdog.alive()
    return self._finished or self._should_stop()

  def _describe(self, seconds: float) -> str:
    """Returns a log line that says what the host is waiting for."""
    return (f'actor: no step for {seconds:.0f} s, with the inference server at '
            f'{self._address}: it waits for {self._watchdog.waits_for}')

  def _connect(self) -> None:
    with self._watchdog.waiting_for('the inference server, to connect'):
      for one in self._actors:
        one.connect(self._address, self._experiment.settings)
    self._counts['reconnections'] += 1

  def _play(self, backoff: reconnect.Backoff) -> None:
    """Plays with a server until it is lost, or until the end."""
    for one in self._actors:
      one.send()
    playing: List[Any] = list(self._actors)
    while playing and not self._should_stop():
      self._watchdog.alive()
      with self._watchdog.waiting_for('the inference server'):
        answered, _, _ = select.select(playing, [], [], _LOOK_SECONDS)
      for one in answered:
        if one.step():
          self._finished = True
          playing.remove(one)  # The server waits until it has told the others, too.
          continue
        one.send()
        backoff.reset()
        self._watchdog.progress()
        self._counts['environment_steps'] += self._experiment.environments_per_actor
        self._gauges.show(self._counts)
