r"""Runs an evaluator, which plays with the newest weights during training.

  gtrxl evaluator --gin_file=gin/gtrxl/t_maze_30_cpu.gin \
      --root_dir=runs/t_maze --server=localhost:8000

It writes a row of evaluations.csv for each evaluation, and ends with the run.
"""

import sys

from absl import flags

from gtrxl_tf.launch import program

from . import part

flags.adopt_module_key_flags(part)

_ROOT_DIR = flags.DEFINE_string(
    'root_dir', None, "The run's folder, or another, for the results.", required=True)
_SERVER = flags.DEFINE_string(
    'server', None, 'HOST:PORT of the Reverb server.', required=True)
_THREADS = flags.DEFINE_integer(
    'threads', 1, 'TensorFlow threads; 0 for as many as there are cores.',
    lower_bound=0)


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf.launch import parts

  sys.exit(parts.evaluate(
      part.settings(_THREADS.value), _SERVER.value, _ROOT_DIR.value))


if __name__ == '__main__':
  program.run(main)
