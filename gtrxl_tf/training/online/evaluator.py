"""An evaluator: plays with the newest weights during training."""

import contextlib
import time
from typing import Callable, Dict, Optional

from absl import logging

from gtrxl_tf.replay import connection
from gtrxl_tf.replay import server_lost
from gtrxl_tf.training import evaluation
from gtrxl_tf.training import gauges as gauges_lib
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import tensorboard
from gtrxl_tf.training import watchdog
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import reconnect

COLUMNS = ('learner_step', 'return', 'success', 'episode_length', 'episodes')


def make_row(experiment: experiment_lib.OnlineExperiment, step: int,
             played: evaluation.Evaluation) -> Dict[str, float]:
  """Makes a row of `evaluations.csv` for the weights of a learner step."""
  return {**dict(zip(COLUMNS, (step, *(played.means[x] for x in COLUMNS[1:4]),
                               len(played.returns)))),
          **experiment.compute_scores(played.returns, played.tasks)}


class OnlineEvaluator:
  """Evaluates the acting policy on episodes that are not trained on.

  Each evaluation is a row of `evaluations.csv` and a point in TensorBoard, at the
  learner step of its weights. The next one begins when there are new weights. `gtrxl
  train` stops its evaluator at the end of the run. An evaluator that was started by hand
  also plays the last weights.
  """

  def __init__(self, experiment: experiment_lib.OnlineExperiment, address: str,
               folder: run_folder.RunFolder, should_stop: Callable[[], bool],
               gauges: Optional[gauges_lib.Gauges] = None):
    """Creates the policy and its environments.

    Args:
      experiment: the experiment of the run.
      address: the replay's address, see `connection.connect`.
      folder: the folder for results: the run's, or another if that cannot be reached.
      should_stop: called after every evaluation and while waiting.
      gauges: shows the results to Prometheus.
    """
    self._address = address
    self._should_stop = should_stop
    self._network = experiment.acting_network
    self._experiment = experiment
    self._replay = connection.connect(address, experiment.layout)
    self._evaluator = experiment.make_evaluator(experiment.make_policy(self._network))
    self._gauges = gauges or gauges_lib.Gauges('evaluator')
    self._path = folder.evaluations
    self._rows = metrics_csv.MetricsWriter(self._path)
    self._summaries = tensorboard.Summaries(folder.summaries / 'evaluation')
    self._plays = False
    self._watchdog = watchdog.Watchdog(experiment.stall_seconds, self._describe)

  def run(self) -> None:
    """Plays until told to stop or the run is over."""
    with contextlib.closing(self._evaluator), self._watchdog:
      self._evaluate_until_ended()

  def _told_to_stop(self) -> bool:
    self._watchdog.alive()
    return self._should_stop()

  def _describe(self, seconds: float) -> str:
    """Returns a log line that says what the evaluator is waiting for."""
    what = ('its environments' if self._plays
            else f'newer weights from the server at {self._address}')
    return f'evaluator: no evaluation for {seconds:.0f} s: it waits for {what}'

  def _evaluate_until_ended(self) -> None:
    backoff = reconnect.Backoff('evaluator', self._address, self._told_to_stop)
    channel = None
    last = metrics_csv.last_metrics(self._path)  # From an earlier process.
    evaluated = last and last['learner_step']
    while not (self._told_to_stop() or (channel and channel.finished)):
      try:
        if channel is None:
          self._replay.check(self._experiment.settings)
          channel = self._replay.weights(self._network.variables)
        step = channel.receive()
        backoff.reset()
      except server_lost.ServerLost as error:
        backoff.wait(error)
        channel = None
        continue
      if step in (None, evaluated):  # The same weights come again at the end.
        time.sleep(0.2)
      else:
        self._plays = True
        played = self._evaluator.evaluate(self._told_to_stop)
        self._plays = False
        if played is not None:
          self._write(step, played)
          evaluated = step
          self._watchdog.progress()

  def _write(self, step: int, played: evaluation.Evaluation) -> None:
    row = make_row(self._experiment, step, played)
    logging.info('evaluator: %s', ', '.join(f'{k} {v:g}' for k, v in row.items()))
    last = metrics_csv.last_metrics(self._path)
    if last and last['learner_step'] >= step:
      # The learner went back to a checkpoint: later rows are about weights it has lost.
      self._rows = metrics_csv.MetricsWriter(self._path, resume_step=step - 1)
    self._rows.append(row)
    self._summaries.write(row)
    self._summaries.flush()
    self._gauges.show(row)
