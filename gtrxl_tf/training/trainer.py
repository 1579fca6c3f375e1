"""The trainer: one loop from batches to checkpoints, metrics and a policy."""

import abc
import dataclasses
import math
import shutil
import time
from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple, Optional, Tuple

from absl import logging
import tensorflow as tf

from gtrxl_tf import files
from gtrxl_tf import nests
from gtrxl_tf.agents import agent as agent_lib
from gtrxl_tf.serving import export
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import devices
from gtrxl_tf.training import evaluation
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import gauges as gauges_lib
from gtrxl_tf.training import learner
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import tensorboard
from gtrxl_tf.training import watchdog

_SAVE_AGAIN_SECONDS = 30.0
_SECONDS_BEFORE_LINE = 30.0  # Until a line says why there is no row of metrics.


class InferenceAddress(NamedTuple):
  """Where a learner's process acts for environments, see `InferenceServer`."""
  port: int
  host: str = 'localhost'
  device: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Process:
  """What a trainer needs of the process that it runs in.

  Attributes:
    folder: the run's folder.
    strategy: distributes the learner.
    should_stop: called between steps and while waiting.
    server: address of the Reverb server; None for training on a dataset.
    gauges: shows the rows of metrics to Prometheus.
    show: called with the rows of metrics.
    inference: if given, the process also acts.
  """
  folder: run_folder.RunFolder
  strategy: tf.distribute.Strategy
  should_stop: Callable[[], bool]
  server: Optional[str] = None
  gauges: gauges_lib.Gauges = dataclasses.field(
      default_factory=lambda: gauges_lib.Gauges('learner'))
  show: Callable[[Dict[str, float]], None] = lambda row: None
  inference: Optional[InferenceAddress] = None


class Lap(NamedTuple):
  """The time at which a row of metrics is made."""
  seconds: float                   # Training time, with that before interruptions.
  elapsed: float                   # Seconds since the last row.
  learner_steps_per_second: float  # Since the last row.


