"""The parts of a run on one machine, each as the main function of a process."""

# A process imports TensorFlow and what needs it after it has set itself up.
# pylint: disable=g-import-not-at-top

import contextlib
import os
import signal
import sys
import threading
import time
from typing import Callable, Iterator, NamedTuple

from absl import logging
import gin

from gtrxl_tf.training import run_folder
from gtrxl_tf.training import signals


class Parts(NamedTuple):
  """What every process of a run is told."""
  config: str  # Gin.
  root: str    # The run's folder.
  port: int    # The Reverb server's.

  @property
  def address(self) -> str:
    return f'localhost:{self.port}'

  @property
  def folder(self) -> run_folder.RunFolder:
    return run_folder.RunFolder(self.root)


@contextlib.contextmanager
def _part(parts: Parts, threads: int) -> Iterator[Callable[[], bool]]:
  """Prepares a child process; gives what says whether it should stop.

  It should on SIGTERM, and when the process that started it is gone. SIGINT is left to
  that process: a terminal sends it to all.
  """
  orphaned = threading.Event()
  parent = os.getppid()

  def watch():
    while os.getppid() == parent:
      time.sleep(1)
    orphaned.set()
    time.sleep(20)
    os._exit(1)  # Whatever it waits for will not come.

  threading.Thread(target=watch, daemon=True).start()
  logging.set_verbosity(logging.INFO)
  import tensorflow as tf
  tf.config.threading.set_intra_op_parallelism_threads(threads)
  tf.config.threading.set_inter_op_parallelism_threads(threads)
  import gtrxl_tf.configurables  # pylint: disable=unused-import
  gin.parse_config(parts.config)
  with signals.stop_requested(signal.SIGTERM) as should_stop:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield lambda: should_stop() or orphaned.is_set()


def serve(parts: Parts) -> None:
  """Runs the Reverb server."""
  with _part(parts, threads=1) as should_stop:
    from gtrxl_tf.training import experiment
    from gtrxl_tf.training import parts as parts_lib
    parts_lib.serve(experiment.Experiment(), parts.port, parts.folder, should_stop)


def act(parts: Parts, index: int, life: int) -> None:
  """Runs an actor."""
  with _part(parts, threads=1) as should_stop:
    from gtrxl_tf.training import actor
    from gtrxl_tf.training import experiment
    try:
      actor.Actor(
          experiment.Experiment(), parts.address, index, should_stop, life).run()
    except actor.ActingFailed as error:
      sys.exit(f'actor {index}: {error}')


def learn(parts: Parts) -> None:
  """Runs the learner; says in the run's folder how it ended."""
  with _part(parts, threads=0) as should_stop:
    import tensorflow as tf
    from gtrxl_tf.training import experiment
    from gtrxl_tf.training import parts as parts_lib
    failure = parts_lib.learn(
        experiment.Experiment(), parts.address, parts.folder, should_stop,
        tf.distribute.get_strategy())
    if failure:
      sys.exit(f'learner: {failure}')


def evaluate(parts: Parts) -> None:
  """Runs an evaluator."""
  with _part(parts, threads=1) as should_stop:
    from gtrxl_tf.training import evaluator
    from gtrxl_tf.training import experiment
    evaluator.OnlineEvaluation(
        experiment.Experiment(), parts.address, parts.folder, should_stop).run()
