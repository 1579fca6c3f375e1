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
TRAINS, LOADS = re.findall(r'```python\n(.*?)```', _RUNNING, re.DOTALL)


class OwnEnvironmentTest(absltest.TestCase):

  def test_a_run_from_python(self):
    folder = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))
    readme_test.write_world(folder)
    self.assertIn('environment_steps = 300000', TRAINS)
    short = TRAINS.replace('environment_steps = 300000', 'environment_steps = 20000')
    for name, code in (
        ('trains', short + '  assert code == 0, code\n'),
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
    command = re.sub(r'runs/', f'{folder}/runs/', command)
    setting = 'OnlineExperiment.environment_steps'
    self.assertIn(f'{setting} = ', readme_test.SETTINGS)
    def run(arguments, **kwargs):
      return subprocess.run([sys.executable, *arguments], check=True, **kwargs)
    run(['-m', *shlex.split(command), f'--gin_bindings={setting} = 3000'],
        cwd=commands_testing.ROOT)
    run(['-c', readme_test.POLICY + 'assert step.action.shape == (3,)\n'], cwd=folder)


if __name__ == '__main__':
  absltest.main()
