"""Checks a dataset, prints a summary of it, and draws its contents.

  gtrxl inspect_dataset --dataset=datasets/t_maze_30
"""

import pathlib
import sys

from absl import flags

from gtrxl_tf.launch import program

_DATASET = flags.DEFINE_string('dataset', None, "The dataset's folder.", required=True)
_PICTURE = flags.DEFINE_string(
    'picture', None, 'The picture to write; by default dataset.png in the folder.')


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf import datasets
  from gtrxl_tf.datasets import inspection

  picture = pathlib.Path(_PICTURE.value or
                         pathlib.Path(_DATASET.value) / 'dataset.png')
  if picture.suffix not in ('.png', '.svg', '.pdf'):
    program.refuse(f'--picture={picture}: expected a name that ends with .png, .svg or '
                    '.pdf')
  try:
    dataset = datasets.check(_DATASET.value)
    print(inspection.describe(dataset))
    inspection.draw(dataset, picture)
  except (datasets.DatasetError, OSError) as error:  # The picture cannot be written.
    sys.exit(str(error))
  print(f'Nothing is damaged. Picture: {picture}')


if __name__ == '__main__':
  program.run(main)
