"""Draws the tables and pictures of finished comparisons, from their index files.

  gtrxl figures --index=runs/compare_numpad_2x2/runs.jsonl

`gtrxl compare` writes an index, `runs.jsonl`, into its folder. The tables and pictures of
NAME.jsonl go to NAME.md and NAME.png beside it.
"""

import pathlib
import sys

from absl import flags

from gtrxl_tf.launch import program

_INDEX = flags.DEFINE_multi_string('index', None, 'An index file.', required=True)


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf import files
  from gtrxl_tf.analysis import comparison
  from gtrxl_tf.analysis import runs
  from gtrxl_tf.settings import config

  try:
    for path in map(pathlib.Path, _INDEX.value):
      title = path.stem.replace('_', ' ').capitalize()
      _, pictures = comparison.write(runs.read(path), path.parent, title, path.stem)
      print(path.with_suffix('.md'), *pictures, sep='\n')
  except (config.ConfigError, files.DamagedFile, OSError) as error:
    sys.exit(f'Not drawn: {error}')


if __name__ == '__main__':
  program.run(main)
