"""Tests of optional.py: environments whose packages are not installed."""

import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import gymnasium

from gtrxl_tf import environments
from gtrxl_tf.settings import config


class OptionalTest(parameterized.TestCase):

  @parameterized.parameters(
      ('NumpadMujoco', {}, 'dm_control'),
      ('MemoryMaze', {}, 'memory_maze'),
      ('MinigridMemory', {}, 'minigrid'),
      ('Atari', {'game': 'pong'}, 'ale_py'),
      ('VizdoomTwoColors', {}, 'vizdoom'))
  def test_the_error_says_how_to_install_it(self, name, settings, package):
    # Imported first: modules that are imported under the patch are dropped after it.
    environment = getattr(environments, name)
    hidden = {module: None for module in sys.modules
              if module.split('.')[0] == package}
    # This is not a test of MuJoCo's images.
    with mock.patch.dict('os.environ', MUJOCO_GL='osmesa'):
      with mock.patch.dict(sys.modules, {**hidden, package: None}):
        with self.assertRaises(config.ConfigError) as raised:
          environment(**settings)
    line = config.one_line(raised.exception)
    self.assertRegex(line, f'needs the package {package}.*, which is not installed')
    self.assertRegex(line, "-e '.\\[envs\\]'` in a clone, or `pip install .gtrxl_tf\\[envs\\] @ ")

  def test_gymnasium_lacks_a_package_of_its_own(self):
    lost = gymnasium.error.DependencyNotInstalled('run pip')
    lost.__cause__ = ModuleNotFoundError(name='no_such_package')
    with mock.patch.object(gymnasium, 'make', side_effect=lost):
      with self.assertRaisesRegex(
          config.ConfigError, 'needs the package no_such_package, .* `pip'):
        environments.GymnasiumEnvironment('CartPole-v1')

  def test_deepmind_lab_is_built_from_source(self):
    environment = environments.DMLab
    with mock.patch.dict(sys.modules, deepmind_lab=None):
      with self.assertRaisesRegex(config.ConfigError, 'built from source'):
        environment(level='rooms_watermaze')


if __name__ == '__main__':
  absltest.main()
