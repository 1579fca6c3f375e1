"""An actor: plays with the newest weights, and writes unrolls to the queue."""

import time
from typing import Any, Callable, Optional

from absl import logging
import dm_env
import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf import environments
from gtrxl_tf import nests
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.replay import connection
from gtrxl_tf.replay import server_lost
from gtrxl_tf.settings import config
from gtrxl_tf.settings import seeds
from gtrxl_tf.training import gauges as gauges_lib
from gtrxl_tf.training import rollout
from gtrxl_tf.training import watchdog
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import reconnect
from gtrxl_tf.training.online import unroll_stream

_WAIT_MS = 500
# How long an actor that is told to stop waits until its last unrolls are in the queue.
_FLUSH_SECONDS = 5
# A single environment has a second row that is not used: XLA multiplies a matrix by two
# rows in half the time that it takes for one.
MIN_ROWS = 2


class ActingFailed(Exception):
  """An environment failed, or the policy cannot act in it. The message is one line."""


def make_rollout(policy: policy_lib.ActorCriticPolicy,
                 environment: environments.BatchedEnvironment, seed: tf.Tensor,
                 head_starts: Optional[np.ndarray] = None) -> rollout.Rollout:
  """Makes an actor's rollout, compiled with XLA.

  Its state is the policy's state and the seed of the next step. The info of a step is
  the action before clipping, which is the sample that the learner scores, and the
  policy's info.

  Args:
    policy: the policy that acts.
    environment: E environments.
    seed: the seed of the first step, [2]. Its second number counts the steps.
    head_starts: see `BatchedEnvironment.reset`.
  """
  num = environment.num_environments

  def action(time_step: dm_env.TimeStep, state: Any) -> policy_lib.PolicyStep:
    state, seed = state
    policy_step = policy.unmoved_action(_padded(time_step), state, seed=seed)
    action, sample, info = tf.nest.map_structure(
        lambda x: x[:num],
        (policy_step.action, policy_step.state.previous_action, policy_step.info))
    return policy_lib.PolicyStep(
        action, (policy_step.state, seed + [0, 1]), (sample, info))

  return rollout.Rollout(
      environment, action,
      (policy.get_initial_state(max(num, MIN_ROWS)), seed), head_starts,
      rollout.XLAStep(
          policy.variables, lambda state: policy.must_move(state[0]),
          lambda state: (policy.move(state[0]), state[1])))


def _padded(rows: Any) -> Any:
  """Repeats the last row of a nest of `[E, ...]`, to at least `MIN_ROWS` rows."""
  def pad(x):
    missing = max(0, MIN_ROWS - x.shape[0])
    return tf.concat([x, tf.repeat(x[-1:], missing, axis=0)], axis=0) if missing else x
  return tf.nest.map_structure(pad, rows)


