"""Tests for the registry of environments."""

from absl.testing import absltest
from absl.testing import parameterized
import dm_env
import gin

from gtrxl_tf import config
from gtrxl_tf import environments


class MakeTest(parameterized.TestCase):

  def tearDown(self):
    gin.clear_config()
    super().tearDown()

  @parameterized.parameters('action_recall', 'numpad', 't_maze')
  def test_makes_an_environment_by_name(self, name):
    environment = environments.make(name, seed=0)
    self.assertIsInstance(environment, dm_env.Environment)
    self.assertTrue(environment.reset().first())
    self.assertGreater(environments.informed_return(environment, 2), 0)

  def test_settings_reach_the_environment(self):
    environment = environments.make('numpad', size=4)
    self.assertEqual(environment.observation_spec()['pads'].shape, (16,))

  def test_gin_sets_the_name_and_the_settings(self):
    config.parse([], ['make_environment.name = "numpad"', 'Numpad.size = 2'])
    environment = environments.make()
    self.assertEqual(environment.observation_spec()['pads'].shape, (4,))

  @parameterized.parameters(
      (dict(name='numpda'), "'numpda': expected one of 'action_associative_retrieval', "
       "'action_recall'"),
      (dict(name='numpad', sise=2), "Numpad has no setting 'sise'.*'size'"),
      (dict(name='numpad', size=1), 'Numpad.size = 1: expected an integer >= 2'),
      (dict(name='t_maze', corridor_length=0), 'TMaze.corridor_length = 0'),
      (dict(name='t_maze', penalty=-1.0), 'TMaze.penalty = -1.0'),
      (dict(name='t_maze', seed=-1), 'TMaze.seed = -1'),
      (dict(name='action_recall', delay=2.5), 'ActionRecall.delay = 2.5'))
  def test_refuses_what_does_not_exist_or_fit(self, settings, message):
    with self.assertRaisesRegex(config.ConfigError, message):
      environments.make(**settings)


if __name__ == '__main__':
  absltest.main()
