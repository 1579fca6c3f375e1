"""Tests of what the environments have in common: names, settings, errors."""

import sys

from absl.testing import absltest
from absl.testing import parameterized
import dm_env
import gin

from gtrxl_tf import environments
from gtrxl_tf.environments import making
from gtrxl_tf.settings import config


class EnvironmentsTest(parameterized.TestCase):

  def tearDown(self):
    gin.clear_config()
    super().tearDown()

  @parameterized.parameters('ActionRecall', 'Numpad', 'TMaze')
  def test_a_name_of_the_module_is_an_environment(self, name):
    environment = getattr(environments, name)(seed=0)
    self.assertIsInstance(environment, dm_env.Environment)
    self.assertTrue(environment.reset().first())
    self.assertGreater(environments.informed_return(environment, 2), 0)

  @parameterized.parameters(
      'AppleMaze', 'Atari', 'DMLab', 'GymnasiumEnvironment', 'MemoryMaze',
      'MinigridMemory', 'NumpadMujoco', 'VizdoomTwoColors')
  def test_environments_are_listed_without_their_packages(self, name):
    self.assertIn(name, dir(environments))
    self.assertTrue(issubclass(getattr(environments, name), dm_env.Environment))

  def test_gin_sets_the_settings(self):
    config.parse([], ['Numpad.size = 2'])
    environment = environments.Numpad()
    self.assertEqual(environment.observation_spec()['pads'].shape, (4,))

  @parameterized.parameters(
      ('Numpad', dict(size=1), 'Numpad.size = 1: expected an integer >= 2'),
      ('TMaze', dict(corridor_length=0), 'TMaze.corridor_length = 0'),
      ('TMaze', dict(penalty=-1.0), 'TMaze.penalty = -1.0'),
      ('TMaze', dict(seed=-1), 'TMaze.seed = -1'),
      ('ActionRecall', dict(delay=2.5), 'ActionRecall.delay = 2.5'))
  def test_refuses_what_does_not_fit(self, name, settings, message):
    with self.assertRaisesRegex(config.ConfigError, message):
      getattr(environments, name)(**settings)

  def test_a_constructor_that_exits_has_failed(self):
    with self.assertRaisesRegex(
        environments.EnvironmentFailed, 'making Experiment.environment = <lambda>'):
      making.make('Experiment', lambda seed: sys.exit(0), seed=0)

  def test_wrappers_that_fail_are_named(self):
    def broken(environment):
      return {}[environment.name]

    def forgetful(environment):
      environments.ClipReward(environment)

    for wrapper, kind, message in (
        (broken, environments.EnvironmentFailed,
         r"^making Experiment.wrappers\[1\] = broken: KeyError: 'TMaze'"),
        (forgetful, config.ConfigError, r'^Experiment.wrappers\[1\] = forgetful returned '
         'a NoneType: expected a dm_env.Environment')):
      with self.assertRaisesRegex(kind, message):
        making.make('Experiment', environments.TMaze, seed=0,
                    wrappers=[environments.ClipReward, wrapper])


if __name__ == '__main__':
  absltest.main()
