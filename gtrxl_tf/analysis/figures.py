"""Pages and pictures of finished comparisons, from their index files."""

import pathlib
from typing import List

from gtrxl_tf import files
from gtrxl_tf.analysis import claim_pictures
from gtrxl_tf.analysis import claims
from gtrxl_tf.analysis import comparison
from gtrxl_tf.analysis import comparison_plots
from gtrxl_tf.analysis import runs


def write(path: pathlib.Path) -> List[pathlib.Path]:
  """Writes the table and the pictures of an index file beside it, as `gtrxl compare` does.

  Returns:
    The files: `NAME.md`, the tables, and `NAME_curves.png` and further ones, see
    `comparison_plots.pictures`.
  """
  index = runs.read(path).short()
  written = [path.with_suffix('.md')]
  files.write_atomically(written[0], comparison.tables(index))
  title = path.stem.replace('_', ' ').capitalize()
  for name, draw in comparison_plots.pictures(index, title).items():
    written.append(path.with_name(f'{path.stem}_{name}.png'))
    draw(written[-1])
  return written


def pages(path: pathlib.Path) -> 'dict[pathlib.Path, str]':
  """Returns the pages of a table of claims: `../results.md`, and those beside the table."""
  book = claims.Book(path)
  return {path.parents[1] / 'results.md': book.overview(),
          **{path.with_name(f'{name}.md'): book.page(name) for name in book.pages}}


def write_pages(path: pathlib.Path) -> List[pathlib.Path]:
  """Writes the pages and pictures of a table of claims; returns the files."""
  written = pages(path)
  for page, text in written.items():
    files.write_atomically(page, text)
  book = claims.Book(path)
  pictures = [path.with_name(f'{name}.png') for name in book.pictures]
  for picture in pictures:
    claim_pictures.draw(book, picture.stem, picture)
  return [*written, *pictures]
