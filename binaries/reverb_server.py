"""The Reverb server of a run: its queue of unrolls and its table of weights.

  python -m binaries.reverb_server --gin_file=gin/gtrxl/t_maze_30_cpu.gin \
      --root_dir=runs/t_maze --port=8000

It listens on all interfaces, as Reverb has no setting for that, and asks nobody who he
is: let a firewall admit the run's machines alone. On SIGTERM it writes its tables to
replay/ in the root folder, and goes on from there when it is started again.
"""

import sys

from absl import app
from absl import flags

from binaries import metrics
from binaries import settings
from gtrxl_tf.training import parts
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import train

_ROOT_DIR = flags.DEFINE_string(
    'root_dir', None, "The run's folder, or another.", required=True)
_PORT = flags.DEFINE_integer(
    'port', 8000, 'To listen on.', lower_bound=1, upper_bound=65535)
_CHECKPOINT_SECONDS = flags.DEFINE_float(
    'checkpoint_seconds', 600,
    'Between checkpoints of the tables, beside that on SIGTERM. What waits in the '
    'queue is soon too old to be trained on.', lower_bound=1)


def main(argv):
  del argv
  sys.exit(train.run_part(
      'server', settings.GIN_FILE.value, settings.GIN_BINDINGS.value,
      lambda experiment, should_stop, gauges: parts.serve(
          experiment, _PORT.value, run_folder.RunFolder(_ROOT_DIR.value), should_stop,
          _CHECKPOINT_SECONDS.value, gauges),
      metrics.HOST.value, metrics.PORT.value))


if __name__ == '__main__':
  app.run(main)
