"""An environment host: steps environments for which an inference server acts."""

import contextlib
import random
import socket
import time
from typing import Any, Callable, List, Optional, Sequence, Tuple

from absl import logging
import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf import environments
from gtrxl_tf import nests
from gtrxl_tf.replay import server_lost
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences
from gtrxl_tf.settings import seeds
from gtrxl_tf.training import gauges as gauges_lib
from gtrxl_tf.training import watchdog
from gtrxl_tf.training.online import actor
from gtrxl_tf.training.online import agreement
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import inference_call
from gtrxl_tf.training.online import reconnect

# A call waits this long for its answer. The server answers as soon as the policy has
# acted, or at once if the actor must wait, and the same call may be made again.
_CALL_MS = 30_000
_CONNECT_MS = 2_000
_MAX_WAIT = 4.0  # Seconds, until another attempt to connect.
# A server that was never there is no cause for a warning for this long: it is started
# at the same time, and compiles before it listens.
_COMPILES = 60.0
# How long actors that must wait pause between calls: longer each time.
_PAUSES = 0.001, 0.05

# The errors of a call to a server that is gone, and their codes.
_LOST = (tf.errors.AbortedError, tf.errors.CancelledError,
         tf.errors.DeadlineExceededError, tf.errors.UnavailableError)
_LOST_CODES = (tf.errors.ABORTED, tf.errors.CANCELLED, tf.errors.DEADLINE_EXCEEDED,
               tf.errors.UNAVAILABLE)


def _values(calls: List[Any]) -> List[np.ndarray]:
  """Waits for the answer to a call, which it removes from a list of one.

  Once the list is empty, nothing but this function has the call, and it is deleted here.
  If an error kept it until garbage is collected while a function is traced, TensorFlow
  would make its deletion an operation of that function.
  """
  call, values = calls.pop(), []
  try:
    code, message = (x.numpy() for x in call.get_error())
    if code:
      line = config.one_line(Exception(message.decode()))
      if int(code) in _LOST_CODES:
        raise server_lost.ServerLost(line)
      raise actor.ActingFailed(f'the inference server failed: {line}')
    values = call.get_value()
    return [x.numpy() for x in values]
  finally:
    nests.free_attributes([*values, *vars(call).values()])
    del call


class _Actor:
  """A batch of environments, and the call that is made for it."""

  def __init__(self, experiment: experiment_lib.OnlineExperiment, index: int, start: int):
    self.index = index
    num = experiment.environments_per_actor
    self._environment = experiment.make_environments(
        num, seeds.Stream.ACTING, index, start, first=index * num)
    self._random = np.random.default_rng([experiment.seed, 2 + index, start])
    self._most = experiment.max_head_start
    self._action_spec = inference_call.action_spec(experiment)
    self._specs = [tf.TensorSpec([], tf.string), *tf.nest.flatten(self._action_spec)]
    self._call: Optional[Any] = None
    self._arguments: List[tf.Tensor] = []
    self.reset()

  def reset(self) -> None:
    """Begins a session, with new episodes in all environments."""
    self._session = random.getrandbits(62)
    self._number = 0
    self._seen = self._environment.reset(self._random.integers(
        self._most, size=self._environment.num_environments, endpoint=True))

  def step(self, actions: Sequence[np.ndarray]) -> None:
    """Steps the environments."""
    self._seen = self._environment.step(
        tree.unflatten_as(self._action_spec, actions))
    self._number += 1

  def call(self, client: Any) -> None:
    """Makes a call, whose answer `answer` waits for."""
    numbers = np.array([self.index, self._session, self._number])
    self._arguments = [tf.constant(x) for x in (numbers, *tree.flatten(self._seen))]
    self._call = client.call(
        inference_call.ACT, self._arguments, self._specs, _CALL_MS)

  def answer(self) -> Tuple[bytes, List[np.ndarray]]:
    """Returns what the answer says, and the actions.

    Raises:
      ServerLost: there is no answer.
      actor.ActingFailed: the server cannot answer.
    """
    call = [self._call]
    self._call = None
    try:
      says, *actions = _values(call)
      return says, actions
    finally:
      nests.free_attributes(self._arguments)

  def finish(self) -> None:
    """Waits for the answer to a call that was made."""
    if self._call is not None:
      with contextlib.suppress(server_lost.ServerLost, actor.ActingFailed):
        self.answer()

  def close(self) -> None:
    """Closes the environments."""
    self._environment.close()


