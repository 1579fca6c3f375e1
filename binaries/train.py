"""Trains an agent on one machine: Reverb server, actors, learner, then evaluation.

  python -m binaries.train --gin_file=gin/gtrxl/numpad_2x2_cpu.gin \
      --root_dir=runs/numpad_2x2 --gin_bindings='Experiment.seed = 1'

A run that is started again on the same folder resumes.
"""

import sys

from absl import app
from absl import flags

from binaries import settings
from gtrxl_tf.launch import processes

_ROOT_DIR = flags.DEFINE_string('root_dir', None, "The run's folder.", required=True)


def main(argv) -> None:
  del argv
  sys.exit(processes.run(
      'gtrxl_tf.launch.train', 'train', settings.GIN_FILE.value,
      settings.GIN_BINDINGS.value, _ROOT_DIR.value, True))


if __name__ == '__main__':
  app.run(main)
