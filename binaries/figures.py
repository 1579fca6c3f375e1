r"""Draws the pictures and tables of finished comparisons, from their index files.

  gtrxl figures --index=docs/runs/gates_by_depth.jsonl --page=docs/results.md

`gtrxl compare` writes an index, `runs.jsonl`, into its folder. The table and pictures of
NAME.jsonl go to NAME.md, NAME.png and NAME.svg beside it. In a page, the text between
`<!-- runs: NAME -->` and `<!-- end of runs -->` is replaced by the table.
"""

import pathlib
import sys

from absl import flags
from absl import logging

from gtrxl_tf.launch import program

_INDEX = flags.DEFINE_multi_string(
    'index', None, 'An index file.', required=True)
_PAGE = flags.DEFINE_multi_string(
    'page', [], 'A Markdown page with marks where tables belong.')


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf import files
  from gtrxl_tf.analysis import figures
  from gtrxl_tf.settings import config

  names = [pathlib.Path(path).stem for path in _INDEX.value]
  repeated = {name for name in names if names.count(name) > 1}
  if _PAGE.value and repeated:  # A page names a table by its index's name.
    program.refuse(f'--index has several files named {min(repeated)}: expected '
                    'different names with --page')
  logging.set_verbosity(logging.WARNING)  # rliable logs each of its calculations.
  tables = {}
  try:
    for path in map(pathlib.Path, _INDEX.value):
      for written in figures.write(path):
        print(written)
      tables[path.stem] = path.with_suffix('.md').read_text(encoding='utf-8')
    for page in _PAGE.value:
      figures.insert_tables(pathlib.Path(page), tables)
  except (config.ConfigError, files.DamagedFile, OSError) as error:
    sys.exit(f'Not drawn: {error}')


if __name__ == '__main__':
  program.run(main)
