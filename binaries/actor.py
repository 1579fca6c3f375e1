r"""Runs an actor, which plays and writes its unrolls to the Reverb server.

  gtrxl actor --gin_file=gin/gtrxl/t_maze_30_cpu.gin \
      --server=localhost:8000 --index=0

It waits for the server and the learner, acts with the newest weights, and reconnects
to a server that it has lost. On SIGTERM it waits briefly until its last unrolls are in
the queue. It ends when the run is over.
"""

import random
import sys
import time

from absl import flags

import binaries
from binaries import part

flags.adopt_module_key_flags(part)

_SERVER = flags.DEFINE_string(
    'server', None, 'HOST:PORT of the Reverb server.', required=True)
_INDEX = flags.DEFINE_integer(
    'index', None, "The actor's index, from 0, which decides the tasks that it plays "
    'and its random numbers. By default it is random.', lower_bound=0)
_THREADS = flags.DEFINE_integer(
    'threads', 1, 'TensorFlow threads; 0 for as many as there are cores.',
    lower_bound=0)


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf.launch import parts

  index = random.randrange(2**20) if _INDEX.value is None else _INDEX.value
  # The time in ns: this process knows no earlier one, whose episodes it must not repeat.
  sys.exit(parts.act(
      part.settings(_THREADS.value), _SERVER.value, index, time.time_ns()))


if __name__ == '__main__':
  binaries.run(main)
