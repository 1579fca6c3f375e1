"""A hook of mkdocs that adds pages from outside of docs/ to the documentation site.

README is the first page. The API reference has a page for each package in mkdocs.yml's
`nav`; it is made from the package's sources, which are read and not imported.
"""

import ast
import os
import pathlib
import re
from typing import Dict, List

from mkdocs.structure import files as files_lib

_ROOT = pathlib.Path(__file__).parents[1]
_PAGES = {'README.md': 'index.md', 'CONTRIBUTING.md': 'CONTRIBUTING.md',
          'CHANGELOG.md': 'CHANGELOG.md'}
_LINK = re.compile(r'(!?)\[([^]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)')


def on_files(files, config) -> files_lib.Files:
  """Adds the pages."""
  pages = {to: (_ROOT / name).read_text(encoding='utf-8')
           for name, to in _PAGES.items()}
  for path in re.findall(r'api/\w+\.md', str(config.nav)):
    pages[path] = _reference(pathlib.Path(path).stem)
  for path, text in pages.items():
    files.append(files_lib.File.generated(config, path, content=text))
  return files


def on_page_markdown(markdown: str, page, **_) -> str:
  """Turns links, which are relative to the repository's files, into the site's.

  Files that are not on the site are named without a link.
  """
  source = pathlib.Path(page.file.src_uri)
  docs = _ROOT / 'docs'
  folder = _ROOT if source.name in ('index.md', *_PAGES) else docs / source.parent

  def replaced(match):
    image, text, target, section = match.groups()
    if not target or '://' in target:
      return match.group()
    path = (folder / target).resolve()
    if path.is_relative_to(docs):
      target = os.path.relpath(path, docs / source.parent)
    elif path.is_relative_to(_ROOT) and path.exists():
      target = _PAGES.get(str(path.relative_to(_ROOT)))
      if target is None:
        return text
    return f'{image}[{text}]({target}{section or ""})'

  return markdown if source.parent.name == 'api' else _LINK.sub(replaced, markdown)


def _reference(package: str) -> str:
  """Returns the page of a package: what it exports, or all its modules if nothing."""
  folder = _ROOT / 'gtrxl_tf' / package
  exports = _exports(folder)
  lines = [f'# gtrxl_tf.{package}', '',
           f'::: gtrxl_tf.{package}', '    options:', '      members: false',
           '      show_root_heading: false', '      show_root_toc_entry: false', '']
  if exports:
    for name, module in sorted(exports.items(), key=lambda item: item[0].lower()):
      lines += [f'::: {module}.{name}', '']
  else:
    for path in _modules(folder, '**/*.py'):
      module = '.'.join(path.relative_to(_ROOT).with_suffix('').parts)
      lines += [f'::: {module}', '    options:',
                '      show_root_full_path: true', '']
  return '\n'.join(lines)


def _exports(folder: pathlib.Path) -> Dict[str, str]:
  """Returns the names that a package's `__init__.py` imports, and their modules."""
  exports = {}
  for node in ast.walk(ast.parse((folder / '__init__.py').read_text(encoding='utf-8'))):
    if isinstance(node, ast.ImportFrom):
      exports |= {alias.name: node.module for alias in node.names}
  return {name: module for name, module in exports.items()
          if module.startswith(f'gtrxl_tf.{folder.name}.')}


def _modules(folder: pathlib.Path, pattern: str) -> List[pathlib.Path]:
  return [path for path in sorted(folder.glob(pattern))
          if not re.search(r'_test$|_testing$|^__init__$', path.stem)]
