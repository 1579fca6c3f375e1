"""The wheel, in an environment and a folder that have nothing else of this repository.

`make wheel-check` runs it.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

from absl.testing import absltest

from binaries import commands_testing
from binaries import readme_test

_ROOT = commands_testing.ROOT
_WORLD = readme_test.WORLD.replace('import gin\n', '').replace('@gin.configurable\n', '')
_SETTINGS = f"""include 'bases/short.gin'
{readme_test.SETTINGS}"""
_SHORT = """include 'gtrxl/bases/small.gin'
include 'length.gin'
"""
_LENGTH = 'OnlineExperiment.environment_steps = 3000\n'


def _oldest_python() -> str:
  """Returns Python 3.10, the oldest that will do, or this Python where there is none."""
  found = shutil.which('python3.10')
  works = found and not subprocess.run(
      [found, '-c', ''], capture_output=True, check=False).returncode
  return found if works else sys.executable


class WheelTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.folder = pathlib.Path(cls.enter_context(tempfile.TemporaryDirectory()))
    cls.environment = {name: value for name, value in os.environ.items()
                       if name not in ('PYTHONPATH', 'VIRTUAL_ENV')}
    source = cls.folder / 'source'
    source.mkdir()
    for name in 'setup.py', 'LICENSE':
      shutil.copy(_ROOT / name, source)
    for name in 'gtrxl_tf', 'binaries', 'gin':
      shutil.copytree(_ROOT / name, source / name,
                      ignore=shutil.ignore_patterns('__pycache__'))
    cls.run_in(cls.folder, sys.executable, '-m', 'pip', 'wheel', '--quiet', '--no-deps',
               '--no-build-isolation', '--wheel-dir=dist', './source')
    shutil.rmtree(source)
    wheel, = (cls.folder / 'dist').glob('*.whl')
    with zipfile.ZipFile(wheel) as packed:
      cls.packed = packed.namelist()
    cls.run_in(cls.folder, sys.executable, '-m', 'venv', 'environment')
    cls.programs = cls.folder / 'environment/bin'
    # Only imported modules are compiled, which saves half of the time.
    cls.run_in(cls.folder, f'{cls.programs}/pip', 'install', '--quiet', '--no-compile',
               f'--constraint={_ROOT}/requirements.lock',
               f'gtrxl_tf[cpu,online] @ file://{wheel}')

  @classmethod
  def run_in(cls, folder, *command, fails=False):
    """Runs a command in a folder; returns what it prints."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(command, cwd=folder, env=cls.environment, text=True,
                          capture_output=True, check=False)
    assert bool(done.returncode) == fails, (command, done.stdout, done.stderr)
    return done.stdout + done.stderr

  def gtrxl(self, folder, *arguments, **kwargs):
    return self.run_in(
        self.folder / folder, f'{self.programs}/gtrxl', *arguments, **kwargs)

  def test_it_has_one_package_at_its_top_and_no_tests(self):
    self.assertEqual({name.split('/')[0] for name in self.packed},
                     {'gtrxl_tf', 'gtrxl_tf-0.1.0.dist-info'})
    self.assertContainsSubset(
        ['gtrxl_tf/binaries/train.py', 'gtrxl_tf/gin/cores/gtrxl.gin',
         'gtrxl_tf/py.typed'], self.packed)
    self.assertFalse([x for x in self.packed if x.endswith(('_test.py', 'testing.py'))])

  def test_help(self):
    start = time.time()
    text = self.gtrxl('empty', '--help')
    self.assertLess(time.time() - start, 3)
    self.assertEqual(text, self.gtrxl('empty'))
    self.assertRegex(text, r'(?m)^  train +Trains an agent')
    self.assertNotRegex(text, r'(?m)^  (settings|part) ')
    self.assertIn("no command 'trian'. Did you mean train?",
                  self.gtrxl('empty', 'trian', fails=True))
    self.assertRegex(self.gtrxl('empty', '--version'), r'^\d+\.\d+\.\d+\n$')
    text = self.gtrxl('empty', 'train', '--help')
    self.assertRegex(text, r'--gin_bindings: (.*\n)*  --gin_file: ')
    self.assertEqual(text, self.gtrxl('empty', 'train', '-h'))

  def test_the_wheel_alone_brings_what_training_needs(self):
    self.run_in(self.folder, _oldest_python(), '-m', 'venv', 'light')
    pip, = (self.folder / 'light/bin').glob('pip')
    wheel, = (self.folder / 'dist').glob('*.whl')
    self.run_in(self.folder, pip, 'install', '--quiet', '--no-compile',
                f'--constraint={_ROOT}/requirements.lock', wheel, 'tensorflow-cpu')
    said = self.run_in(self.folder / 'empty', self.folder / 'light/bin/python', '-c', '''
import importlib.util, numpy as np
from gtrxl_tf import agents, cores, datasets, environments, losses, networks
from gtrxl_tf.launch import train
from gtrxl_tf.serving import export
print(cores.TransformerXL(1, 8, 2, 4, memory_length=4).name,
      [getattr(agents, name) for name in agents.__all__])
print([importlib.util.find_spec(name) for name in ('reverb', 'tf_agents')])''')
    self.assertIn('[None, None]', said)
    train = [self.folder / 'empty', self.folder / 'light/bin/gtrxl', 'train',
             '--gin_file=numpad_2x2_cpu.gin', '--root_dir=run']
    said = self.run_in(*train, '--gin_bindings=OnlineExperiment.transport = "reverb"',
                       fails=True)
    self.assertRegex(said, r"Not started: OnlineExperiment.transport = 'reverb' needs the "
                     r'package reverb, which is not installed: expected .*'
                     r"`pip install 'gtrxl_tf\[online\] @ file://")
    said = self.run_in(*train, '--gin_bindings=OnlineExperiment.environment_steps = 8000')
    self.assertIn('Evaluation over 100 episodes', said)

  def test_a_package_of_an_extra(self):
    said = self.run_in(
        self.folder / 'empty', f'{self.programs}/python', '-c',
        'from gtrxl_tf import environments\nenvironments.MinigridMemory()', fails=True)
    self.assertRegex(said, r"MinigridMemory needs the package minigrid, which is not "
                     r"installed: expected .*`pip install 'gtrxl_tf\[envs\] @ file://")

  def test_a_run_in_ones_own_world(self):
    own = self.folder / 'own'
    (own / 'bases').mkdir(parents=True)
    (own / 'my_world.py').write_text(_WORLD, encoding='utf-8')
    settings = re.sub(r'.*environment_steps.*\n', '', _SETTINGS)
    (own / 'my_world.gin').write_text(settings, encoding='utf-8')
    (own / 'bases/short.gin').write_text(_SHORT, encoding='utf-8')
    (own / 'bases/length.gin').write_text(_LENGTH, encoding='utf-8')
    run = f'--root_dir={self.folder}/run'
    said = self.gtrxl('empty', 'train', '--gin_file=../own/my_world.gin', run,
                      '--gin_bindings=OnlineExperiment.transport = "reverb"')
    self.assertIn(': 1 server, 1 learner, ', said)
    self.assertIn('Evaluation over 100 episodes', said)
    said = self.gtrxl('empty', 'evaluate', run, '--num_episodes=5')
    self.assertIn('Evaluation over 5 episodes', said)
    self.gtrxl('empty', 'export', run, '--output_dir=policy')
    self.assertTrue((self.folder / 'empty/policy/saved_model.pb').exists())
    said = self.gtrxl(
        'own', 'collect', '--gin_file=my_world.gin', '--output_dir=data',
        '--num_processes=1', '--gin_bindings=Collector.environment = @Recall',
        f'--gin_bindings=Collector.saved_model = "{self.folder}/run/policy"',
        '--gin_bindings=Collector.num_episodes = 8')
    self.assertRegex(said, r'(?m)^\W*episodes\W+8\b')
    (own / 'my_world.py').unlink()
    said = self.run_in(
        self.folder / 'empty', f'{self.programs}/python', '-m', 'gtrxl_tf', 'export',
        run, '--output_dir=again', fails=True)
    self.assertRegex(said, "No module named 'my_world': expected .*my_world.py beside")


if __name__ == '__main__':
  absltest.main()
