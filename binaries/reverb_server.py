r"""Runs the Reverb server of a run, with its queue of unrolls and its table of weights.

  gtrxl reverb_server --gin_file=gin/gtrxl/t_maze_30_cpu.gin \
      --root_dir=runs/t_maze --port=8000

Reverb has no authentication, and it always listens on all interfaces: use a firewall
that admits only the run's machines. On SIGTERM the server writes its tables to replay/
in the root folder; it restores them when it is started again.
"""

import sys

from absl import flags

import binaries
from binaries import part

flags.adopt_module_key_flags(part)

_ROOT_DIR = flags.DEFINE_string(
    'root_dir', None, "The run's folder, or another.", required=True)
_PORT = flags.DEFINE_integer(
    'port', 8000, 'The port to listen on.', lower_bound=1, upper_bound=65535)
_CHECKPOINT_SECONDS = flags.DEFINE_float(
    'checkpoint_seconds', 600,
    'Seconds between checkpoints of the tables, besides the one on SIGTERM. Queued '
    'data is soon too old to be trained on.', lower_bound=1)


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf.launch import parts

  sys.exit(parts.serve(
      part.settings(threads=1), _ROOT_DIR.value, _PORT.value,
      _CHECKPOINT_SECONDS.value))


if __name__ == '__main__':
  binaries.run(main)
