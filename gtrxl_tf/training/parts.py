"""The parts of an online run. Each may live on a machine of its own."""

import math
import time
from typing import Callable, Optional

from absl import logging
import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf import files
from gtrxl_tf.replay import server as server_lib
from gtrxl_tf.training import devices
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import gauges as gauges_lib
from gtrxl_tf.training import learner as learner_lib
from gtrxl_tf.training import online
from gtrxl_tf.training import patience
from gtrxl_tf.training import run_folder


def serve(experiment: experiment_lib.Experiment, port: int,
          folder: run_folder.RunFolder, should_stop: Callable[[], bool],
          checkpoint_seconds: float = math.inf,
          gauges: Optional[gauges_lib.Gauges] = None) -> None:
  """Runs the Reverb server until told to stop; then it writes a checkpoint.

  Args:
    experiment: the run's.
    port: to listen on.
    folder: of the run; the tables' checkpoints go into `replay/`.
    should_stop: asked five times a second.
    checkpoint_seconds: between checkpoints. What waits in the queue is soon too old to
      be trained on, and is as much as a batch, so there is little to be saved.
    gauges: are shown how full the tables are.
  """
  server = server_lib.serve(
      port, experiment.row_spec(), experiment.unroll_length, experiment.memory_length,
      experiment.queue_size, experiment.acting_network.variables, folder.replay)
  logging.info('server: listening on port %d, on all interfaces', port)
  saved = shown = time.time()
  while not should_stop():
    time.sleep(0.2)
    if gauges is not None and gauges.listens and time.time() - shown > 1:
      try:
        gauges.show(server_lib.sizes(port))
      except patience.SERVER_ERRORS as error:  # On a machine that is out of breath.
        logging.warning('server: no gauges: %s', config.one_line(error))
      shown = time.time()
    if time.time() - saved > checkpoint_seconds:
      server_lib.checkpoint(port)
      saved = time.time()
  server_lib.checkpoint(port)
  server.stop()


def learn(experiment: experiment_lib.Experiment, address: str,
          folder: run_folder.RunFolder, should_stop: Callable[[], bool],
          strategy: tf.distribute.Strategy,
          gauges: Optional[gauges_lib.Gauges] = None) -> Optional[str]:
  """Runs the learner; says in the run's folder how it ended, if it came to an end.

  Returns:
    Why it failed, if it did.
  """
  try:
    training = online.OnlineTraining(
        experiment, address, folder, should_stop, strategy, gauges)
    if training.run() and devices.is_chief(strategy):
      training.export()
      # Last, as a run that is done tells nobody any more.
      if training.announce_end():
        files.write_atomically(folder.done, 'The run took all its steps.\n')
  except learner_lib.Diverged as error:
    if devices.is_chief(strategy):
      files.write_atomically(folder.diverged, f'{error}\n')
    return str(error)
  except learner_lib.StepFailed as error:
    return str(error)
  return None
