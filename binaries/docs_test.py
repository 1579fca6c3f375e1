"""Runs the code and checks the commands of every page, or a table says why not.

Python code is run, and settings are parsed by gin. The commands of this library take
minutes, so only their flags and settings are checked. Blocks of `text` are pictures.
"""

import importlib
import itertools
import os
import pathlib
import re
import shlex
import sys
import textwrap
from typing import Iterator, List, NamedTuple

from absl.testing import absltest
from absl.testing import parameterized
import gin
import pytest

from binaries import commands_testing
from gtrxl_tf.launch import prepare  # noqa: F401 (for gin)
from gtrxl_tf.settings import config

_ROOT = commands_testing.ROOT
_PAGES = sorted(str(path.relative_to(_ROOT)) for path in (
    *_ROOT.glob('*.md'), *_ROOT.glob('docs/**/*.md')))

# Pages whose Python runs in another test.
_RUN_ELSEWHERE = {
    'README.md': 'readme_test.py, and readme_slow_test.py for what needs a policy',
    'docs/python.md': 'readme_test.py, since it trains',
    'docs/running.md': 'readme_slow_test.py, since it trains',
    'docs/serving.md': 'serving_docs_test.py, with servers',
}
# The first words of the lines in other blocks, and why these are not run.
_NOT_RUN = {
    'gtrxl ': 'checked below; other tests run the binaries',
    'python -m tools.': 'the same',
    'make ': 'readme_test.py checks the targets; .ci/run runs most',
    '.venv/bin/': 'installs on a TPU VM',
    'python3 ': 'installs on a TPU VM',
    'grep ': 'installs on a TPU VM',
    'export ': 'sets a variable of the shell',
    'deploy/gcloud.sh': 'needs an account; deploy_test.py runs it with a stand-in',
    'docker ': 'needs Docker; deploy_test.py checks the files',
    'kubectl ': 'needs a cluster; deploy_test.py checks the files',
    'sed ': 'feeds kubectl',
    'curl ': 'needs a server',
    'mkdir ': 'prepares TensorFlow Serving',
    'tensorflow_model_server ': 'needs TensorFlow Serving',
    'saved_model_cli ': 'comes with TensorFlow',
    'sudo ': 'installs packages of the system',
    'pip ': 'installs packages',
    '. .venv/bin/activate': 'changes the shell',
    'git ': 'downloads a repository',
    'bazel ': 'needs Bazel',
    './bazel-bin/': 'is built by Bazel',
    # Not commands.
    '#': 'a comment',
    'Not started: ': 'what a command prints',
    'Stopped: ': 'what a command prints',
    '357,312 of ': 'what a command prints',
    '300,992 of ': 'what a command prints',
}


class _Block(NamedTuple):
  language: str  # '' if a block is indented, or does not say.
  text: str


def _blocks(page: str) -> Iterator[_Block]:
  """The code blocks of a page, fenced or indented."""
  text = (_ROOT / page).read_text(encoding='utf-8')
  pieces = re.split(r'^```(\w*)\n(.*?)^```$', text, flags=re.MULTILINE | re.DOTALL)
  for prose, language, code in itertools.zip_longest(*[iter([*pieces, '', ''])] * 3):
    # An indented line within a list continues the item above.
    for block in re.findall(r'(?:\A|\n\n)((?:    .*\n(?:\n(?=    ))?)+)', prose):
      yield _Block('', textwrap.dedent(block))
    if code:
      yield _Block(language, code)


def _is_gin(block: _Block) -> bool:
  line = re.compile(r'(#.*|import [\w.]+|include .*|[\w/.]+ = .*|\s+.*|)')
  return block.language == 'gin' or not block.language and all(
      line.fullmatch(x) for x in block.text.splitlines())