class Actor:
  """Acts in a batch of environments and writes unrolls.

  When it takes newer weights, between two unrolls, it rebuilds the policy's cache: keys
  of old weights are stale, and the learner does not have them. `UnrollStream` says when
  it waits.
  """

  def __init__(self, experiment: experiment_lib.OnlineExperiment,
               replay: connection.Connection, index: int,
               should_stop: Callable[[], bool], start: int = 0,
               gauges: Optional[gauges_lib.Gauges] = None):
    """Creates the actor.

    Args:
      experiment: the experiment of the run.
      replay: where unrolls go and weights come from.
      index: the actor's index, from 0.
      should_stop: called after every unroll and while waiting.
      start: the number of this start, which no earlier start of this actor in the same
        run had. With the run's seed it decides episodes, head starts and noise.
      gauges: shows the actor's counts to Prometheus.
    """
    self._experiment = experiment
    self._replay = replay
    self._channel: Optional[connection.Weights] = None
    self._should_stop = should_stop
    self._network = experiment.acting_network
    self._policy = experiment.make_policy(self._network, with_record=True, actor=index)
    num = experiment.environments_per_actor
    self._environment = experiment.make_environments(
        num, seeds.Stream.ACTING, index, start, first=index * num)
    stream = [2 + index, start]
    # Its own generator, because compiled code does not use `tf.random.set_seed`.
    random = tf.random.Generator.from_seed([experiment.seed, *stream], alg='philox')
    self._refresh = tf.function(self._refreshed, autograph=False)
    head_starts = np.random.default_rng([experiment.seed, *stream]).integers(
        experiment.max_head_start, size=num, endpoint=True)
    self._rollout = make_rollout(
        self._policy, self._environment,
        tf.cast(random.make_seeds()[:, 0], tf.int32), head_starts)
    self._stream = unroll_stream.UnrollStream(
        experiment, replay.writer(index), self._environment.tasks)
    self._writer = self._stream.writer
    self._target_step = 0
    self._finished = False
    self._gauges = gauges or gauges_lib.Gauges('actor')
    self._counts = dict(environment_steps=0, unrolls=0, reconnections=-1)
    self._watchdog = watchdog.Watchdog(experiment.stall_seconds, self._describe)
    self._watchdog.waits_for = 'its environments'

  def _refreshed(self, records: Any, step_types: tf.Tensor) -> None:
    """Rebuilds the cache in the policy's state from rows, `[E, M, ...]`."""
    state, seed = self._rollout.policy_state
    records, step_types = _padded((records, step_types))
    self._rollout.policy_state = self._policy.refreshed(
        state, records, step_types == int(dm_env.StepType.FIRST)), seed

  def run(self) -> None:
    """Acts until told to stop or the run is over; reconnects to a lost server.

    Raises:
      ActingFailed: an environment failed, or the policy cannot act in it.
    """
    try:
      self._warm_up()
      with self._watchdog:
        self._act_until_ended()
      self._flush()
      self._writer.close()
    finally:
      self.close()

  def _act_until_ended(self) -> None:
    backoff = reconnect.Backoff('actor', self._replay.address, self._ended)
    while not self._ended():
      try:
        self._connect()
        while not self._ended():
          self._unroll()
          self._watchdog.progress()
          backoff.reset()
      except server_lost.ServerLost as error:
        with self._watchdog.waiting_for('the server, which does not answer'):
          backoff.wait(error)

  def _ended(self) -> bool:
    self._watchdog.alive()
    return self._finished or self._should_stop()

  def _describe(self, seconds: float) -> str:
    """Returns a log line that says what the actor is waiting for."""
    return (f'actor: no unroll for {seconds:.0f} s, with weights of learner step '
            f'{self._target_step} from {self._replay.name}: it waits for '
            f'{self._watchdog.waits_for}')

  def _flush(self) -> None:
    """Waits a little until the written items are in the queue."""
    deadline = time.monotonic() + _FLUSH_SECONDS
    try:
      while not self._finished and time.monotonic() < deadline and self._writer.is_open:
        if self._writer.wait(_WAIT_MS):
          break
    except server_lost.ServerLost:
      pass  # The unrolls are lost with the server.

  def _connect(self) -> None:
    with self._watchdog.waiting_for('the server, to connect'):
      self._replay.check(self._experiment.settings)
      self._channel = self._replay.weights(self._network.variables)
    waiting = time.monotonic()
    with self._watchdog.waiting_for('a learner, which has published no weights'):
      while self._receive() is None and not self._ended():
        if time.monotonic() - waiting > 10:
          logging.info('actor: %s has no weights yet; waiting for a learner',
                       self._replay.name)
          waiting = time.monotonic()
        time.sleep(0.1)
    with self._watchdog.waiting_for('the server, to connect'):
      self._stream.open()
    self._show(reconnections=1)

  def _show(self, **more: int) -> None:
    """Adds to the counts and shows them."""
    for name, count in more.items():
      self._counts[name] += count
    self._gauges.show({**self._counts, 'target_step': self._target_step})

  def _receive(self) -> Optional[int]:
    """Takes new weights if there are any; returns their learner step."""
    step = self._channel.receive()
    self._finished = self._channel.finished
    if step is not None:
      self._target_step = step
      self._stream.took_weights(step)
      self._rollout.read_variables()
      self._refresh_cache()
    return step

  def _refresh_cache(self) -> None:
    """Rebuilds the policy's cache with the weights that it has now."""
    if self._experiment.memory_length:
      records, step_types = tree.map_structure(tf.constant, self._stream.memory())
      self._refresh(records, step_types)
      nests.free_attributes([*tree.flatten(records), step_types])

  def _warm_up(self) -> None:
    """Compiles while the learner is being built, rather than when weights come."""
    try:
      self._rollout.warm_up()
      self._refresh_cache()
    except ValueError as error:
      raise ActingFailed(config.one_line(error)) from error

  def act(self) -> None:
    """Acts once, unless the learner's turn comes first.

    It is for an actor in the learner's process, which does not call `run`.
    """
    if self._channel is None:
      self._warm_up()
      self._connect()
    if not (self._writer.starts_unroll and self._blocked(0)):
      self._step()

  def close(self) -> None:
    """Closes the environments."""
    self._environment.close()

  def _step(self) -> bool:
    """Acts once in each environment; returns whether an unroll is complete."""
    try:
      seen, policy_step = self._rollout.step()
    except ValueError as error:
      raise ActingFailed(config.one_line(error)) from error
    action, (policy, record) = policy_step.info
    return self._writer.append(self._stream.row(seen, action, policy, record))

  def _unroll(self) -> None:
    """Acts until an unroll is complete; says how far the first is, if it takes long."""
    experiment, rows, complete = self._experiment, 0, False
    num, began, next_line = experiment.environments_per_actor, time.monotonic(), 30
    while not complete:
      if self._writer.starts_unroll:
        self._wait()
      self._watchdog.alive()
      complete = self._step()
      rows, seconds = rows + 1, time.monotonic() - began
      if seconds > next_line and not self._counts['unrolls']:
        next_line *= 2
        logging.warning(
            'actor: %s of %s observations of its first unrolls, %.1f a second', *(
                f'{x * num:,}' for x in (rows, experiment.unroll_length + 1)),
            rows * num / seconds)
    new = experiment.unroll_length - experiment.overlap
    self._show(unrolls=1, environment_steps=new * num)

  def _blocked(self, wait_ms: int) -> str:
    """Takes newer weights, and returns what to wait for before the next unroll."""
    in_queue = self._writer.wait(wait_ms)
    self._receive()
    return self._stream.blocked(self._rollout.seen, in_queue)

  def _wait(self) -> None:
    """Waits until the next unroll may begin, and takes newer weights."""
    began = time.monotonic()
    blocked = 'the server, to send weights'
    while blocked and not self._ended():
      with self._watchdog.waiting_for(blocked):
        blocked = self._blocked(_WAIT_MS)
        if blocked == unroll_stream.WEIGHTS:
          self._channel.wait(time.monotonic() - began)
