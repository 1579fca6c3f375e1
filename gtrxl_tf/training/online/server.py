"""The server of an online run: Reverb's tables of unrolls and weights."""

import time
from typing import Callable, Optional

from absl import logging

from gtrxl_tf.replay import server as server_lib
from gtrxl_tf.replay import server_lost
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences
from gtrxl_tf.training import gauges as gauges_lib
from gtrxl_tf.training.online import experiment as experiment_lib


def serve(experiment: experiment_lib.OnlineExperiment, port: int,
          should_stop: Callable[[], bool],
          gauges: Optional[gauges_lib.Gauges] = None) -> None:
  """Runs the Reverb server until told to stop.

  Args:
    experiment: the experiment of the run.
    port: the port to listen on.
    should_stop: called five times a second.
    gauges: shows how full the tables are.
  """
  settings = None if experiment.settings is None else differences.to_json(
      experiment.settings)
  server = server_lib.serve(port, experiment.layout, settings)
  logging.info('server: listening on port %d, on all interfaces', port)
  shown = time.monotonic()
  while not should_stop():
    time.sleep(0.2)
    if gauges is not None and gauges.listens and time.monotonic() - shown > 1:
      try:
        gauges.show(server_lib.sizes(port))
      except server_lost.ServerLost as error:  # The machine is overloaded.
        logging.warning('server: no gauges: %s', config.one_line(error))
      shown = time.monotonic()
  server.stop()
