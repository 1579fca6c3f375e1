r"""Converts a published dataset to this library's format.

  gtrxl import_dataset --format=d4rl --output_dir=datasets/hopper_medium \
      --input=hopper_medium-v2.hdf5 --environment=Hopper-v2

If it is started again on the same folder, it resumes.
"""

import sys

from absl import flags
from absl import logging

from gtrxl_tf.launch import program

_FORMAT = flags.DEFINE_enum(
    'format', None, ['minari', 'rlds', 'd4rl', 'dqn_replay'], 'Format of the input.',
    required=True)
_INPUT = flags.DEFINE_string(
    'input', None, 'd4rl: an HDF5 file; minari: an id or a folder; otherwise a folder.',
    required=True)
_OUTPUT_DIR = flags.DEFINE_string(
    'output_dir', None, "The dataset's folder.", required=True)
_ENVIRONMENT = flags.DEFINE_string('environment', '', "The environment's name.")
_MAX_EPISODE_STEPS = flags.DEFINE_integer(
    'max_episode_steps', None, 'd4rl: steps after which episodes were cut off, if the '
    'file has no timeouts.', lower_bound=1)
_MAX_STEPS_PER_FILE = flags.DEFINE_integer(
    'max_steps_per_file', None, 'dqn_replay: steps to take from each file, about.',
    lower_bound=1)

_ACTION_NAMES = flags.DEFINE_list(
    'action_names', [], 'rlds, d4rl, dqn_replay: what each discrete action does; '
    'without names, the greatest action in the data gives their number.')


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf import datasets
  from gtrxl_tf.datasets import importers
  from gtrxl_tf.datasets import inspection
  from gtrxl_tf.settings import config

  for flag, formats in (
      (_MAX_EPISODE_STEPS, ['d4rl']), (_MAX_STEPS_PER_FILE, ['dqn_replay']),
      (_ACTION_NAMES, ['rlds', 'd4rl', 'dqn_replay'])):
    if flag.present and _FORMAT.value not in formats:
      program.refuse(f'--{flag.name} has no effect on --format={_FORMAT.value}: '
                      f'expected it with {", ".join(formats)} only')
  logging.set_verbosity(logging.ERROR)  # TensorFlow Datasets reports each step.
  try:
    if _FORMAT.value == 'minari':
      recording = importers.minari(_INPUT.value)
    elif _FORMAT.value == 'rlds':
      recording = importers.rlds(_INPUT.value, tuple(_ACTION_NAMES.value))
    elif _FORMAT.value == 'd4rl':
      recording = importers.d4rl(
          _INPUT.value, _MAX_EPISODE_STEPS.value, tuple(_ACTION_NAMES.value))
    else:
      recording = importers.dqn_replay(
          _INPUT.value, _MAX_STEPS_PER_FILE.value, tuple(_ACTION_NAMES.value))
    dataset = importers.import_dataset(
        recording, _OUTPUT_DIR.value, _ENVIRONMENT.value)
  except (config.ConfigError, datasets.DatasetError) as error:
    sys.exit(f'Stopped: {error}')
  except OSError as error:  # The disk is full, for example.
    sys.exit(f'Stopped: {error}. Run the same command to continue.')
  except KeyboardInterrupt:
    print('\nInterrupted. Run the same command to continue.')
    sys.exit(130)
  print(inspection.describe(dataset))


if __name__ == '__main__':
  program.run(main)
