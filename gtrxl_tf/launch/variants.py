"""Variants of an experiment: models to compare, and the points of a sweep.

Both are gin files or settings that are added to those of the experiment.
"""

import pathlib
import re
from typing import Dict, List, NamedTuple, Optional, Sequence

from gtrxl_tf import config
from gtrxl_tf import gin_files

_CORES = gin_files.FOLDER / 'cores'

_FILES = r'[^\s,=]+\.gin(,[^\s,=]+\.gin)*'
_VALUES = r'[\w.]+=[^\s,/]+(,[^\s,/]+)*'


class Point(NamedTuple):
  """A point of a sweep; without a sweep there is one point with an empty name."""
  name: str   # Can be the name of a folder.
  value: str  # The value that differs between points.
  gin_files: List[str]
  bindings: List[str]


def models(names: Sequence[str]) -> Dict[str, List[str]]:
  """Returns the gin files of models, by labels made from the files' names.

  Args:
    names: `gtrxl` is gin/cores/gtrxl.gin; all else are paths, and `+` joins several, as
      in `gin/rate/models/rate.gin+gin/rate/variants/memory_pool.gin`, labelled
      `rate+memory_pool`.

  Raises:
    config.ConfigError: a name is neither a core nor a path, or two models would have
      one label.
  """
  labelled = {}
  for name in names:
    files = [_gin_file(part) for part in name.split('+')]
    label = '+'.join(file.stem for file in files)
    if label in labelled:
      raise config.ConfigError(f'--models has two of the name {label}: expected files '
                               'of different names')
    labelled[label] = list(map(str, files))
  return labelled


def _gin_file(name: str) -> pathlib.Path:
  if name.endswith('.gin'):
    return pathlib.Path(name)
  cores = sorted(path.stem for path in _CORES.glob('*.gin'))
  if name not in cores:
    raise config.ConfigError(f'--models has {name!r}: expected the path of a gin file, '
                             f'or one of {", ".join(cores)}')
  return _CORES / f'{name}.gin'


def sweep(text: Optional[str]) -> List[Point]:
  """Returns the points of `SETTING=VALUE,VALUE,...` or of `FILE,FILE,...`.

  Raises:
    config.ConfigError: the text is neither.
  """
  if text is None:
    return [Point('', '', [], [])]
  if re.fullmatch(_FILES, text):
    stems = [(pathlib.Path(file).stem, file) for file in text.split(',')]
    return [Point(stem, stem, [file], []) for stem, file in stems]
  if not re.fullmatch(_VALUES, text):
    raise config.ConfigError(f'--sweep={text}: expected SETTING=VALUE,VALUE,... as in '
                             "'Numpad.size=2,3,4', or gin files")
  setting, _, values = text.partition('=')
  return [Point(f'{setting}={value}', value, [], [f'{setting}={value}'])
          for value in values.split(',')]


def swept(text: Optional[str]) -> Optional[str]:
  """Returns the setting that a sweep varies, or `experiment`; None without a sweep."""
  return text and (text.partition('=')[0] if '=' in text else 'experiment')
