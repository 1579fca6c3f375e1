r"""Draws the pages and pictures of finished comparisons, from their index files.

  gtrxl figures --index=docs/runs/gates_by_depth.jsonl
  gtrxl figures --claims=docs/results/claims.toml

`gtrxl compare` writes an index, `runs.jsonl`, into its folder. The tables and pictures of
NAME.jsonl go to NAME.md and NAME_curves.png beside it. A table of claims becomes the pages
of docs/results.md and docs/results/, with their pictures: `make figures`.
"""

import pathlib
import sys

from absl import flags

from gtrxl_tf.launch import program

_INDEX = flags.DEFINE_multi_string('index', [], 'An index file.')
_CLAIMS = flags.DEFINE_multi_string('claims', [], 'A table of claims.')


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf import files
  from gtrxl_tf.analysis import figures
  from gtrxl_tf.settings import config

  if not _INDEX.value + _CLAIMS.value:
    program.refuse('Nothing to draw: expected --index or --claims')
  try:
    for path in _INDEX.value:
      print(*figures.write(pathlib.Path(path)), sep='\n')
    for path in _CLAIMS.value:
      print(*figures.write_pages(pathlib.Path(path)), sep='\n')
  except (config.ConfigError, files.DamagedFile, OSError) as error:
    sys.exit(f'Not drawn: {error}')


if __name__ == '__main__':
  program.run(main)
