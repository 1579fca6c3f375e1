"""Checks the commands in documentation and manifests, for tests."""

import ast
import pathlib
import re
import shlex
from typing import List, Set

ROOT = pathlib.Path(__file__).parents[1]

_GIN_FILES = re.compile(r'gin/[\w/.-]+\.gin')


def flags(path: pathlib.Path) -> Set[str]:
  """Returns the flags that a program defines, or that it imports from binaries/."""
  names = set()
  for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
    if isinstance(node, ast.ImportFrom) and (
        node.level or node.module == 'binaries'):
      for alias in node.names:
        names |= flags(ROOT / f'binaries/{alias.name}.py')
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
      if node.func.attr.startswith('DEFINE_'):
        names.add(node.args[0].value)
  return names


def commands(text: str) -> List[str]:
  """Returns the commands in a text that start a binary or a tool, from its name on.

  `gtrxl train` is returned as `binaries.train`.

  A command is a line of a code block, with the lines that a backslash joins to it, or
  a piece of code within a sentence or a table.
  """
  text = text.replace(r'\|', ',')  # Alternatives within a table.
  joined = re.sub(r' *\\\n *(# *)?', '\x00', text)
  found = []
  for line in joined.splitlines():
    for match in re.finditer(
        r'(?:-m |`)((?:binaries|tools)\.\w+[^`|>&;]*)'
        r'|(?:^ *(?:\.venv/bin/)?|`)gtrxl (\w+[^`|>&;]*)', line):
      command = (match.group(1) or f'binaries.{match.group(2)}').strip()
      # A backslash within a list of files joins without a space.
      found.append(command.replace(',\x00', ',').replace('\x00', ' '))
  return found


def problems(command: str) -> List[str]:
  """Returns the modules, flags and gin files of a command that do not exist."""
  name, *arguments = shlex.split(command, comments=True)
  path = ROOT / (name.replace('.', '/') + '.py')
  if not path.exists():
    return [f'{name}: no such module']
  known, found = flags(path) | {'help'}, []
  for argument in arguments:
    flag = argument.strip('[]').removeprefix('--').partition('=')[0]
    if argument.strip('[').startswith('--') and flag not in known:
      found.append(f'{name} has no flag --{flag}')
  missing = [file for file in _GIN_FILES.findall(command) if not (ROOT / file).exists()]
  return found + [f'{file}: no such file' for file in missing]
