r"""Trains an agent on one machine: actors and a learner, then an evaluation.

  gtrxl train --gin_file=gin/gtrxl/numpad_2x2_cpu.gin \
      --root_dir=runs/numpad_2x2 --gin_bindings='Experiment.seed = 1'

A run that is started again on the same folder, with the same settings, resumes. Other
numbers of steps, evaluations and the like need --allow_changes.
"""

import sys

from absl import flags

from gtrxl_tf.launch import processes
from gtrxl_tf.launch import program

from . import settings

flags.adopt_module_key_flags(settings)

_ROOT_DIR = flags.DEFINE_string('root_dir', None, "The run's folder.", required=True)
_ALLOW_CHANGES = flags.DEFINE_bool(
    'allow_changes', False, 'Continue with other numbers of steps, actors, evaluations '
    'or checkpoints than before; the earlier settings are kept as config.1.gin.')
_WANDB = flags.DEFINE_string(
    'wandb', None, 'A project of Weights & Biases; metrics and results go there, too.')


def main() -> None:
  sys.exit(processes.run(
      'gtrxl_tf.launch.train', 'train', settings.GIN_FILE.value,
      settings.GIN_BINDINGS.value, _ROOT_DIR.value, True,
      _ALLOW_CHANGES.value, _WANDB.value))


if __name__ == '__main__':
  program.run(main)
