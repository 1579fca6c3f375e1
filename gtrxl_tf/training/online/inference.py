"""An inference server: acts for the environments of many other processes."""

import math
import time
from typing import Any, Callable, List, Optional, Tuple

from absl import logging
import dm_env
import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf import machine
from gtrxl_tf.replay import connection
from gtrxl_tf.replay import server as server_lib
from gtrxl_tf.replay import server_lost
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences
from gtrxl_tf.training import devices
from gtrxl_tf.training import gauges as gauges_lib
from gtrxl_tf.training import watchdog
from gtrxl_tf.training.online import actor
from gtrxl_tf.training.online import agreement
from gtrxl_tf.training.online import batched_policy
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import inference_actors
from gtrxl_tf.training.online import inference_call
from gtrxl_tf.training.online import placement
from gtrxl_tf.training.online import reconnect
from gtrxl_tf.training.online import unroll_stream

# A server that is told to stop waits this long until its unrolls are in the queue.
_FAREWELL_SECONDS = 5.0
# A server whose run is over waits this long until all actors know. They may be in a
# step of their environments, or about to connect again.
TELL_SECONDS = 60.0
_SHOW_SECONDS = 1.0
_WEIGHTS_SECONDS = 0.05  # The time between two looks for newer weights.
_WAITED_SECONDS = 0.002  # The same, while actors wait for them.


