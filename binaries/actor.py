r"""Runs an actor, which plays and writes its unrolls to the Reverb server.

  gtrxl actor --gin_file=gin/gtrxl/t_maze_30_cpu.gin \
      --server=localhost:8000 --index=0

It waits for the server and the learner, acts with the newest weights, and reconnects
to a server that it has lost. On SIGTERM it waits briefly until its last unrolls are in
the queue. It ends when the run is over.

With --inference it only steps the environments of Inference.actors_per_process actors.
An inference server acts for them, and writes their unrolls:

  gtrxl actor --gin_file=gin/gtrxl/t_maze_30_cpu.gin \
      --inference=localhost:8001 --index=0
"""

import random
import sys

from absl import flags

from gtrxl_tf.launch import program

from . import part

flags.adopt_module_key_flags(part)

_SERVER = flags.DEFINE_string('server', None, 'HOST:PORT of the Reverb server.')
_INFERENCE = flags.DEFINE_string(
    'inference', None, 'HOST:PORT of an inference server, which then acts.')
_INDEX = flags.DEFINE_integer(
    'index', None, "The actor's index, from 0, which decides the tasks that it plays "
    'and its random numbers. By default it is random. With --inference, the number of '
    'the process, which is required.', lower_bound=0)
_THREADS = flags.DEFINE_integer(
    'threads', 1, 'TensorFlow threads; 0 for as many as there are cores.',
    lower_bound=0)


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf.launch import parts

  settings, index = part.settings(_THREADS.value), _INDEX.value
  if bool(_SERVER.value) == bool(_INFERENCE.value):
    program.refuse('expected either --server=HOST:PORT or --inference=HOST:PORT')
  if _INFERENCE.value and index is None:
    program.refuse('--inference without --index: expected the number of this process')
  if _INFERENCE.value:
    sys.exit(parts.play(settings, _INFERENCE.value, index))
  if index is None:
    index = random.randrange(2**20)
  sys.exit(parts.act(settings, _SERVER.value, index))


if __name__ == '__main__':
  program.run(main)