class EnvironmentHost:
  """Steps the environments of several actors, for which an inference server acts.

  While the call of one actor is answered, the host steps the environments of the next.
  It makes no network and takes no weights. An environment that is slower than the
  network has a core for itself if each process has one actor.

  If the server is lost, the actors make the same calls again until it answers. After a
  short fault of the network their episodes go on. A new server knows nothing of them:
  they then begin new episodes, and the rest of the earlier ones is in no unroll.
  """

  def __init__(self, experiment: experiment_lib.OnlineExperiment, address: str,
               indices: Sequence[int], should_stop: Callable[[], bool], start: int = 0,
               gauges: Optional[gauges_lib.Gauges] = None):
    """Makes the environments, and begins their first episodes.

    Args:
      experiment: the experiment of the run.
      address: the inference server's address.
      indices: the actors' indices.
      should_stop: called before every step and while waiting.
      start: the number of this start; with the run's seed it decides the episodes.
      gauges: shows the counts to Prometheus.
    """
    inference_call.check_size(experiment)
    self._experiment = experiment
    self._address = address
    self._should_stop = should_stop
    self._actors = [_Actor(experiment, index, start) for index in indices]
    self._finished = False
    self._gauges = gauges or gauges_lib.Gauges('actor')
    self._counts = dict(environment_steps=0, resets=0, reconnections=-1)
    self._watchdog = watchdog.Watchdog(experiment.stall_seconds, self._describe)
    self._watchdog.waits_for = 'its environments'

  def run(self) -> None:
    """Steps environments until told to stop or the run is over.

    Raises:
      actor.ActingFailed: an environment failed, or the server cannot act in it.
    """
    try:
      with self._watchdog:
        self._play_until_ended()
    finally:
      for one in self._actors:
        one.close()

  def _play_until_ended(self) -> None:
    began = time.monotonic()
    backoff = reconnect.Backoff(
        'actor', self._address, self._ended, 'inference server', _MAX_WAIT)
    while not self._ended():
      try:
        with self._watchdog.waiting_for('the inference server, to connect'):
          client = self._connect()
        self._play(client, backoff)
      except server_lost.ServerLost as error:
        client = None  # This ends its connection too, see `_connect`.
        with self._watchdog.waiting_for('the inference server, which does not answer'):
          if self._counts['reconnections'] < 0 and time.monotonic() - began < _COMPILES:
            time.sleep(_PAUSES[1])
          else:
            backoff.wait(error)
      except environments.EnvironmentFailed as error:
        raise actor.ActingFailed(config.one_line(error)) from error

  def _ended(self) -> bool:
    self._watchdog.alive()
    return self._finished or self._should_stop()

  def _describe(self, seconds: float) -> str:
    """Returns a log line that says what the host is waiting for."""
    return (f'actor: no step for {seconds:.0f} s, with the inference server at '
            f'{self._address}: it waits for {self._watchdog.waits_for}')

  def _connect(self) -> Any:
    """Returns a client of the server, after a check that it has the same settings."""
    host, _, port = self._address.rpartition(':')
    try:
      # TensorFlow keeps the connection of a client that finds no server. Later clients
      # share it, and gRPC tries it more and more rarely.
      socket.create_connection(
          (host.strip('[]'), int(port)), _CONNECT_MS / 1000).close()
    except OSError as error:
      raise server_lost.ServerLost(error.strerror or str(error)) from error
    try:
      client = tf.distribute.experimental.rpc.Client.create(
          'grpc', self._address, f'{self._address} {random.getrandbits(62)}',
          _CONNECT_MS)
      text, = _values([client.call(
          inference_call.SETTINGS, [], [tf.TensorSpec([], tf.string)], _CALL_MS)])
    except _LOST as error:
      raise server_lost.ServerLost(config.one_line(error)) from error
    except tf.errors.OpError as error:
      raise config.ConfigError(
          f'no inference server, but something else answers at {self._address}: '
          f'{config.one_line(error)}') from error
    theirs = differences.from_json(text.decode())
    ours = self._experiment.settings
    if ours is not None and theirs:
      agreement.compare(f'the inference server at {self._address}', ours, theirs)
    self._counts['reconnections'] += 1
    return client

  def _play(self, client: Any, backoff: reconnect.Backoff) -> None:
    """Plays with a server until it is lost, or until the end.

    No call is left without an answer: TensorFlow crashes if a client is deleted before.
    """
    try:
      self._play_on(client, backoff)
    finally:
      for one in self._actors:
        one.finish()

  def _play_on(self, client: Any, backoff: reconnect.Backoff) -> None:
    for one in self._actors:
      one.call(client)
    pause = _PAUSES[0]
    playing = list(self._actors)
    while playing and not self._should_stop():
      self._watchdog.alive()
      stepped = False
      for one in list(playing):
        says, actions = one.answer()
        if says == inference_call.ACTED:
          self._step(one, actions)
          stepped = True
        elif says == inference_call.RESET:
          logging.info('actor %d: the inference server is another one: new episodes',
                       one.index)
          one.reset()
          self._counts['resets'] += 1
        elif says == inference_call.FINISHED:
          self._finished = True
          playing.remove(one)  # The server waits until it has told the others, too.
          continue
        elif says.startswith(inference_call.REFUSED):
          raise config.ConfigError(
              says.removeprefix(inference_call.REFUSED).decode())
        else:
          self._watchdog.waits_for = says.decode()
        one.call(client)
      if stepped:
        pause = _PAUSES[0]
        backoff.reset()
      else:
        time.sleep(pause)
        pause = min(2 * pause, _PAUSES[1])

  def _step(self, one: _Actor, actions: Sequence[np.ndarray]) -> None:
    self._watchdog.waits_for = 'its environments'
    one.step(actions)
    self._watchdog.waits_for = 'the inference server'
    self._watchdog.progress()
    self._counts['environment_steps'] += self._experiment.environments_per_actor
    self._gauges.show(self._counts)
