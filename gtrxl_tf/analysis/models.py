"""Variants of an experiment: models to compare, and the points of a sweep.

Both are gin files or settings that are added to those of the experiment.
"""

import ast
import pathlib
import re
from typing import Dict, List, NamedTuple, Optional, Sequence

from gtrxl_tf.settings import config

# Commas within brackets do not end a value. A value becomes a part of a run's path, in
# which a / would begin another folder, and TensorFlow would take a [ for a pattern.
_VALUE = r'(?:[^\s,/()\[\]]|\([^\s/()\[\]]*\))+'


class Model(NamedTuple):
  """The settings that make a model of an experiment."""
  gin_files: List[str]
  bindings: List[str]


class Point(NamedTuple):
  """A point of a sweep; without a sweep there is one point with an empty name."""
  name: str   # Can be the name of a folder.
  value: str  # The value that differs between points.
  gin_files: List[str]
  bindings: List[str]


def models(names: Sequence[str]) -> Dict[str, Model]:
  """Returns models by their labels.

  A name has one or more parts, joined by `+`: a file in gin/cores, the path of a gin file,
  or SETTING=VALUE. Thus `gtrxl+TransformerXL.gate=highway` is gin/cores/gtrxl.gin with
  another gate, and its label is `gtrxl+gate=highway`.
  """
  labelled = {}
  for name in names:
    labels, model = [], Model([], [])
    for part in name.split('+'):
      if '=' in part and not _is_file(part):
        setting, _, value = part.partition('=')
        labels.append(f'{setting.rpartition(".")[2]}={value}')
        model.bindings.append(_binding(part))
      else:
        labels.append(pathlib.Path(part).stem)
        model.gin_files.append(part if _is_file(part) else f'cores/{part}.gin')
    label = '+'.join(labels)
    if label in labelled:
      raise config.ConfigError(f'--models has two of the name {label}: expected files '
                               'of different names')
    labelled[label] = model
  return labelled


def _is_file(text: str) -> bool:
  """Returns whether a text is a gin file; not one with a space, after a comma."""
  return (text.endswith('.gin') and text.strip() == text
          and ('/' in text or '=' not in text))


def _binding(text: str) -> str:
  """Returns `SETTING=VALUE` as gin; a word needs no quotes to be a string."""
  if not re.fullmatch(rf'[\w.]+={_VALUE}', text):
    raise config.ConfigError(f'{text!r}: expected SETTING=VALUE, as in '
                             'TransformerXL.gate=highway, without a /, and (8,) for a '
                             'list')
  setting, _, value = text.partition('=')
  if value[0] not in '@%(':
    try:
      ast.literal_eval(value)
    except (SyntaxError, ValueError):
      value = repr(value)
  return f'{setting}={value}'


def sweep(text: Optional[str]) -> List[Point]:
  """Returns the points of `SETTING=VALUE,VALUE,...` or of `FILE,FILE,...`."""
  if text is None:
    return [Point('', '', [], [])]
  files = text.split(',')
  if all(map(_is_file, files)):
    stems = [(pathlib.Path(file).stem, file) for file in files]
    points = [Point(stem, stem, [file], []) for stem, file in stems]
  elif re.fullmatch(rf'[\w.]+={_VALUE}(,{_VALUE})*', text):
    setting, _, values = text.partition('=')
    points = [Point(f'{setting}={value}', value, [], [_binding(f'{setting}={value}')])
              for value in re.findall(_VALUE, values)]
  else:
    raise config.ConfigError(f'--sweep={text}: expected SETTING=VALUE,VALUE,... as in '
                             "'Numpad.size=2,3,4', without a /, and (8,) for a list; or "
                             'gin files')
  names = [point.name for point in points]
  for name in names:
    if names.count(name) > 1:  # Their runs would have the same folders.
      raise config.ConfigError(f'--sweep={text} has two points of the name {name}: '
                               'expected values, or files of names, that differ')
  return points


def swept(text: Optional[str]) -> Optional[str]:
  """Returns the setting that a sweep varies, or `experiment`; None without a sweep."""
  return text and ('experiment' if _is_file(text) else text.partition('=')[0])
