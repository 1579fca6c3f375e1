"""An inference server in the process of a learner."""

import threading
import time
from typing import Optional, Sequence

import tensorflow as tf

from gtrxl_tf.replay import weights
from gtrxl_tf.training import trainer
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import inference


class LocalInference:
  """Runs an `InferenceServer` in a thread; use it as a context.

  The learner publishes its weights to it directly.
  """

  def __init__(self, experiment: experiment_lib.OnlineExperiment,
               process: trainer.Process, variables: Sequence[tf.Variable]):
    """Makes the server's policy.

    Args:
      experiment: the experiment of the run.
      process: the learner's process, with `inference`.
      variables: the variables of the learner's network that acts.
    """
    self._weights = weights.LocalWeights(
        variables, experiment.acting_network.variables)
    self._ended = threading.Event()
    self._should_stop = process.should_stop
    where = process.inference
    # The number of this start is the time in ns: this process knows no earlier start.
    self._server = inference.InferenceServer(
        experiment, process.server, where.port, self._ended.is_set, time.time_ns(),
        process.gauges.of_part('inference'), where.host, where.device, self._weights)
    self._error: Optional[Exception] = None
    self._finished = False
    self._thread = threading.Thread(target=self._run, daemon=True)

  def _run(self) -> None:
    try:
      self._server.run()
    except Exception as error:  # pylint: disable=broad-exception-caught
      self._error = error

  def publish(self, step: int, finished: bool) -> None:
    """Gives the server the learner's weights; `finished` marks the run's last."""
    self._weights.publish(step, finished)
    self._finished = finished

  def check(self) -> None:
    """Raises the error that has ended the server, if one has."""
    if self._error is not None:
      raise self._error

  def __enter__(self) -> 'LocalInference':
    self._thread.start()
    return self

  def __exit__(self, *_) -> None:
    # At the end of a run the server tells its actors, and ends by itself.
    while self._finished and self._thread.is_alive() and not self._should_stop():
      self._thread.join(0.1)
    self._ended.set()
    self._thread.join()
