"""An evaluator of a run: plays with the newest weights while the others train.

  python -m binaries.evaluator --gin_file=gin/gtrxl/t_maze_30_cpu.gin \
      --root_dir=runs/t_maze --server=localhost:8000

It writes a row of evaluations.csv for each evaluation, and ends with the run.
"""

import sys

from absl import app
from absl import flags

from binaries import metrics
from binaries import settings
from gtrxl_tf.training import evaluator
from gtrxl_tf.training import patience
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import train

_ROOT_DIR = flags.DEFINE_string(
    'root_dir', None, "For what is found: the run's folder, or another.", required=True)
_SERVER = flags.DEFINE_string(
    'server', None, 'HOST:PORT of the Reverb server.', required=True)
_THREADS = flags.DEFINE_integer(
    'threads', 1, 'Of TensorFlow; 0 for as many as there are cores.', lower_bound=0)


def main(argv):
  del argv
  sys.exit(train.run_part(
      'evaluator', settings.GIN_FILE.value, settings.GIN_BINDINGS.value,
      lambda experiment, should_stop, gauges: evaluator.OnlineEvaluation(
          experiment, patience.check_address(_SERVER.value),
          run_folder.RunFolder(_ROOT_DIR.value), should_stop, gauges).run(),
      metrics.HOST.value, metrics.PORT.value, _THREADS.value))


if __name__ == '__main__':
  app.run(main)
