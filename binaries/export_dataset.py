r"""Converts a dataset to a format of other libraries.

  gtrxl export_dataset --dataset=datasets/my_t_maze --format=minari \
      --output=my_t_maze-v0
"""

import sys

from absl import flags
from absl import logging

from gtrxl_tf.launch import program

_DATASET = flags.DEFINE_string('dataset', None, "The dataset's folder.", required=True)
_FORMAT = flags.DEFINE_enum(
    'format', None, ['minari', 'rlds'], 'Format of the output.', required=True)
_OUTPUT = flags.DEFINE_string(
    'output', None, 'minari: the id; the folder is below MINARI_DATASETS_PATH, or '
    '~/.minari/datasets. rlds: a new folder.', required=True)


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf import datasets
  from gtrxl_tf.datasets import exporters
  from gtrxl_tf.settings import config

  logging.set_verbosity(logging.ERROR)  # TensorFlow Datasets reports each step.
  try:
    dataset = datasets.check(_DATASET.value)
    folder = getattr(exporters, _FORMAT.value)(dataset, _OUTPUT.value)
  except (config.ConfigError, datasets.DatasetError, OSError) as error:
    sys.exit(f'Stopped: {error}')
  print(f'{dataset.num_episodes:,} episodes and {dataset.num_steps:,} steps are in '
        f'{folder}')


if __name__ == '__main__':
  program.run(main)
