"""Tests README's run on one's own environment, and docs/running.md's from Python."""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

from absl.testing import absltest

from binaries import commands_testing
from binaries import readme_test

_RUNNING = (commands_testing.ROOT / 'docs' / 'running.md').read_text(encoding='utf-8')
LOADS, = re.findall(r'```python\n(.*?)```', _RUNNING, re.DOTALL)
_TRAINS = '''
import gtrxl_tf
import my_world
run = gtrxl_tf.train(my_world.Recall, steps=20_000, root_dir='runs/recall',
                     settings={'TransformerXL.memory_length': 16})
assert run.done
'''


class OwnEnvironmentTest(absltest.TestCase):

  def test_the_first_lines(self):
    folder = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))
    self.assertIn('300_000', readme_test.FRONT)
    short = readme_test.FRONT.replace('300_000', '3_000')
    (folder / 'first.py').write_text(
        f'{short}assert environment.action_space.contains(action)\n', encoding='utf-8')
    subprocess.run([sys.executable, 'first.py'], check=True, cwd=folder,
                   env={**os.environ, 'PYTHONPATH': str(commands_testing.ROOT)})

  def test_a_run_from_python(self):
    folder = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))
    readme_test.write_world(folder)
    for name, code in (
        ('trains', _TRAINS),
        ('loads', LOADS + 'assert 0 <= evaluation.means["return"] <= 1, evaluation\n'
                          'assert returns and network.core.memory_length == 16\n')):
      (folder / f'{name}.py').write_text(code, encoding='utf-8')
      subprocess.run(
          [sys.executable, f'{name}.py'], check=True, cwd=folder,
          env={**os.environ, 'PYTHONPATH': str(commands_testing.ROOT)})

  def test_training_and_the_policy(self):
    folder = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))
    readme_test.write_world(folder)
    command, = [x for x in commands_testing.commands(readme_test.README)
                if 'my_world.gin' in x]
    command = command.replace('my_world.gin', f'{folder}/my_world.gin')
    command = re.sub(r'runs/recall_vmpo', f'{folder}/runs/recall', command)
    setting = 'OnlineExperiment.environment_steps'
    self.assertIn(f'{setting} = ', readme_test.SETTINGS)
    def run(arguments, **kwargs):
      return subprocess.run([sys.executable, *arguments], check=True, **kwargs)
    run(['-m', *shlex.split(command), f'--gin_bindings={setting} = 3000'],
        cwd=commands_testing.ROOT)
    run(['-c', readme_test.POLICY + 'assert step.action.shape == (3,)\n'], cwd=folder)


if __name__ == '__main__':
  absltest.main()
