"""Tests that README's examples run, and that the names in the documentation exist."""

import importlib
import os
import pathlib
import re
import sys
import tempfile
import textwrap

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import test_utils
import gin
import pytest

from binaries import commands_testing
from gtrxl_tf.launch import configurables  # noqa: F401 (for gin)
from gtrxl_tf.settings import config

_ROOT = commands_testing.ROOT


def _read(path):
  return (_ROOT / path).read_text(encoding='utf-8')


README = _read('README.md')
_PAGES = sorted(str(path.relative_to(_ROOT)) for path in (
    *_ROOT.glob('*.md'), *_ROOT.glob('docs/**/*.md')))

FRONT, CORE, WORLD = re.findall(r'```python\n(.*?)```', README, re.DOTALL)
POLICY = re.search(r'In your own program\n.*?```python\n(.*?)```', _read('docs/serving.md'),
                   re.DOTALL)[1]
SETTINGS = textwrap.dedent(re.search(
    r'^    import my_world\n(    .*\n)*', README, re.MULTILINE).group())


def write_world(folder: pathlib.Path) -> None:
  """Writes the reader's two files of README's example."""
  (folder / 'my_world.py').write_text(WORLD, encoding='utf-8')
  (folder / 'my_world.gin').write_text(SETTINGS, encoding='utf-8')


class CoreExampleTest(absltest.TestCase):

  @pytest.mark.medium
  def test_it_runs(self):
    names = {}
    exec(compile(CORE, 'README.md', 'exec'), names)  # pylint: disable=exec-used
    self.assertEqual(names['logits'].shape, (8, 20, 4))
    self.assertEqual(names['state'].memory.shape[:2], (8, 32))


class PageTest(absltest.TestCase):

  @pytest.mark.long
  def test_the_page_from_python_runs(self):
    here = os.getcwd()
    self.addCleanup(os.chdir, here)
    os.chdir(self.create_tempdir().full_path)
    names = {}
    for code in re.findall(r'```python\n(.*?)```', _read('docs/python.md'), re.DOTALL):
      exec(compile(code, 'python.md', 'exec'), names)  # pylint: disable=exec-used
    self.assertFalse(names['run'].done)  # `on_row` has interrupted it.


class WorldExampleTest(test_utils.EnvironmentTestMixin, absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.folder = cls.enter_context(tempfile.TemporaryDirectory())

  def make_object_under_test(self):
    return self._module.Recall(delay=3, seed=0)

  def setUp(self):
    write_world(pathlib.Path(self.folder))
    sys.path.insert(0, self.folder)
    self.addCleanup(sys.path.remove, self.folder)
    self._module = importlib.import_module('my_world')
    super().setUp()

  def test_its_settings_are_read(self):
    self.addCleanup(gin.clear_config)
    gin.clear_config()
    config.parse([f'{self.folder}/my_world.gin'], [])
    environment = gin.query_parameter('Experiment.environment')
    self.assertIs(environment.configurable.wrapped, self._module.Recall)


class DocumentationTest(parameterized.TestCase):

  @parameterized.parameters(*_PAGES)
  def test_commands_name_what_exists(self, page):
    self.assert_exist(_ROOT / page)

  def test_commands_in_gin_files_name_what_exists(self):
    for path in _ROOT.glob('gin/**/*.gin'):
      self.assert_exist(path)

  def assert_exist(self, path) -> None:
    for command in commands_testing.commands(path.read_text(encoding='utf-8')):
      self.assertEmpty(commands_testing.problems(command), f'{path}: {command}')

  @parameterized.parameters(*_PAGES)
  def test_files_and_links_exist(self, page):
    text = _read(page)
    folder = (_ROOT / page).parent
    for target in re.findall(r'\]\(([^)#\s]+)[^)]*\)', text):
      if '://' not in target:
        self.assertTrue((folder / target).exists(), target)
    folders = 'gin|binaries|gtrxl_tf|tools|deploy|docs'
    for file in re.findall(rf'\b(?:{folders})/[\w/.]+\.\w+', text):
      self.assertTrue((_ROOT / file).exists(), file)

  def test_links_to_sections_exist(self):
    for page in _PAGES:
      for target, section in re.findall(
          r'\]\(([^)#\s]*\.md)?#([^)\s]+)\)', _read(page)):
        path = (_ROOT / page).parent / target if target else page
        self.assertIn(section, _sections(_read(path)), page)

  def test_make_has_the_targets(self):
    makefile = _read('Makefile')
    for page in _PAGES:
      for target in re.findall(r'(?m)(?:^    |`)make ([a-z][\w-]*)', _read(page)):
        self.assertRegex(makefile, rf'(?m)^{target}:', page)

  def test_the_readme_is_short(self):
    self.assertLessEqual(len(README.splitlines()), 130)


def _sections(text):
  """Returns the anchors of a page, and those that GitHub makes of its headings."""
  headings = re.findall(r'^#+ (.*)$', text, re.MULTILINE)
  return {*re.findall(r'<a id="(.*)">', text),
          *(re.sub(r'[^\w -]', '', heading.lower()).replace(' ', '-')
            for heading in headings)}


class CommandsTest(absltest.TestCase):

  def test_commands_are_found(self):
    text = textwrap.dedent(r'''
        Run `binaries.table2` or
            PYTHONPATH=. python -m binaries.train --gin_file=a.gin \
                --root_dir=x  # Comment.
            gtrxl evaluate --root_dir=y
        .venv/bin/gtrxl learner --root_dir=y &
        # python -m binaries.compare --models=gin/a.gin,\
        # gin/b.gin
        python -m tools.numpad_search 3
    ''')
    self.assertEqual(commands_testing.commands(text), [
        'binaries.table2', 'binaries.train --gin_file=a.gin --root_dir=x  # Comment.',
        'binaries.evaluate --root_dir=y', 'binaries.learner --root_dir=y',
        'binaries.compare --models=gin/a.gin,gin/b.gin', 'tools.numpad_search 3'])

  def test_wrong_commands_are_refused(self):
    for command, found in (
        ('binaries.trian', 'no such module'),
        ('binaries.train --gin_files=x', 'no flag --gin_files'),
        ('binaries.train --gin_file=gin/nowhere.gin', 'gin/nowhere.gin: no such file')):
      self.assertIn(found, ' '.join(commands_testing.problems(command)))


if __name__ == '__main__':
  absltest.main()
