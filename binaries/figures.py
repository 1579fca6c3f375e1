r"""Draws the pages and pictures of finished comparisons, from their index files.

  gtrxl figures --index=docs/runs/gates_by_depth.jsonl
  gtrxl figures --claims=docs/results/claims.toml

`gtrxl compare` writes an index, `runs.jsonl`, into its folder. The tables and pictures of
NAME.jsonl go to NAME.md and NAME.png beside it. A table of claims becomes the pages
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
  from gtrxl_tf.analysis import claims
  from gtrxl_tf.analysis import comparison
  from gtrxl_tf.analysis import runs
  from gtrxl_tf.settings import config

  if not _INDEX.value + _CLAIMS.value:
    program.refuse('Nothing to draw: expected --index or --claims')
  try:
    for path in map(pathlib.Path, _INDEX.value):
      title = path.stem.replace('_', ' ').capitalize()
      _, pictures = comparison.write(runs.read(path), path.parent, title, path.stem)
      print(path.with_suffix('.md'), *pictures, sep='\n')
    for path in map(pathlib.Path, _CLAIMS.value):
      book = claims.Book(path)
      for page, text in book.texts().items():
        files.write_atomically(page, text)
        print(page)
      for name in book.pictures:
        claims.draw(book, name, path.with_name(f'{name}.png'))
  except (config.ConfigError, files.DamagedFile, OSError) as error:
    sys.exit(f'Not drawn: {error}')


if __name__ == '__main__':
  program.run(main)
