"""The trainer of online experiments: batches from a queue, weights for actors."""

import contextlib
import math
import time
from typing import Any, Collection, Dict, Iterator, Optional

from absl import logging
import numpy as np
import tensorflow as tf

from gtrxl_tf.replay import connection
from gtrxl_tf.replay import prioritized
from gtrxl_tf.replay import server_lost
from gtrxl_tf.replay import staleness
from gtrxl_tf.replay import unroll
from gtrxl_tf.settings import config
from gtrxl_tf.training import devices
from gtrxl_tf.training import evaluation
from gtrxl_tf.training import learner
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import tensorboard
from gtrxl_tf.training import trainer
from gtrxl_tf.training import watchdog
from gtrxl_tf.training.online import actor
from gtrxl_tf.training.online import evaluator
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import inference
from gtrxl_tf.training.online import reconnect

_FAREWELL_SECONDS = 120
_EPISODES = 50  # How many of each task an evaluation during training plays.


class OnlineTrainer(trainer.Trainer):
  """Trains an experiment's agent on unrolls from the queue.

  Besides what every trainer saves, a checkpoint holds the number of environment steps
  and the ledger of the unrolls that were trained on. A killed learner loses the steps
  since its last checkpoint; a killed server loses what waited in the queue.

  Several workers each take their share of a batch from the queue. The chief publishes
  weights. Workers synchronize when metrics are logged: they sum their environment steps
  and check whether one of them should stop, so that all end at the same step. Each
  worker has its own ledger, and a checkpoint has the ledgers of all workers, which
  exchange them when metrics are logged and before each checkpoint. If the chief stops
  while it waits for unrolls, it saves the other ledgers as of the last exchange.
  """
  _own_batches = True

  def __init__(self, experiment: experiment_lib.OnlineExperiment,
               process: trainer.Process):
    """Creates agent and learner, and restores the newest checkpoint if there is one.

    Args:
      experiment: what to train.
      process: where to train, with the address of the replay. Without one, the
        process also acts, in turns.
    """
    strategy = process.strategy
    rows = devices.rows_per_replica(
        experiment.batch_size, strategy, 'OnlineExperiment.batch_size')
    if rows % experiment.num_minibatches:
      raise config.ConfigError(
          f'OnlineExperiment.num_minibatches = {experiment.num_minibatches}: expected '
          f'a divisor of the {rows} unrolls of a replica')
    self._num_workers = num_workers = devices.num_workers(strategy)
    if experiment.items_per_batch % num_workers:
      raise config.ConfigError(
          'OnlineExperiment.batch_size / OnlineExperiment.environments_per_actor = '
          f'{experiment.items_per_batch}: expected a multiple of the {num_workers} '
          'workers that share it')
    self._meets = num_workers > 1
    for name in 'replay', 'batches_per_weights':
      # Workers cannot divide a replay table. With `batches_per_weights`, actors make no
      # more items than a batch needs, so that workers could not divide these either.
      if self._meets and getattr(experiment, name):
        raise config.ConfigError(
            f'{num_workers} workers: expected one with OnlineExperiment.{name}')
    with strategy.scope():
      # It follows from the environment steps, on which workers agree, and is therefore
      # in no checkpoint.
      self._progress = tf.Variable(0.0, trainable=False)
      agent = experiment.make_agent()
      optimizer = experiment.make_optimizer(self._progress)
    self._environment_steps = tf.Variable(0, dtype=tf.int64)
    self._ledger = staleness.Ledger(
        experiment.max_age(agent), len(experiment.task_names),
        worker=devices.worker_number(strategy), overlap=experiment.overlap)
    super().__init__(
        experiment, process, agent, optimizer,
        dict(ledger=self._ledger, environment_steps=self._environment_steps))
    self._stopping = False
    self._ledger.learner_step = self.step
    self._steps = self._steps_then = int(self._environment_steps)
    self._counted = self._ledger.environment_steps
    self._published_step = self.step - self.step % self._agent.publish_period
    self._replay = connection.connect(process.server, experiment.layout)
    self._channel = self._make_channel()
    self._refused_before = self._ledger.refused  # At the last learner step.
    self._unrolls_seen = 0
    self._watchdog = watchdog.Watchdog(experiment.stall_seconds, self._describe)
    self._queue = self._replay.queue(experiment.new_items // num_workers, self._ledger)
    self._table = None
    if experiment.replay:
      path = process.folder.replay / 'prioritized'
      if not self.step:  # It may be from an earlier run, or from other settings.
        path.unlink(missing_ok=True)
      self._table = prioritized.Table(
          path, experiment.replay, experiment.unroll_signature(),
          [experiment.seed, self.step])
    self._gauges.show_health(self._watchdog)
    self._idle = 0.0
    self._prepared = False  # True once the learner step has been traced.
    self._inference = process.inference and inference.LocalInference(
        experiment, process)
    self._num_evaluations = 0 if self._meets or experiment.evaluator else (
        experiment.num_evaluations)
    self._played = self._evaluations_due()
    self._playing: Optional[evaluation.Evaluator] = None  # Made when it is needed.
    self._actor = None
    if process.server is None:
      # An actor that plays in turns with the learner. A resumed run must not repeat the
      # episodes before.
      self._actor = actor.Actor(
          experiment, self._replay, 0, self._asked_to_stop, start=self.step)
      self._replay.act = self._actor.act

  def _has_ended(self) -> bool:
    return self._steps >= self._experiment.environment_steps

  def _alive_or_stop(self) -> bool:
    self._watchdog.alive()
    if self._ledger.unrolls != self._unrolls_seen:  # A step may need many of them.
      self._unrolls_seen = self._ledger.unrolls
      self._watchdog.progress()
    if self._inference:
      self._inference.check()
    return self._asked_to_stop()

  def _should_stop(self) -> bool:
    """Returns whether to stop; several workers stop together."""
    return self._stopping if self._meets else self._asked_to_stop()

  def run(self) -> bool:
    with self._inference or contextlib.nullcontext():
      ended = super().run()
      if ended and self._inference:
        self._inference.join()
      return ended

  def train(self) -> bool:
    with self._watchdog:
      try:
        return super().train()
      except config.ConfigError:  # A new server has other settings.
        self._save(last=True)
        raise
      finally:
        self._queue.close()
        for part in filter(None, (self._actor, self._table, self._playing)):
          part.close()

  def _batches(self) -> Iterator[Any]:
    """Yields batches; reconnects to a server that it has lost."""
    backoff = reconnect.Backoff('learner', self._replay.address, self._alive_or_stop)
    while not (self._should_stop() or self._has_ended()):
      try:
        self._connect()
        while not (self._should_stop() or self._has_ended()):
          waiting = time.monotonic()
          batch = self._next_batch()
          self._idle += time.monotonic() - waiting
          if batch is None:
            break
          backoff.reset()
          self._progress.assign(self._steps / self._experiment.environment_steps)
          if self._newest:
            self._watchdog.progress()
          else:
            self._watchdog.pause()  # The first step compiles, for any length of time.
          yield _rows(batch)
      except server_lost.ServerLost as error:
        backoff.wait(error)
      if self._meets and self._asked_to_stop():
        break  # No step follows to agree in: the others find that this one is gone.

  def _connect(self) -> None:
    """Gives the server weights to act with, and connects to its queue."""
    self._replay.check(self._experiment.settings)
    self._channel = self._make_channel()
    self._publish()
    self._queue.connect(self._channel if self._is_chief else None)
    if not self._prepared:  # While actors play the first unrolls.
      self._prepared = True
      self._watchdog.pause()
      with learner.device_errors(self.step + 1):
        self._learner.prepare(_rows(self._batch_spec()))
      self._watchdog.progress()

  def _batch_spec(self) -> Any:
    experiment = self._experiment
    unrolls = unroll.batch_spec(
        experiment.layout.signature, experiment.items_per_batch // self._num_workers)
    if self._table is None:
      return unrolls
    return unroll.Sample(unrolls, tf.TensorSpec([experiment.batch_size]))

  def _make_channel(self) -> connection.Weights:
    return self._replay.weights(self._agent.acting_network.variables)

  def _next_batch(self) -> Any:
    """Returns the next batch; None if it should stop."""
    batch = self._queue.next(self._alive_or_stop)
    while self._table and batch is not None:
      self._table.add(batch)
      if self._table.is_filled:
        batch = self._table.sample(self._experiment.items_per_batch)
        self._ledger.count_ages(batch.unroll.target_step.numpy())
        break
      batch = self._queue.next(self._alive_or_stop)
    return batch

  def _take_steps(self, batch: Any) -> None:
    super()._take_steps(batch)
    if self._table:
      self._update_priorities()
    # After the checkpoint, so that a restarted learner is never behind its actors.
    if self._published_step == self.step:
      try:
        self._publish()
      except server_lost.ServerLost:
        self._queue.abandon()  # `_batches` connects again, and publishes then.

  def _update_priorities(self) -> None:
    """Gives the items of the last batch their new priorities."""
    priorities = self._newest['carried'].numpy()
    if not np.isfinite(priorities).all():
      self._check_finite()
    self._table.update(priorities)

  def _publish(self, finished: bool = False) -> None:
    if self._agent.from_replay:  # The network that learns acts, refreshed or not.
      self._published_step = self.step
    if self._is_chief:
      self._channel.publish(self._published_step, finished)

  def _between_steps(self, logs: bool) -> None:
    self._watchdog.progress()
    self._refused_before = self._ledger.refused
    self._ledger.learner_step = self.step
    refreshes = self.step % self._agent.publish_period == 0
    if refreshes:
      self._check_finite()
    exchanges = self._meets and (
        logs or self.step % self._experiment.checkpoints.period == 0)
    if exchanges or not self._meets:
      self._count()
    if exchanges:
      with learner.device_errors(self.step):
        self._ledger.set_workers(
            devices.texts_of_workers(self._ledger.own_state(), self._strategy))
    if logs and self._meets:
      with learner.device_errors(self.step):
        self._stopping = devices.any_worker(self._asked_to_stop(), self._strategy)
    if refreshes:
      self._agent.refresh_acting_network()
      self._published_step = self.step
    if self._evaluations_due() > self._played:
      self._played = self._evaluations_due()
      self._evaluate()

  def _evaluations_due(self) -> int:
    """Returns how many evaluations belong to the steps that were taken."""
    share = min(self._steps / self._experiment.environment_steps, 1)
    return int(share * self._num_evaluations)

  def _evaluate(self) -> None:
    """Plays with the weights that act, and keeps them if they are the best."""
    experiment = self._experiment
    self._watchdog.pause()
    if self._playing is None:
      # The actor that takes turns plays with `acting_network`.
      self._network = experiment.make_network()
      self._playing = experiment.make_evaluator(
          experiment.make_policy(self._network), num_episodes=_EPISODES)
      self._evaluations = metrics_csv.MetricsWriter(self._folder.evaluations, self.step)
      self._episodes = tensorboard.Summaries(self._folder.summaries / 'evaluation')
    _copy(self._agent.acting_network, self._network)
    played = self._playing.evaluate(self._asked_to_stop)
    if played is not None:
      row = evaluator.make_row(experiment, self.step, played)
      row['environment_steps'] = self._steps
      self._evaluations.append(row)
      self._episodes.write(row)
      self._episodes.flush()
      self._keep_if_best(played, self._network, self._steps)
    self._watchdog.progress()

  def _count(self) -> None:
    """Adds the environment steps since the last call, of all workers."""
    new = self._ledger.environment_steps - self._counted
    self._counted = self._ledger.environment_steps
    with learner.device_errors(self.step):
      self._steps += devices.sum_over_workers(new, self._strategy)

  def _make_row(self, metrics: Dict[str, float], lap: trainer.Lap) -> Dict[str, float]:
    ledger = self._ledger
    row = {
        'environment_steps': self._steps,
        'seconds': lap.seconds,
        'return': _mean(ledger.returns),
        'success': _mean(ledger.successes),
        'episode_length': _mean(ledger.lengths),
        **self._returns_of_tasks(),
        'environment_steps_per_second': (self._steps - self._steps_then) / lap.elapsed,
        'learner_steps_per_second': lap.learner_steps_per_second,
        'learner_idle': self._idle / lap.elapsed,
        'queue_length': self._queue.length(),
        **ledger.gauges(lap.elapsed),
        **metrics,
        **self._agent.gauges(),
        'unrolls': ledger.unrolls,
        'unrolls_stale': ledger.stale,
        'unrolls_duplicate': ledger.duplicate,
        'oldest_unroll': ledger.oldest,
        'oldest_allowed': ledger.max_age,
    }
    self._steps_then = self._steps
    self._idle = 0.0
    return row

  def _describe(self, seconds: float) -> str:
    """Returns a log line that says what the learner is waiting for."""
    refused = self._ledger.refused - self._refused_before
    length = self._queue.length()
    if math.isnan(length):
      waits_for = f'{self._replay.name}, which does not answer'
    elif refused:
      waits_for = 'actors, whose unrolls are too old or not newer than seen'
    else:
      waits_for = 'actors, which send nothing'
    return (f'learner: no usable unroll for {seconds:.0f} s, at learner step {self.step}: '
            f'it waits for {waits_for}; {length:.0f} unrolls in the queue, {refused} '
            f'refused since the last step, weights of step {self._published_step} '
            'published')

  def _returns_of_tasks(self) -> Dict[str, float]:
    """Returns the mean return of each of several tasks, and the scores if any."""
    experiment, returns = self._experiment, self._ledger.task_returns
    columns = {}
    if len(returns) > 1:
      columns = {f'return_{name}': _mean(x)
                 for name, x in zip(experiment.task_names, returns)}
    return {**columns, **experiment.compute_scores(
        [x for task in returns for x in task],
        [task for task, x in enumerate(returns) for _ in x])}

  def _save(self, last: bool) -> None:
    # The ledger has the steps since the last count, too. Each other worker is taken to
    # have as many as the chief, since a worker that stops does not meet the others.
    uncounted = self._ledger.environment_steps - self._counted
    self._environment_steps.assign(self._steps + self._num_workers * uncounted)
    super()._save(last)

  def _announce_end(self) -> bool:
    """Tells actors and evaluators that the run is over.

    It waits for a server that is being started again. After `_FAREWELL_SECONDS` without
    a server, it assumes that no process is left to tell.
    """
    deadline = time.monotonic() + _FAREWELL_SECONDS
    backoff = reconnect.Backoff(
        'learner', self._replay.address,
        lambda: self._should_stop() or time.monotonic() > deadline)
    while not self._should_stop():
      try:
        self._publish(finished=True)
        return True
      except server_lost.ServerLost as error:
        if time.monotonic() > deadline:
          logging.warning(
              'learner: %s cannot be told that the run is over: %s',
              self._replay.name, config.one_line(error))
          return True
        backoff.wait(error)
    return False

  def _network_that_acts(self) -> tf.keras.layers.Layer:
    network = self._experiment.acting_network
    _copy(self._agent.acting_network, network)
    return network


def _copy(source: tf.keras.layers.Layer, target: tf.keras.layers.Layer) -> None:
  for variable, learned in zip(target.variables, source.variables):
    variable.assign(learned.numpy())


def _rows(batch: Any) -> Any:
  """Returns a batch without the columns that have no rows and that no loss reads."""
  if isinstance(batch, unroll.Sample):
    return batch._replace(unroll=_rows(batch.unroll))
  return batch._replace(target_step=(), unroll_id=())


def _mean(values: Collection[float]) -> float:
  """Returns the mean of numbers; NaN if there are none."""
  return sum(values) / len(values) if values else math.nan
