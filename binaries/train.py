r"""Trains an agent on one machine: actors and a learner, then an evaluation.

  gtrxl train --gin_file=gin/gtrxl/numpad_2x2_cpu.gin \
      --root_dir=runs/numpad_2x2 --gin_bindings='Experiment.seed = 1'

  gtrxl train --env=CartPole-v1 --core=lstm --steps=200000 --root_dir=runs/cartpole

A run that is started again on the same folder, with the same settings, resumes. Other
numbers of steps, evaluations and the like need --allow_changes.
"""

import sys

from absl import flags

from gtrxl_tf.launch import processes
from gtrxl_tf.launch import program

from . import experiment_flags

flags.adopt_module_key_flags(experiment_flags)

_ROOT_DIR = flags.DEFINE_string('root_dir', None, "The run's folder.", required=True)
_ALLOW_CHANGES = flags.DEFINE_bool(
    'allow_changes', False, 'Continue with other numbers of steps, actors, evaluations '
    'or checkpoints than before; the earlier settings are kept as config.1.gin.')
_WANDB = flags.DEFINE_string(
    'wandb', None, 'A project of Weights & Biases; metrics and results go there, too.')


def main() -> None:
  named = [experiment_flags.ENV.value, experiment_flags.CORE.value]
  for flag, names in zip(('env', 'core'), named):
    if len(names) > 1:
      program.refuse(f'--{flag}={",".join(names)}: expected one; `gtrxl compare` takes '
                     'several')
  files, bindings = experiment_flags.gin(*(''.join(names) for names in named))
  sys.exit(processes.run('gtrxl_tf.launch.train:train', files, bindings, _ROOT_DIR.value,
                         _ALLOW_CHANGES.value, _WANDB.value, True))


if __name__ == '__main__':
  program.run(main)
