"""Tests that the examples, run in full, reach the results that they state."""

import os
import pathlib
import re
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized
import examples_test

_ROOT = examples_test.FOLDER.parent


class ExamplesSlowTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.create_tempdir().full_path)

  def run_example(self, name, *arguments):
    return examples_test.run(
        f'import {name}; sys.exit({name}.main())', *arguments, cwd=self.folder)

  def test_keras_model(self):
    remembers, forgets = map(float, re.findall(
        r'memory: ([\d.]+) nats', self.run_example('keras_model')))
    self.assertLess(remembers, 0.2)
    self.assertGreater(forgets, 2.0)

  @parameterized.parameters('tf_agents_ppo', 'tf_agents_dqn')
  def test_tf_agents(self, name):
    remembers, forgets = map(float, re.findall(
        r'mean return ([\d.]+)', self.run_example(name)))
    self.assertGreater(remembers, 0.9)
    self.assertLess(forgets, 0.4)

  @parameterized.parameters('tf_agents_ppo', 'tf_agents_dqn')
  def test_tf_agents_in_short(self, name):
    printed = examples_test.run_short(name, cwd=self.folder)
    self.assertRegex(printed, r'gated Transformer-XL: mean return 0\.\d+\n'
                              r'feed-forward: mean return 0\.\d+')

  def test_learning_to_learn_in_short(self):
    printed = examples_test.run_short(
        'learning_to_learn', '--folder=made', cwd=self.folder)
    self.assertIn('Learning process', printed)

  def test_learning_to_learn(self):
    result, source, random = map(float, re.search(
        r'processes: return ([\d.]+), .*source ([\d.]+), of random actions ([\d.]+)',
        self.run_example('learning_to_learn', '--folder=made')).groups())
    self.assertLess(random, 0.3)
    self.assertGreater(result, source - 0.2)

  def test_own_environment_and_serving(self):
    command = [
        sys.executable, '-m', 'binaries.train',
        '--gin_file=examples/own_environment.gin', f'--root_dir={self.folder}/run',
        '--gin_bindings=OnlineExperiment.environment_steps = 3000']
    subprocess.run(command, cwd=_ROOT, check=True, env={
        **os.environ, 'PYTHONPATH': str(_ROOT)})
    printed = self.run_example('serving', '--short', f'--policy={self.folder}/run/policy')
    self.assertRegex(printed, r'mean return \d\.\d\d')


if __name__ == '__main__':
  absltest.main()
