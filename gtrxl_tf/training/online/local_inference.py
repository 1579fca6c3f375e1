"""An inference server in the process of a learner."""

import threading
import time
from typing import Optional

from gtrxl_tf.training import trainer
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import inference


class LocalInference:
  """Runs an `InferenceServer` in a thread; use it as a context."""

  def __init__(self, experiment: experiment_lib.OnlineExperiment,
               process: trainer.Process):
    """Makes the server's policy.

    Args:
      experiment: the experiment of the run.
      process: the learner's process, with `inference`.
    """
    self._ended = threading.Event()
    self._should_stop = process.should_stop
    where = process.inference
    # The number of this start is the time in ns: this process knows no earlier start.
    self._server = inference.InferenceServer(
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
    end = time.monotonic() + inference.TELL_SECONDS
    while self._thread.is_alive() and time.monotonic() < end and not self._should_stop():
      self._thread.join(0.1)

  def __exit__(self, *_) -> None:
    self._ended.set()
    self._thread.join()