class Trainer(abc.ABC):
  """Trains an experiment's agent, and writes what it learns into the run's folder.

  A trainer restores the newest checkpoint, takes learner steps, logs metrics, saves
  checkpoints, and at the end exports the policy. It alone writes the files `done` and
  `diverged`. Subclasses define where batches come from and what else happens between
  steps.

  A checkpoint holds everything that training depends on: agent, optimizer, the time
  spent, and what a subclass adds. An interrupted run resumes as if it had not been
  interrupted.

  Workers that train together each have a trainer, and share one folder. Only the chief
  writes into it.

  Attributes:
    step: the number of learner steps taken.
    evaluation: the last evaluation in training, if there was one.
  """
  _own_batches = False  # True if each worker draws its own part of the batch.

  def __init__(self, experiment: experiment_lib.Experiment, process: Process,
               agent: agent_lib.Agent, optimizer: learner.Optimizer,
               checkpointed: Mapping[str, Any]):
    """Creates the learner, and restores the newest checkpoint if there is one.

    Args:
      experiment: what to train.
      process: where to train.
      agent: the agent of the experiment, made in the scope of the strategy.
      optimizer: made there too.
      checkpointed: other objects that training depends on, by their names in
        checkpoints.
    """
    self.evaluation: Optional[evaluation.Evaluation] = None
    self._experiment = experiment
    self._folder = folder = process.folder
    self._strategy = strategy = process.strategy
    self._asked_to_stop = process.should_stop
    self._gauges = process.gauges
    self._show = process.show
    self._is_chief = devices.is_chief(strategy)
    self._agent = agent
    self._learner = learner.Learner(
        agent, optimizer, strategy, experiment.optimizer.clip_norm,
        experiment.num_epochs, experiment.num_minibatches, experiment.seed)
    _check_workers(experiment, strategy)
    self._seconds = tf.Variable(0.0, dtype=tf.float64)
    self._checkpoints = checkpoints.Checkpoints(
        folder.checkpoints, experiment.checkpoints.kept,
        experiment.checkpoints.keep_every_hours, kind=experiment.kind,
        agent=agent, writes=self._is_chief, device=devices.of_files(strategy),
        optimizer=optimizer, seconds=self._seconds, **checkpointed)
    path = self._checkpoints.restore()
    if path:
      logging.info('learner: resuming from %s', path)
    self.step = self._saved_step = self._learner.steps
    devices.check_equal(self.step, strategy, f'learner steps in {folder.checkpoints}')
    if self._is_chief:
      self._metrics = metrics_csv.MetricsWriter(folder.metrics, self.step)
      self._summaries = tensorboard.Summaries(folder.summaries)
      if folder.config.exists():
        self._summaries.settings(folder.config.read_text(encoding='utf-8'))
    self._newest: Optional[learner.Metrics] = None  # The last step's.
    best = checkpoints.load_best(folder.checkpoints)
    self._best: Optional[float] = best and best.measure
    self._doing = 'waits for its first batch'
    # The first step of a large network may take minutes, and a row of metrics many steps.
    self._until_row = watchdog.Watchdog(
        _SECONDS_BEFORE_LINE, lambda seconds: f'no line of progress yet after {seconds:.0f} s: '
        f'the learner {self._doing}', hang=math.inf)
    # Time that imports and construction take is not counted.
    self._started = time.monotonic() - float(self._seconds)
    self._last_log = (time.monotonic(), self.step)

  def _alive_or_stop(self) -> bool:
    """Returns whether to stop; a call shows that the trainer does not hang."""
    return self._asked_to_stop()

  @abc.abstractmethod
  def _batches(self) -> Iterator[Any]:
    """Yields arguments of `_learn`, until training has ended or should stop."""

  def _learn(self, batch: Any) -> Tuple[learner.Metrics, int]:
    """Takes one learner step or more; returns the last one's metrics, and how many."""
    shared = devices.share_out(batch, self._strategy, self._own_batches)
    metrics = self._learner.step(shared)
    nests.free_attributes(tf.nest.flatten(shared, expand_composites=True))
    return metrics, 1

  @abc.abstractmethod
  def _has_ended(self) -> bool:
    """Returns whether training has taken all its steps."""

  @abc.abstractmethod
  def _between_steps(self, logs: bool) -> None:
    """Does the rest after each call of `_learn`, whose metrics are `self._newest`."""

  @abc.abstractmethod
  def _make_row(self, metrics: Dict[str, float], lap: Lap) -> Dict[str, float]:
    """Makes the columns of a row of `metrics.csv` after `learner_step`."""

  @abc.abstractmethod
  def _network_that_acts(self) -> tf.keras.layers.Layer:
    """Returns a network with the newest weights, in float32 on one device."""

  def _announce_end(self) -> bool:
    """Tells other processes that the run is over."""
    return True

  def _logs(self) -> bool:
    """Returns whether a row of metrics is due after this step; the last step has one."""
    return self.step % self._experiment.log_period == 0

  def run(self) -> bool:
    """Trains, exports the policy, and records in the folder how the run ended.

    Returns:
      Whether training came to its end; False if it was told to stop.
    """
    try:
      ended = self.train()
    except learner.Diverged as error:
      if self._is_chief:
        files.write_atomically(self._folder.diverged, f'{error}\n')
      raise
    if ended:
      self.export()
    # Every worker tells those that only it knows. `done` is last: once it exists, a
    # resumed run no longer tells other processes of its end.
    if ended and self._announce_end() and self._is_chief:
      files.write_atomically(self._folder.done, 'The run took all its steps.\n')
    return ended

  def train(self) -> bool:
    """Trains and saves; returns whether training came to its end. See `run`."""
    with self._until_row:
      for batch in self._batches():
        self._take_steps(batch)
    self._save(last=True)
    return self._has_ended()

  def export(self) -> None:
    """Writes the policy to `policy/` and the best to `best/`, if this is the chief."""
    if not self._is_chief:
      return
    network = self._network_that_acts()
    export.save_policy(self._experiment.make_policy(network), self._folder.policy)
    shutil.rmtree(self._folder.best, ignore_errors=True)  # An extended run has an older one.
    best = checkpoints.load_best(self._folder.checkpoints)
    if best and best.learner_step != self.step:
      for variable, value in zip(network.variables, best.weights):
        variable.assign(value)
      export.save_policy(self._experiment.make_policy(network), self._folder.best)

  def _keep_if_best(self, played: evaluation.Evaluation, network: tf.keras.layers.Layer,
                    environment_steps: int = 0) -> None:
    """Saves the network's weights if no earlier evaluation was better."""
    if self._experiment.checkpoints.keep != 'best':
      return
    scores = self._experiment.compute_scores(played.returns, played.tasks)
    measure = scores.get('score', played.means['return'])
    if self._best is None or measure >= self._best:
      self._best = measure
      checkpoints.save_best(self._folder.checkpoints, checkpoints.Best(
          measure, self.step, environment_steps, [x.numpy() for x in network.variables]))

  def _take_steps(self, batch: Any) -> None:
    self._doing = f'takes learner step {self.step + 1}'
    with learner.device_errors(self.step + 1):
      self._newest, count = self._learn(batch)
    self.step += count
    self._doing = f'waits for a batch after learner step {self.step}'
    logs = self._logs()
    if logs:
      # If a step is not finite, all later ones are not either. It is therefore enough
      # to check before anything leaves the process: here, in `_save`, and where weights
      # are published.
      self._check_finite()
    self._between_steps(logs)
    ends = self._has_ended()
    if logs or ends:
      self._log()
    if ends or self.step % self._experiment.checkpoints.period == 0:
      self._save(last=ends)

  def _check_finite(self) -> Dict[str, float]:
    """Returns the newest metrics as numbers; raises `Diverged` if one is not finite."""
    values = self._newest.numbers()
    if not all(map(math.isfinite, values.values())):
      text = ', '.join(f'{name} = {value:g}' for name, value in values.items())
      raise learner.Diverged(
          f'loss or gradient is not finite at learner step {self.step}: {text}; '
          f'the last good checkpoint is {self._checkpoints.latest or "none"}')
    return values

  def _log(self) -> None:
    """Adds a row to `metrics.csv` and the summaries, and shows it."""
    self._until_row.pause()
    if not self._is_chief:
      return
    now = time.monotonic()
    then, step_then = self._last_log
    elapsed = max(now - then, 1e-6)
    lap = Lap(now - self._started, elapsed, (self.step - step_then) / elapsed)
    row = {'learner_step': self.step, **self._make_row(self._check_finite(), lap)}
    self._metrics.append(row)
    self._summaries.write(row)
    self._gauges.show(row)
    self._show(row)
    self._last_log = (now, self.step)

  def _save(self, last: bool) -> None:
    """Saves a checkpoint, unless this step's was saved.

    It tries to save the run's last step until it succeeds, or is asked to stop.
    """
    if self.step == self._saved_step:
      return
    self._check_finite()
    self._seconds.assign(time.monotonic() - self._started)
    while True:
      try:
        if self._checkpoints.save(self.step, last):
          self._saved_step = self.step
        break
      except checkpoints.SaveFailed as error:
        if not self._has_ended() or self._asked_to_stop():
          raise
        logging.error('%s; trying again every %.0f s', error, _SAVE_AGAIN_SECONDS)
        again = time.monotonic() + _SAVE_AGAIN_SECONDS
        while time.monotonic() < again and not self._alive_or_stop():
          time.sleep(min(1.0, _SAVE_AGAIN_SECONDS))
    if self._is_chief:
      self._summaries.flush()


def _check_workers(experiment: experiment_lib.Experiment,
                   strategy: tf.distribute.Strategy) -> None:
  """Raises a `ConfigError`, in all workers, unless they have the same settings."""
  if experiment.settings is None:  # It was not made from gin.
    return
  texts = devices.texts_of_workers(differences.to_json(experiment.settings), strategy)
  chief, *others = map(differences.from_json, texts)
  for i, other in enumerate(others, start=1):
    # The folder of the data may differ.
    found = differences.differences(other, chief, ['OfflineExperiment.dataset'])
    if found:
      raise config.ConfigError(
          f'worker {i} has other settings than the first: '
          f'{differences.describe(found)}; expected the same in all workers')
