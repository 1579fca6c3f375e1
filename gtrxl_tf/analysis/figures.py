"""Pictures and tables of finished comparisons, from their index files."""

import pathlib
import re
from typing import Dict, List

from gtrxl_tf import files
from gtrxl_tf.analysis import comparison
from gtrxl_tf.analysis import comparison_plots
from gtrxl_tf.analysis import runs
from gtrxl_tf.settings import config


def write(path: pathlib.Path) -> List[pathlib.Path]:
  """Writes the table and the pictures of an index file beside it.

  Returns:
    The files: `NAME.md`, the table; `NAME.png` and `NAME.svg`, final values or, of a
    single task without a sweep, curves; and further ones of `comparison_plots.pictures`,
    `NAME_training.png` and so on.
  """
  index = runs.read(path).short()
  written = [path.with_suffix('.md')]
  files.write_atomically(written[0], comparison.summary(index))
  pictures = comparison_plots.pictures(index, path.stem.replace('_', ' ').capitalize())
  main = 'finals' if 'finals' in pictures else 'curves'
  if index.setting is None and not index.has_curves:
    del pictures['curves']
  for name, draw in pictures.items():
    for suffix in ('.png', '.svg'):
      written.append(path.with_name(path.stem + f'_{name}' * (name != main) + suffix))
      draw(written[-1])
  return written


def insert_tables(page: pathlib.Path, tables: Dict[str, str]) -> None:
  """Replaces what stands between the marks of a table in a Markdown page.

  Args:
    page: it has `<!-- runs: NAME -->` and, below the table, `<!-- end of runs -->`.
    tables: by NAME.
  """
  def replaced(found: 're.Match') -> str:
    if found[1] not in tables:
      raise config.ConfigError(f'{page} has a mark for the runs {found[1]!r}: expected '
                               f'one of {", ".join(sorted(tables))}')
    return f'<!-- runs: {found[1]} -->\n{tables[found[1]]}<!-- end of runs -->'

  text = page.read_text(encoding='utf-8')
  marks = re.findall('<!-- (runs|end of runs)', text)
  if marks != ['runs', 'end of runs'] * (len(marks) // 2):
    raise config.ConfigError(f'{page}: expected <!-- end of runs --> after each '
                             '<!-- runs: NAME -->, before the next')
  files.write_atomically(page, re.sub(
      r'<!-- runs: *([^\n]+?) *-->.*?<!-- end of runs -->', replaced, text,
      flags=re.DOTALL))