class InferenceServer:
  """Acts for environments that other processes step, and writes their unrolls.

  Each actor, a batch of E environments, calls with its time steps. The policy steps the
  environments of several actors in one batch. Their caches are here, and so are the
  writers of their unrolls: records of memory do not cross the network.

  An unroll has a single policy, as with actors that act themselves: the weights before
  the newest are kept for unrolls that began with them. Still newer ones are taken when
  all of these unrolls are complete. An actor that stops calling loses its unroll.

  A call never waits for the learner. If the actor must wait, the answer says for what.
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
    most = settings.actors_per_server(experiment.num_actors)
    noise = np.random.SeedSequence([experiment.seed, 1, start])
    with tf.device(device):
      policies = [experiment.make_policy(experiment.make_network(), with_record=True)
                  for _ in range(inference_actors.VERSIONS)]
    self._policy = batched_policy.BatchedPolicy(
        policies, most * num, num, settings.max_batch, settings.max_wait_ms,
        noise.generate_state(len(policies)).view(np.int32).tolist(), device)
    self._seen_spec = inference_call.seen_spec(experiment)
    self._no_actions = [
        np.zeros([num, *spec.shape[1:]], spec.dtype.as_numpy_dtype)
        for spec in tf.nest.flatten(inference_call.action_spec(experiment))]
    self._actors = inference_actors.Actors(
        experiment, self._replay, most, self._no_actions)
    self._finished = False
    self._gauges = gauges or gauges_lib.Gauges('inference')
    self._shown = time.monotonic(), {**self._actors.counts, **self._policy.counts()}
    self._watchdog = watchdog.Watchdog(experiment.stall_seconds, self._describe)
    self._call = tf.function(
        self._answer, autograph=False, input_signature=[
            tf.TensorSpec([3], tf.int64), *tf.nest.flatten(self._seen_spec)])

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
    server = self._listen()
    with self._watchdog:
      self._serve_until_ended()
    self._actors.close(
        self._finished, TELL_SECONDS if self._finished else _FAREWELL_SECONDS,
        self._should_stop)
    del server  # It listens as long as it exists.

  def _listen(self) -> Any:
    """Returns an RPC server."""
    text = differences.to_json(self._experiment.settings or {})
    settings = tf.function(lambda: tf.constant(text), input_signature=[])
    address = machine.host_and_port(self._host, self._port)
    server = tf.distribute.experimental.rpc.Server.create('grpc', address)
    server.register(inference_call.ACT, self._call)
    server.register(inference_call.SETTINGS, settings)
    server.start()
    logging.info('inference: listening at %s, in batches of up to %d environments',
                 address, self._policy.batch_sizes[-1])
    return server

  def _serve_until_ended(self) -> None:
    backoff = reconnect.Backoff('inference', self._address, self._ended)
    actors = self._actors
    while not self._ended():
      try:
        channel = self._connect()
        unrolls = actors.counts['unrolls']
        while not self._ended():
          if actors.lost:
            raise server_lost.ServerLost(actors.lost)
          self._take_weights(channel)
          self._show()
          if actors.counts['unrolls'] > unrolls:
            backoff.reset()
          what, when = actors.blocked
          waited_for = what == unroll_stream.WEIGHTS and time.monotonic() - when < 1
          time.sleep(_WAITED_SECONDS if waited_for else _WEIGHTS_SECONDS)
      except server_lost.ServerLost as error:
        actors.disconnected()
        backoff.wait(error)

  def _ended(self) -> bool:
    if not self._actors.has_failed_calls():
      self._watchdog.alive()
    return self._finished or self._should_stop()

  def _describe(self, seconds: float) -> str:
    """Returns a log line that says what the server is waiting for."""
    calling = self._actors.gauges()['actors']
    waits_for = self._actors.blocked[0] if calling else 'actors, which do not call'
    return (f'inference: no unroll for {seconds:.0f} s, with weights of learner step '
            f'{self._actors.target_step} from the server at {self._address}: {calling} '
            f'actors call, and it waits for {waits_for}')

  def _connect(self) -> connection.Weights:
    agreement.check_server(self._replay, self._experiment.settings)
    self._actors.connected()
    return self._replay.weights(self._variables)

  def _take_weights(self, channel: connection.Weights) -> None:
    """Takes newer weights if there are any, unless the oldest here still act."""
    version = self._actors.free_version()
    step = None if version is None else channel.receive()
    if step is not None:
      self._policy.load(version, self._variables)
      self._actors.took_weights(step)
    self._finished = channel.finished

  def _answer(self, numbers: tf.Tensor, *leaves: tf.Tensor) -> List[tf.Tensor]:
    """Answers a call, in the graph."""
    num = self._experiment.environments_per_actor
    says, version, row, refreshes, *actions = tf.numpy_function(
        self._begin, [numbers, *leaves],
        [tf.string, tf.int32, tf.int32, tf.bool, *(x.dtype for x in self._no_actions)])
    says, version, row, refreshes = (
        tf.ensure_shape(x, []) for x in (says, version, row, refreshes))
    seen = tf.nest.pack_sequence_as(self._seen_spec, leaves)

    def act():
      rows = tf.range(row, row + num)  # The graph does not know its size.
      refreshed = tf.cond(
          refreshes, lambda: self._refresh(numbers, version, rows), tf.no_op)
      with tf.control_dependencies([refreshed]):
        answer = self._policy.act(version, rows, dm_env.TimeStep(
            seen.step_type, seen.reward, seen.discount, seen.observation))
      says = tf.numpy_function(self._end, [numbers, *answer], tf.string)
      return [tf.ensure_shape(says, []), *answer[:len(actions)]]

    return tf.cond(version < 0, lambda: [says, *actions], act)

  def _refresh(self, numbers: tf.Tensor, version: tf.Tensor, rows: tf.Tensor
               ) -> tf.Operation:
    """Rebuilds an actor's caches, in the graph."""
    length = self._experiment.memory_length
    if length:
      row = self._experiment.row_spec()
      specs = tf.nest.flatten((row.record, row.step_type))
      found = tf.numpy_function(
          lambda numbers: tree.flatten(self._actors[int(numbers[0])].stream.memory()),
          [numbers], [spec.dtype for spec in specs])
      self._policy.refresh(version, rows, *tf.nest.pack_sequence_as(
          (row.record, row.step_type),
          [tf.ensure_shape(x, [spec.shape[0], length, *spec.shape[1:]])
           for x, spec in zip(found, specs)]))
    return tf.no_op()

  def _begin(self, numbers: np.ndarray, *leaves: np.ndarray) -> Tuple:
    """Begins to answer a call."""
    one, says, actions = self._actors.claim(*map(int, numbers))
    if one is not None:
      acts = False
      try:
        # TensorFlow's memory is valid only during this call.
        blocked = self._actors.prepare(one, tree.unflatten_as(
            self._seen_spec, [np.array(x) for x in leaves]))
        acts = not blocked
      finally:
        if not acts:
          one.called = None
      if acts:
        refreshes, one.refreshes = one.refreshes, False
        return (b'', np.int32(one.version), np.int32(one.row), np.bool_(refreshes),
                *actions)
      says = blocked.encode()
    return says, np.int32(-1), np.int32(0), np.bool_(False), *actions

  def _end(self, numbers: np.ndarray, *leaves: np.ndarray) -> bytes:
    """Writes what the policy has done; returns what the answer says."""
    one = self._actors[int(numbers[0])]
    try:
      actions, sample, info = self._policy.unflatten([np.array(x) for x in leaves])
      if self._actors.write(
          one, tf.nest.flatten(actions), sample, info.policy, info.record):
        self._watchdog.progress()
    finally:
      one.called = None
    return inference_call.ACTED

  def _show(self) -> None:
    """Shows the gauges once a second, as means since the last time."""
    then, before = self._shown
    elapsed = time.monotonic() - then
    if elapsed < _SHOW_SECONDS or not self._gauges.listens:
      return
    counts = self._actors.counts
    now = {**counts, **self._policy.counts()}
    new = {name: now[name] - before[name] for name in now}
    self._gauges.show({
        **{name: counts[name]
           for name in ('environment_steps', 'unrolls', 'unrolls_given_up',
                        'reconnections')},
        **self._actors.gauges(), 'target_step': self._actors.target_step,
        'batch_size': new['rows'] / (new['batches'] or math.nan),
        'occupancy': new['seconds'] / elapsed,
        'wait_seconds': new['call_seconds'] / (new['calls'] or math.nan)})
    self._shown = time.monotonic(), now
