"""An actor of a run: plays, and writes what happens to the Reverb server.

  python -m binaries.actor --gin_file=gin/gtrxl/t_maze_30_cpu.gin \
      --server=localhost:8000 --index=0

It waits for server and learner, acts with the newest target network, and comes back to
a server that went away. On SIGTERM it waits for what it has written to be taken. When
the learner has come to the run's end, it ends too.
"""

import random
import sys
import time

from absl import app
from absl import flags

from binaries import metrics
from binaries import settings
from gtrxl_tf.training import actor
from gtrxl_tf.training import patience
from gtrxl_tf.training import train

_SERVER = flags.DEFINE_string(
    'server', None, 'HOST:PORT of the Reverb server.', required=True)
_INDEX = flags.DEFINE_integer(
    'index', None, "Of the run's actors, from 0: decides the tasks that it plays and "
    'what it draws. Without one it is drawn.', lower_bound=0)
_THREADS = flags.DEFINE_integer(
    'threads', 1, 'Of TensorFlow; 0 for as many as there are cores.', lower_bound=0)


def main(argv):
  del argv
  index = random.randrange(2**20) if _INDEX.value is None else _INDEX.value
  sys.exit(train.run_part(
      'actor', settings.GIN_FILE.value, settings.GIN_BINDINGS.value,
      lambda experiment, should_stop, gauges: actor.Actor(
          experiment, patience.check_address(_SERVER.value), index, should_stop,
          # Another one each time it is started, so that no episode comes again.
          life=int(time.time()), gauges=gauges).run(),
      metrics.HOST.value, metrics.PORT.value, _THREADS.value))


if __name__ == '__main__':
  app.run(main)
