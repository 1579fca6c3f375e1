"""The learner's process: from the queue to checkpoints, weights, metrics and policy."""

import math
import queue
import threading
import time
from typing import Callable, Dict, Iterator, Optional

from absl import logging
import reverb
import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf.replay import dataset
from gtrxl_tf.replay import ledger as ledger_lib
from gtrxl_tf.replay import unroll as unroll_lib
from gtrxl_tf.replay import weights
from gtrxl_tf.replay import writer
from gtrxl_tf.serving import export
from gtrxl_tf.training import checkpoints as checkpoints_lib
from gtrxl_tf.training import devices
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import gauges as gauges_lib
from gtrxl_tf.training import learner as learner_lib
from gtrxl_tf.training import patience as patience_lib
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import summaries as summaries_lib
from gtrxl_tf.training import watchdog as watchdog_lib

_FAREWELL_SECONDS = 120
# Between looks at whether the server still has the newest weights.
_LOOK_SECONDS = 1.0
# After which a stream is given up that brings nothing though unrolls wait in the queue.
_SILENT_SECONDS = 30.0


class OnlineTraining:
  """Trains an experiment's agent on what comes out of the queue.

  A checkpoint holds all that training depends on: networks, duals, optimizer, how many
  environment steps and how much time went into them, and the book on which unrolls
  they were. What is lost with a killed learner are the steps since its last checkpoint,
  and with a killed server what waited in the queue.

  Several workers each take their share of a batch from the queue. The chief writes to
  the folder and publishes weights. They meet when metrics are logged, to count
  environment steps and to ask whether one of them is to stop: so all of them end at the
  same step. Which unrolls they trained on each worker remembers of its own, and the
  checkpoint has the chief's.
  """

  def __init__(self, experiment: experiment_lib.Experiment, address: str,
               folder: run_folder.RunFolder, should_stop: Callable[[], bool],
               strategy: tf.distribute.Strategy,
               gauges: Optional[gauges_lib.Gauges] = None):
    """Creates agent and learner, and restores the newest checkpoint if there is one.

    Args:
      experiment: what to train.
      address: of the Reverb server.
      folder: of the run.
      should_stop: asked after every learner step and while waiting.
      strategy: how to distribute the learner.
      gauges: are shown what is logged.

    Raises:
      config.ConfigError: the batch cannot be divided among the replicas, or the
        checkpoint is of another experiment.
    """
    self._experiment = experiment
    self._address = address
    self._folder = folder
    self._strategy = strategy
    self._gauges = gauges or gauges_lib.Gauges('learner')
    self._is_chief = devices.is_chief(strategy)
    num_workers = devices.num_workers(strategy)
    self._meets = num_workers > 1
    self._asked_to_stop = should_stop
    self._stopping = False
    devices.rows_per_replica(
        experiment.batch_size, strategy, 'Experiment.batch_size')
    self._items_per_worker, rest = divmod(experiment.items_per_batch, num_workers)
    if rest:
      raise config.ConfigError(
          'Experiment.batch_size / Experiment.environments_per_actor = '
          f'{experiment.items_per_batch}: expected a multiple of the {num_workers} '
          'workers that share it')
    with strategy.scope():
      self._agent = experiment.make_agent()
      optimizer = experiment.make_optimizer()
    self._learner = learner_lib.Learner(self._agent, optimizer, strategy)
    self._ledger = ledger_lib.Ledger(
        experiment.max_age(self._agent), len(experiment.task_names))
    self._environment_steps = tf.Variable(0, dtype=tf.int64)
    self._seconds = tf.Variable(0.0, dtype=tf.float64)
    self._checkpoints = checkpoints_lib.Checkpoints(
        folder.checkpoints, experiment.checkpoints_kept,
        experiment.keep_checkpoint_every_hours, kind=type(experiment).__name__,
        agent=self._agent, writes=self._is_chief, optimizer=optimizer,
        ledger=self._ledger, environment_steps=self._environment_steps,
        seconds=self._seconds)
    path = self._checkpoints.restore()
    if path:
      logging.info('learner: going on from %s', path)
    self._ledger.learner_step = self._learner.steps
    devices.check_equal(self._ledger.learner_step, strategy,
                        f'learner steps in {folder.checkpoints}')
    self._steps = int(self._environment_steps)
    self._counted = self._ledger.environment_steps
    self._target_step = self._last_target_update(self._ledger.learner_step)
    self._saved_step = self._ledger.learner_step
    if self._is_chief:
      self._metrics = run_folder.MetricsWriter(
          folder.metrics, self._ledger.learner_step)
      self._summaries = summaries_lib.Summaries(folder.summaries)
    self._channel = weights.WeightsChannel(address, self._agent.target.variables)
    self._abandon_stream = threading.Event()
    self._refused_before = self._ledger.refused  # At the last learner step.
    self._watchdog = watchdog_lib.Watchdog(experiment.stall_seconds, self._describe)
    self._gauges.show_health(self._watchdog)
    # Time without what it took to import and to build.
    self._started = time.time() - float(self._seconds)
    self._previous_log = (time.time(), self._steps, self._ledger.learner_step)
    self._idle = 0.0

  def _should_stop(self) -> bool:
    """Whether to stop; of several workers, all do at once or none."""
    return self._stopping if self._meets else self._asked_to_stop()

  def _last_target_update(self, step: int) -> int:
    return step - step % self._agent.target_update_period

  def run(self) -> bool:
    """Trains to the end; returns whether it came to it or was told to stop.

    Raises:
      learner.Diverged: loss or gradient is not finite. No checkpoint was saved since it
        was.
      learner.StepFailed: a device or another worker is gone.
      checkpoints.SaveFailed: the last checkpoint could not be saved.
      config.ConfigError: the server was started with other settings.
    """
    with self._watchdog:
      try:
        self._run()
      finally:
        self._abandon_stream.set()
    self._save(last=True)
    return self._finished()

  def _run(self) -> None:
    patience = patience_lib.Patience('learner', self._address, self._asked_to_stop)
    while not (self._should_stop() or self._finished()):
      try:
        batches = self._connect()
        while not (self._should_stop() or self._finished()):
          waiting = time.time()
          batch = self._next(batches)
          self._idle += time.time() - waiting
          patience.reset()
          self._step(batch)
      except StopIteration:
        pass  # It should stop.
      except patience_lib.SERVER_ERRORS as error:
        patience.wait(error)
      if self._meets and self._asked_to_stop():
        break  # No step to agree on it: the others find that this one is gone.

  def _connect(self) -> Iterator[unroll_lib.Unroll]:
    """Gives the server weights to act with; returns the batches that come of it.

    Raises:
      config.ConfigError: the server was started with other settings.
    """
    experiment = self._experiment
    signature = unroll_lib.signature(
        experiment.row_spec(), experiment.unroll_length, experiment.memory_length)
    writer.check_signature(reverb.Client(self._address), signature, "the learner's")
    self._abandon_stream.set()
    self._abandon_stream = abandoned = threading.Event()
    self._channel = weights.WeightsChannel(self._address, self._agent.target.variables)
    self._publish()
    if self._is_chief:
      threading.Thread(
          target=_keep_published, args=(self._channel, abandoned), daemon=True).start()
    return iter(dataset.unrolls(
        self._address, self._items_per_worker, self._ledger,
        lambda: self._asked_to_stop() or abandoned.is_set(),
        abandoned=abandoned.is_set))

  def _next(self, batches: Iterator[unroll_lib.Unroll]) -> unroll_lib.Unroll:
    """Returns the next batch.

    A thread waits for it: behind a network that is cut Reverb does not come back, and
    the learner could not be told to stop.

    Raises:
      StopIteration: the learner should stop.
      RuntimeError: the stream brings nothing though unrolls wait in the queue.
    """
    found = queue.SimpleQueue()

    def fetch():
      try:
        found.put((next(batches), None))
      except Exception as error:  # pylint: disable=broad-exception-caught
        found.put((None, error))

    threading.Thread(target=fetch, daemon=True).start()
    taken, since = self._ledger.taken, time.time()
    while True:
      try:
        batch, error = found.get(timeout=1)
      except queue.Empty:
        if self._asked_to_stop():
          raise StopIteration from None
        if self._ledger.taken != taken:
          taken, since = self._ledger.taken, time.time()
        elif time.time() - since > _SILENT_SECONDS:
          since, waiting = time.time(), self._queue_length()
          if waiting > 0:
            raise RuntimeError(f'{waiting:.0f} unrolls wait in the queue and none has '
                               f'come for {_SILENT_SECONDS:.0f} s') from None
        continue
      if error is not None:
        raise error
      return batch

  def _publish(self, finished: bool = False) -> None:
    if self._is_chief:
      self._channel.publish(self._target_step, finished)

  def _finished(self) -> bool:
    return self._steps >= self._experiment.environment_steps

  def _step(self, batch) -> None:
    if self._strategy.num_replicas_in_sync > 1:
      # These are not of rows, and nobody learns from them.
      rows = batch._replace(target_step=(), unroll_id=())
      batch = devices.share_out(rows, self._strategy, own=True)
    self._watchdog.progress()  # The first step compiles.
    try:
      metrics = self._learner.step(batch)
    except patience_lib.SERVER_ERRORS as error:  # Which the server's own are not.
      raise learner_lib.StepFailed(
          f'learner step {self._ledger.learner_step + 1}: {config.one_line(error)}'
          ) from error
    self._watchdog.progress()
    self._refused_before = self._ledger.refused
    self._ledger.learner_step += 1
    step = self._ledger.learner_step
    updates_target = step % self._agent.target_update_period == 0
    logs = step % self._experiment.log_period == 0
    self._newest = metrics
    if updates_target or logs:
      # A step that is not finite leaves no finite ones after it, so that it is found
      # here, and in `_save`, before anything of it leaves the process.
      self._check_finite(metrics)
    if logs or not self._meets:
      self._count()
    if logs and self._meets:
      self._stopping = devices.any_worker(self._asked_to_stop(), self._strategy)
    if updates_target:
      self._agent.update_target()
      self._target_step = step
    if logs:
      self._log(metrics)
    if step % self._experiment.checkpoint_period == 0:
      self._save(last=False)
    if updates_target:
      self._publish()  # Last, as it fails where the server is gone.

  def _count(self) -> None:
    """Adds what came in since the last call, at all workers."""
    new = self._ledger.environment_steps - self._counted
    self._counted = self._ledger.environment_steps
    self._steps += devices.sum_over_workers(new, self._strategy)

  def _check_finite(self, metrics) -> None:
    learner_lib.check_finite(
        metrics, self._ledger.learner_step, self._checkpoints.latest)

  def _log(self, metrics) -> None:
    if not self._is_chief:
      return
    ledger = self._ledger
    now, steps = time.time(), self._steps
    learner_step = ledger.learner_step
    then, steps_then, learner_step_then = self._previous_log
    elapsed = max(now - then, 1e-6)
    mean = lambda values: sum(values) / len(values) if values else math.nan
    row = {
        'learner_step': learner_step,
        'environment_steps': steps,
        'seconds': now - self._started,
        'return': mean(ledger.returns),
        'success': mean(ledger.successes),
        **self._returns_of_tasks(),
        'environment_steps_per_second': (steps - steps_then) / elapsed,
        'learner_steps_per_second': (learner_step - learner_step_then) / elapsed,
        'learner_idle': self._idle / elapsed,
        'queue_length': self._queue_length(),
        **ledger.gauges(elapsed),
        **{name: float(value) for name, value in metrics.items()},
        **self._agent.gauges(),
        'unrolls': ledger.unrolls,
        'unrolls_stale': ledger.stale,
        'unrolls_duplicate': ledger.duplicate,
        'oldest_unroll': ledger.oldest,
        'oldest_allowed': ledger.max_age,
    }
    self._metrics.append(row)
    self._gauges.show(row)
    self._summaries.write(learner_step, row)
    self._previous_log = (now, steps, learner_step)
    self._idle = 0.0

  def _queue_length(self, raises: bool = False) -> float:
    """Returns how many items wait; NaN, or an error, if the server does not answer."""
    try:
      info = reverb.Client(self._address).server_info(timeout=1)
      return info[writer.TABLE].current_size
    except patience_lib.SERVER_ERRORS:
      if raises:
        raise
      return math.nan

  def _describe(self, seconds: float) -> str:
    """Returns a line on what the learner waits for, for a log."""
    step = self._ledger.learner_step
    refused = self._ledger.refused - self._refused_before
    line = f'learner: no step for {seconds:.0f} s, at learner step {step}: '
    try:
      queue_length = self._queue_length(raises=True)
      served = self._channel.step_at_server()
    except patience_lib.SERVER_ERRORS as error:
      return (line + f'it waits for the server at {self._address}, which does not '
              f'answer ({config.one_line(error)})')
    if served is None:
      line += f'the server at {self._address} has no weights, and actors wait for them'
    elif refused:
      line += 'it waits for actors, whose unrolls are too old or not newer than seen'
    else:
      line += 'it waits for actors, which send nothing'
    return (f'{line}; {queue_length:.0f} unrolls in the queue, {refused} refused since '
            f'the last step, weights of step {"none" if served is None else served} at '
            f'the server and of step {self._target_step} at the learner')

  def _returns_of_tasks(self) -> Dict[str, float]:
    """If there are several tasks, each one's mean return, and the score if any."""
    experiment, returns = self._experiment, self._ledger.task_returns
    columns = {}
    if len(returns) > 1:
      columns = {f'return_{name}': sum(x) / len(x) if x else math.nan
                 for name, x in zip(experiment.task_names, returns)}
    score = experiment.score_of(
        [x for task in returns for x in task],
        [task for task, x in enumerate(returns) for _ in x])
    return columns if score is None else {**columns, 'score': score}

  def _save(self, last: bool) -> None:
    step = self._ledger.learner_step
    if step == self._saved_step or not self._is_chief:
      return
    self._check_finite(self._newest)
    self._environment_steps.assign(self._steps)
    self._seconds.assign(time.time() - self._started)
    if self._checkpoints.save(step, last):
      self._saved_step = step
    self._summaries.flush()

  def announce_end(self) -> bool:
    """Tells actors and evaluators that the run is over.

    It waits for a server that is just being started again; one that is gone for
    `_FAREWELL_SECONDS` has nobody left to tell.

    Returns:
      Whether that is settled; not if it should stop before.
    """
    deadline = time.time() + _FAREWELL_SECONDS
    patience = patience_lib.Patience(
        'learner', self._address,
        lambda: self._should_stop() or time.time() > deadline)
    while not self._should_stop():
      try:
        self._publish(finished=True)
        return True
      except patience_lib.SERVER_ERRORS as error:
        if time.time() > deadline:
          logging.warning(
              'learner: the server at %s is not there to hear of the end: %s',
              self._address, config.one_line(error))
          return True
        patience.wait(error)
    return False

  def export(self) -> None:
    """Writes the target network's policy, the one that acted, to `policy/`."""
    # As a network that acts, whatever the learner's computes in and lies on.
    network = self._experiment.acting_network
    for variable, learned in zip(network.variables, self._agent.target.variables):
      variable.assign(learned.numpy())
    export.save_policy(self._experiment.make_policy(network), self._folder.policy)


def _keep_published(channel: weights.WeightsChannel, ended: threading.Event) -> None:
  """Publishes weights again when the server has lost them, until `ended` is set.

  In a thread: the learner itself may be waiting for unrolls, which actors with lost
  weights make in vain, or for other workers that wait for unrolls.
  """
  while not ended.wait(_LOOK_SECONDS):
    try:
      if channel.publish_again_if_lost():
        logging.info('learner: the server had lost the newest weights; published again')
    except config.ConfigError as error:
      logging.warning('learner: %s', error)
    except patience_lib.SERVER_ERRORS:
      pass  # The server is gone; the learner connects to the next one.
