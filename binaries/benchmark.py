"""Times GTrXL as a memory core: a training step over unrolls, and a step of acting.

  python -m binaries.benchmark --config=small --config=paper --json=/tmp/gtrxl_tf.json

The fields of the rows are explained in `gtrxl_tf.benchmarks.cores`.
"""

import json
import multiprocessing
import pathlib

from absl import app
from absl import flags

_CONFIGS = flags.DEFINE_multi_enum(
    'config', ['tiny', 'small', 'paper'], ['tiny', 'small', 'paper'], 'Sizes to time.')
_REPEAT = flags.DEFINE_integer(
    'repeat', 5, 'Training steps to time; five times as many acting steps.',
    lower_bound=1)
_THREADS = flags.DEFINE_integer('threads', 1, 'Threads per op.', lower_bound=1)
_XLA = flags.DEFINE_bool('xla', False, 'Compile with XLA.')
_JSON = flags.DEFINE_string('json', None, 'A file for the rows.')


def main(argv) -> None:
  del argv
  from gtrxl_tf.benchmarks import cores as cores_lib  # pylint: disable=import-outside-toplevel

  rows = []
  # A process for each, so that they share no memory or caches.
  with multiprocessing.get_context('spawn').Pool(1, maxtasksperchild=1) as pool:
    for config in _CONFIGS.value:
      rows.append(pool.apply(
          cores_lib.measure, (config, _REPEAT.value, _THREADS.value, _XLA.value)))
      print(json.dumps(rows[-1]), flush=True)
  print(cores_lib.table(rows))
  if _JSON.value:
    pathlib.Path(_JSON.value).write_text(json.dumps(rows, indent=1))


if __name__ == '__main__':
  app.run(main)
