"""Tests README's run on one's own environment, and the use of its policy."""

import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

from absl.testing import absltest

from binaries import commands_testing
from binaries import readme_test


class OwnEnvironmentTest(absltest.TestCase):

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
