"""Tests of differences.py: what is equal, and how differences are named."""

from absl.testing import absltest
from absl.testing import parameterized
import gin

from gtrxl_tf.launch import configurables  # noqa: F401 (for gin)
from gtrxl_tf.launch import prepare  # noqa: F401 (for gin)
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences
from gtrxl_tf.settings import suggestions


class ParseTest(parameterized.TestCase):

  @parameterized.parameters(
      ('Numpad.size = 3', 'gtrxl_tf.Numpad.size = 3'),
      ('TMaze.corridor_length = 7', 'length = 7\nTMaze.corridor_length = %length'),
      ('TMaze.corridor_length = 7', 'a = 7\nb = %a\nTMaze.corridor_length = %b'),
      ('VMPOAgent.discount = 1', 'VMPOAgent.discount = 1.0'),
      ('VectorTorso.units = (64, 32)', 'VectorTorso.units = [64, 32]'),
      ('Experiment.tasks = {"a": 1, "b": 2}', 'Experiment.tasks = {"b": 2, "a": 1}'),
      ('', 'Experiment.seed = 0'),
      ('', 'OnlineExperiment.stall_seconds = 600\nOnlineExperiment.max_age = None'),
      ('TMaze.corridor_length = 7', 'TMaze.corridor_length = 7\n'
       'a/TMaze.corridor_length = 7'),
      ('Experiment.seed = 1\nExperiment.seed = 2', 'Experiment.seed = 2'),
      ('', 'Experiment.agent = None\ntrain.experiment = @OnlineExperiment'),
      ('Experiment.agent = @PPO', 'Experiment.agent = @PPO\n'
       'a/Experiment.agent = @PPO'),
      ('', 'unused = 1'))
  def test_texts_that_mean_the_same_are_equal(self, one, other):
    self.assertEqual(differences.parse(one), differences.parse(other))

  @parameterized.parameters(
      ('Experiment.seed = 0', 'Experiment.seed = 1'),
      ('Experiment.environment = @TMaze', 'Experiment.environment = @Numpad'),
      ('ActorCritic.core = @a/GRU()', 'ActorCritic.core = @b/GRU()'),
      ('TMaze.corridor_length = 7', 'TMaze.corridor_length = 7\n'
       'a/TMaze.corridor_length = 8'),
      ('', 'ClipReward.low = None'),
      ('', 'Experiment.agent = @PPO'),
      ('Experiment.agent = @PPO', 'Experiment.agent = @PPO\n'
       'a/Experiment.agent = @VMPOAgent'),
      # The default, where the setting without a scope has another value.
      ('Experiment.seed = 1', 'Experiment.seed = 1\na/Experiment.seed = 0'))
  def test_texts_that_mean_something_else_differ(self, one, other):
    self.assertNotEqual(differences.parse(one), differences.parse(other))

  def test_unknown_names_are_kept(self):
    self.assertEqual(differences.parse('import nowhere\nold.Name.size = @old.other()'),
                     {'old.Name.size': '@old.other()'})

  def test_text_that_is_not_gin_is_refused(self):
    for text in 'Experiment.seed: 1', '\x00', 'a = (1':
      with self.assertRaisesRegex(config.ConfigError, '^not gin'):
        differences.parse(text)

  def test_given_settings_survive_gins_text(self):
    gin.clear_config()
    self.addCleanup(gin.clear_config)
    config.parse([], ['size = 3', 'Numpad.size = %size', 'Experiment.seed = 0'])
    self.assertEqual(differences.given(), differences.parse('Numpad.size = 3'))


class DifferencesTest(absltest.TestCase):

  def test_both_values_are_named_and_defaults_too(self):
    here = differences.parse('Experiment.seed = 5\nNumpad.episode_length = 7')
    there = differences.parse('Numpad.episode_length = 50\nCheckpoints.period = 3')
    found = differences.differences(here, there, differences.OF_ONE_PART)
    self.assertEqual(differences.describe(found), (
        'Experiment.seed = 0 (here 5), Numpad.episode_length = 50 (here 7)'))
    self.assertEmpty(differences.differences(here, here))

  def test_lists_name_existing_settings(self):
    for pattern in {*differences.OF_ONE_PART, *differences.CHANGEABLE, *differences.OF_LENGTH}:
      name, parameter = pattern.split('.')
      known = suggestions.parameters(gin.get_configurable(name))
      self.assertTrue(parameter == '*' or parameter in known, pattern)


if __name__ == '__main__':
  absltest.main()
