"""An extension of griffe that makes docstrings and types readable on the API pages.

Griffe reads the sources and does not import them. Markdown takes neither examples
(`>>>`) nor lines indented by two spaces for code, so these are fenced. The types of
gtrxl_tf/settings/config.py become what they stand for: `int >= 1` for `PositiveInt`.
"""

import ast
import pathlib
import re
import textwrap
from typing import Dict

import griffe

_CONFIG = pathlib.Path(__file__).parents[1] / 'gtrxl_tf' / 'settings' / 'config.py'


def _types() -> Dict[str, str]:
  """Returns the number types of config.py as text, by name, without running the rest."""
  tree = ast.parse(_CONFIG.read_text(encoding='utf-8'))
  tree.body = [
      node for node in tree.body
      if isinstance(node, ast.Import) and node.names[0].name in ('dataclasses', 'math')
      or isinstance(node, ast.ImportFrom) and node.module == 'typing'
      or isinstance(node, ast.ClassDef) and node.name == 'Range'
      or isinstance(node, ast.Assign) and 'Annotated[' in ast.unparse(node)]
  names = {}
  exec(compile(tree, str(_CONFIG), 'exec'), names)  # pylint: disable=exec-used
  return {name: f'{value.__origin__.__name__} {value.__metadata__[0]}'
          for name, value in names.items() if hasattr(value, '__metadata__')}


def fenced(docstring: str) -> str:
  """Returns a docstring with fences around examples and indented paragraphs."""
  paragraphs = docstring.split('\n\n')
  for i, paragraph in enumerate(paragraphs):
    lines = paragraph.splitlines()
    is_example = paragraph.lstrip().startswith('>>> ')
    if is_example or lines and all(line.startswith('  ') for line in lines):
      language = 'pycon' if is_example else 'text'
      paragraphs[i] = f'```{language}\n{textwrap.dedent(paragraph)}\n```'
  return '\n\n'.join(paragraphs)


class Readable(griffe.Extension):
  """Changes each object when its package has been read."""

  def __init__(self):
    super().__init__()
    self._types = _types()
    self._names = re.compile(rf'(?:\bconfig\.)?\b({"|".join(self._types)})\b')

  def on_object(self, *, obj, **_) -> None:
    if obj.docstring is not None:
      obj.docstring.value = fenced(obj.docstring.value)
    for parameter in getattr(obj, 'parameters', None) or ():
      text = str(parameter.annotation)
      if self._names.search(text):
        parameter.annotation = self._names.sub(
            lambda match: self._types[match[1]], text)
