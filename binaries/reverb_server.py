r"""Runs the Reverb server of a run, with its queue of unrolls and its table of weights.

  gtrxl reverb_server --gin_file=gin/gtrxl/t_maze_30_cpu.gin \
      --port=8000

Reverb has no authentication, and it always listens on all interfaces: use a firewall
that admits only the run's machines. A server that is started again has empty tables:
the learner gives it the newest weights, and actors fill its queue.
"""

import sys

from absl import flags

from gtrxl_tf.launch import program

from . import part

flags.adopt_module_key_flags(part)

_PORT = flags.DEFINE_integer(
    'port', 8000, 'The port to listen on.', lower_bound=1, upper_bound=65535)


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf.launch import parts

  sys.exit(parts.serve(part.settings(threads=1), _PORT.value))


if __name__ == '__main__':
  program.run(main)
