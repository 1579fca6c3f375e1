"""The server of an online run: Reverb's tables of unrolls and weights."""

import math
import time
from typing import Callable, Optional

from absl import logging

from gtrxl_tf import files
from gtrxl_tf.replay import server as server_lib
from gtrxl_tf.replay import server_lost
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences
from gtrxl_tf.training import gauges as gauges_lib
from gtrxl_tf.training import run_folder
from gtrxl_tf.training.online import agreement
from gtrxl_tf.training.online import experiment as experiment_lib


def serve(experiment: experiment_lib.OnlineExperiment, port: int,
          folder: run_folder.RunFolder, should_stop: Callable[[], bool],
          checkpoint_seconds: float = math.inf,
          gauges: Optional[gauges_lib.Gauges] = None) -> None:
  """Runs the Reverb server until told to stop; then writes a checkpoint of its tables.

  Args:
    experiment: the experiment of the run.
    port: the port to listen on.
    folder: the run's folder; the tables' checkpoints go into `replay/`.
    should_stop: called five times a second.
    checkpoint_seconds: seconds between checkpoints. There is little to save: the queue
      holds one batch, which is soon too old to be trained on.
    gauges: shows how full the tables are.
  """
  agreement.check_tables(folder.replay, experiment.settings)
  settings = None if experiment.settings is None else differences.to_json(
      experiment.settings)
  server = server_lib.serve(
      port, experiment.row_spec(), experiment.unroll_length, experiment.memory_length,
      experiment.queue_size, experiment.acting_network.variables, folder.replay,
      settings, experiment.half_transfer)
  if settings is not None:
    files.write_atomically(folder.replay / agreement.SETTINGS, settings)
  logging.info('server: listening on port %d, on all interfaces', port)
  saved = shown = time.monotonic()
  while not should_stop():
    time.sleep(0.2)
    if gauges is not None and gauges.listens and time.monotonic() - shown > 1:
      try:
        gauges.show(server_lib.sizes(port))
      except server_lost.ServerLost as error:  # The machine is overloaded.
        logging.warning('server: no gauges: %s', config.one_line(error))
      shown = time.monotonic()
    if time.monotonic() - saved > checkpoint_seconds:
      server_lib.checkpoint(port)
      saved = time.monotonic()
  server_lib.checkpoint(port)
  server.stop()
