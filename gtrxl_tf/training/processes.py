"""The parts of a run, each as the main function of a process."""

# A process imports TensorFlow and what needs it after it has set itself up.
# pylint: disable=g-import-not-at-top

import os
import signal
import threading
import time
from typing import Callable, NamedTuple

from absl import logging
import gin

from gtrxl_tf.training import run_folder


class Parts(NamedTuple):
  """What every process of a run is told."""
  config: str  # Gin.
  root: str    # The run's folder.
  port: int    # The Reverb server's.


def _start(parts: Parts, threads: int) -> Callable[[], bool]:
  """Prepares a child process; returns what says whether it should stop.

  It should on SIGTERM, and when the process that started it is gone. SIGINT is left to
  that process: a terminal sends it to all.
  """
  stop = threading.Event()
  signal.signal(signal.SIGTERM, lambda *_: stop.set())
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  parent = os.getppid()

  def watch():
    while os.getppid() == parent:
      time.sleep(1)
    stop.set()
    time.sleep(20)
    os._exit(1)  # Whatever it waits for will not come.

  threading.Thread(target=watch, daemon=True).start()
  logging.set_verbosity(logging.INFO)
  import tensorflow as tf
  tf.config.threading.set_intra_op_parallelism_threads(threads)
  tf.config.threading.set_inter_op_parallelism_threads(threads)
  import gtrxl_tf.configurables  # pylint: disable=unused-import
  gin.parse_config(parts.config)
  return stop.is_set


def serve(parts: Parts) -> None:
  """Runs the Reverb server."""
  should_stop = _start(parts, threads=1)
  from gtrxl_tf.replay import server
  from gtrxl_tf.training import experiment as experiment_lib
  experiment = experiment_lib.Experiment()
  running = server.serve(
      parts.port, experiment.row_spec(), experiment.unroll_length,
      experiment.memory_length, experiment.queue_size,
      experiment.acting_network.variables)
  while not should_stop():
    time.sleep(0.2)
  running.stop()


def act(parts: Parts, index: int, life: int) -> None:
  """Runs an actor."""
  should_stop = _start(parts, threads=1)
  from gtrxl_tf.training import actor
  from gtrxl_tf.training import experiment as experiment_lib
  actor.Actor(experiment_lib.Experiment(), f'localhost:{parts.port}', index,
              should_stop, life).run()


def learn(parts: Parts) -> None:
  """Runs the learner; says in the run's folder how it ended."""
  should_stop = _start(parts, threads=0)
  import tensorflow as tf
  from gtrxl_tf.training import experiment as experiment_lib
  from gtrxl_tf.training import learner as learner_lib
  from gtrxl_tf.training import online
  folder = run_folder.RunFolder(parts.root)
  training = online.OnlineTraining(
      experiment_lib.Experiment(), f'localhost:{parts.port}', folder, should_stop,
      tf.distribute.get_strategy())
  try:
    if training.run():
      training.export()
      run_folder.write_atomically(folder.done, 'The run took all its steps.\n')
  except learner_lib.Diverged as error:
    run_folder.write_atomically(folder.diverged, f'{error}\n')
