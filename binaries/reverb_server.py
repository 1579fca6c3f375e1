"""The Reverb server of a run: its queue of unrolls and its table of weights.

  python -m binaries.reverb_server --gin_file=gin/gtrxl/t_maze_30_cpu.gin \
      --root_dir=runs/t_maze --port=8000

It listens on all interfaces, because Reverb has no setting for that, and has no
authentication: let a firewall admit the run's machines alone. On SIGTERM it writes its
tables to replay/ in the root folder, and goes on from there when it is started again.
"""

import sys

from absl import app
from absl import flags

from binaries import part
from gtrxl_tf.launch import parts

_ROOT_DIR = flags.DEFINE_string(
    'root_dir', None, "The run's folder, or another.", required=True)
_PORT = flags.DEFINE_integer(
    'port', 8000, 'The port to listen on.', lower_bound=1, upper_bound=65535)
_CHECKPOINT_SECONDS = flags.DEFINE_float(
    'checkpoint_seconds', 600,
    'Seconds between checkpoints of the tables, beside that on SIGTERM. What waits in '
    'the queue is soon too old to be trained on.', lower_bound=1)


def main(argv) -> None:
  del argv
  sys.exit(parts.serve(
      part.settings(threads=1), _ROOT_DIR.value, _PORT.value,
      _CHECKPOINT_SECONDS.value))


if __name__ == '__main__':
  app.run(main)
