"""Tests that README.md lists each example, and that they run in their short forms."""

import os
import pathlib
import re
import subprocess
import sys

from absl.testing import absltest
from dm_env import test_utils
import numpy as np
import own_environment
import own_episodes
import pytest

FOLDER = pathlib.Path(__file__).resolve().parent
_PROGRAMS = sorted(path.name for path in FOLDER.glob('*.py')
                   if not path.stem.endswith('_test'))

# Makes the policy of a run of own_environment.py, which has learned nothing.
_EXPORT = """
import pathlib, sys
from gtrxl_tf.agents import policy
from gtrxl_tf import cores, networks
from gtrxl_tf.serving import export
import own_environment
world = own_environment.Orders()
network = networks.ActorCritic(
    world.action_spec(), networks.VectorTorso([8]), cores.DeepLSTM(1, 8))
network.create_variables(world.observation_spec())
export.save_policy(policy.ActorCriticPolicy(
    network, world.observation_spec(), world.action_spec()), pathlib.Path(sys.argv[1]))
"""


def run(code: str, *arguments: str, cwd: str) -> str:
  """Runs code that imports examples in a new process; returns its output."""
  code = f'import sys; sys.path.insert(0, {str(FOLDER)!r})\n{code}'
  done = subprocess.run([sys.executable, '-c', code, *arguments], cwd=cwd, text=True,
                        capture_output=True, check=False)
  assert done.returncode == 0, done.stderr
  return done.stdout


def run_short(name: str, *arguments: str, cwd: str) -> str:
  """Runs an example in its short form."""
  return run(f'import {name}; sys.exit({name}.main())', '--short', *arguments, cwd=cwd)


class ExamplesTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = self.create_tempdir().full_path

  def test_every_example_is_listed(self):
    listed = re.findall(r'\[`(\w+\.py)`\]\((\w+\.py)\)',
                        (FOLDER / 'README.md').read_text(encoding='utf-8'))
    self.assertEqual([x for x, _ in listed], [y for _, y in listed])
    self.assertCountEqual({x for x, _ in listed},
                          set(_PROGRAMS) - {'tf_agents_recall.py'})

  @pytest.mark.medium
  def test_the_subclassed_model_of_the_readme(self):
    code, = re.findall(r'```python\n(.*?)```',
                       (FOLDER / 'README.md').read_text(encoding='utf-8'), re.DOTALL)
    names = {}
    before = os.getcwd()
    os.chdir(self.folder)  # The code writes a file.
    try:
      exec(compile(code, 'README.md', 'exec'), names)  # pylint: disable=exec-used
    finally:
      os.chdir(before)
    arguments = names['inputs'], names['is_first'], names['state']
    np.testing.assert_array_equal(names['loaded'](*arguments)[0], names['logits'])

  @pytest.mark.long
  def test_keras_model(self):
    printed = run_short('keras_model', cwd=self.folder)
    self.assertRegex(printed, r'with memory: [\d.]+ nats[^\n]*\nwithout memory: [\d.]+')
    self.assertIn('computes the same', printed)

  @pytest.mark.long
  def test_ppo_loop(self):
    self.assertRegex(run_short('ppo_loop', cwd=self.folder), r'1,024 steps, return \d')

  @pytest.mark.long
  def test_own_episodes(self):
    printed = run_short('own_episodes', '--folder=made', cwd=self.folder)
    self.assertIn('4 episodes', printed)

  @pytest.mark.long
  def test_serving_needs_no_more_than_tensorflow(self):
    run(_EXPORT, 'policy', cwd=self.folder)
    printed = run('import serving; serving.main()\n'
                  'assert not {"gtrxl_tf", "tf_agents"} & set(sys.modules)',
                  '--short', '--policy=policy', cwd=self.folder)
    self.assertRegex(printed, r'mean return \d\.\d\d')


class OrdersTest(test_utils.EnvironmentTestMixin, absltest.TestCase):

  def make_object_under_test(self):
    return own_environment.Orders(seed=0)

  def test_only_the_ordered_dish_is_rewarded(self):
    world = own_environment.Orders(num_tables=4, num_dishes=5, seed=0)
    for _ in range(3):
      time_step, orders, total = world.reset(), {}, 0.0
      while not time_step.last():
        table = int(time_step.observation['table'].argmax())
        if time_step.observation['dish'].any():
          orders[table] = int(time_step.observation['dish'].argmax())
        time_step = world.step(orders[table])
        total += time_step.reward
      self.assertAlmostEqual(total, 1.0)
      world.step(0)


class CorridorTest(test_utils.EnvironmentTestMixin, absltest.TestCase):

  def make_object_under_test(self):
    return own_episodes.Corridor(seed=0)


if __name__ == '__main__':
  absltest.main()
