"""Tests of optional.py: environments whose packages are not there."""

import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from gtrxl_tf import config
from gtrxl_tf import environments


class OptionalTest(parameterized.TestCase):

  @parameterized.parameters(
      ('NumpadMujoco', {}, 'dm_control'),
      ('MemoryMaze', {}, 'memory_maze'),
      ('MinigridMemory', {}, 'minigrid'),
      ('Atari', {'game': 'pong'}, 'ale_py'),
      ('VizdoomTwoColors', {}, 'vizdoom'))
  def test_one_line_says_what_installs_it(self, name, settings, package):
    hidden = {module: None for module in sys.modules
              if module.split('.')[0] == package}
    # For MuJoCo's images, of which this is no test.
    with mock.patch.dict('os.environ', MUJOCO_GL='osmesa'):
      with mock.patch.dict(sys.modules, {**hidden, package: None}):
        with self.assertRaises(config.ConfigError) as raised:
          getattr(environments, name)(**settings)
    line = config.one_line(raised.exception)
    self.assertRegex(line, f'needs the package {package}.*, which is not installed')
    self.assertIn('make envs', line)

  def test_deepmind_lab_is_built_from_source(self):
    with mock.patch.dict(sys.modules, deepmind_lab=None):
      with self.assertRaisesRegex(config.ConfigError, 'built from source'):
        environments.DMLab(level='rooms_watermaze')


if __name__ == '__main__':
  absltest.main()