def _lines(block: _Block) -> List[str]:
  """The lines of a block that begin a command."""
  joined = re.sub(r'\\\n\s*', '', block.text)
  joined = re.sub(r"'[^']*'", lambda quoted: quoted.group().replace('\n', ' '), joined)
  lines = [line.strip() for line in joined.splitlines() if line.strip()]
  return [re.sub(r'^(\w+=(\$\(.*?\)|\S*) +)+', '', line) for line in lines]


class DocsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    gin.clear_config()
    self.addCleanup(gin.clear_config)
    # Other tests start processes that import all of these.
    # pylint: disable-next=protected-access
    known = config._modules
    self.addCleanup(known.intersection_update, set(known))

  # readme_test.py reads README's settings, which need its module.
  @parameterized.parameters(*[page for page in _PAGES if page != 'README.md'])
  @pytest.mark.medium
  def test_code_runs_and_settings_are_read(self, page):
    blocks = list(_blocks(page))
    settings = [block.text for block in blocks if _is_gin(block)]
    code = [block.text for block in blocks
            if block.language == 'python' and page not in _RUN_ELSEWHERE]
    folder = pathlib.Path(self.create_tempdir().full_path)
    self.addCleanup(os.chdir, os.getcwd())
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    self.addCleanup(sys.path.remove, str(folder))
    names = {}
    module = re.search(r'^import (my_\w+)$', '\n'.join(settings), re.MULTILINE)
    if module and code:  # The reader saves the first block as that module.
      (folder / f'{module[1]}.py').write_text(code[0], encoding='utf-8')
      names = vars(importlib.import_module(module[1]))
      del code[0]
    for block in code:
      exec(compile(block, page, 'exec'), names)  # pylint: disable=exec-used
    for text in settings:
      gin.clear_config()
      path = folder / 'settings.gin'
      path.write_text(text.replace("include 'gin/", f"include '{_ROOT}/gin/"))
      config.parse([str(path)], [])

  @parameterized.parameters(*_PAGES)
  def test_other_blocks_are_known_commands(self, page):
    for block in _blocks(page):
      if block.language not in ('python', 'text') and not _is_gin(block):
        for line in _lines(block):
          self.assertTrue(line.startswith(tuple(_NOT_RUN)),
                          f'{page}: {line!r} is neither code nor in _NOT_RUN')

  @parameterized.parameters(*_PAGES)
  @pytest.mark.medium
  def test_settings_of_commands_are_read(self, page):
    text = (_ROOT / page).read_text(encoding='utf-8')
    for command in commands_testing.commands(text):
      given = [argument.partition('=') for argument in shlex.split(command, True)]
      files = [value for flag, _, value in given if flag == '--gin_file']
      bindings = [value for flag, _, value in given if flag == '--gin_bindings']
      paths = [_ROOT / file if (_ROOT / file).exists() else _ROOT / 'gin' / file
               for file in files]
      if all(path.exists() for path in paths):  # Other files are the reader's own.
        with self.subTest(command):
          gin.clear_config()
          config.parse(list(map(str, paths)), bindings)


class BlocksTest(absltest.TestCase):

  def test_blocks_are_found(self):
    page = self.create_tempfile('page.md', textwrap.dedent('''\
        Text.

            make train
            python -m binaries.train \\
                --root_dir=x

        - An item that
          continues:

        ```python
        x = 1

        y = 2
        ```
        ''')).full_path
    first, second = _blocks(page)
    self.assertEqual(_lines(first), ['make train',
                                     'python -m binaries.train --root_dir=x'])
    self.assertEqual(second, ('python', 'x = 1\n\ny = 2\n'))

  def test_settings_are_distinguished_from_commands(self):
    self.assertTrue(_is_gin(_Block('', 'import a\nA.b = 1\nx = (1,\n    2)\n')))
    self.assertFalse(_is_gin(_Block('', 'A=1 python -m binaries.train\n')))
    self.assertFalse(_is_gin(_Block('sh', 'x = 1\n')))


if __name__ == '__main__':
  absltest.main()
