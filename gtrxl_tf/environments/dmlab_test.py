"""Tests for dmlab, with a stand-in for DeepMind Lab."""


from absl.testing import absltest
from absl.testing import parameterized
from dm_env import test_utils
import gin
import numpy as np

from gtrxl_tf.environments import dmlab
from gtrxl_tf.environments import dmlab_testing
from gtrxl_tf.environments import instructions
from gtrxl_tf.environments import scores
from gtrxl_tf.networks import table2
from gtrxl_tf.settings import config

FORWARD, FIRE = 0, 14


class DMLabContractTest(test_utils.EnvironmentTestMixin, parameterized.TestCase):

  def make_object_under_test(self):
    self.enter_context(dmlab_testing.deepmind_lab(frames_per_episode=20))
    return dmlab.DMLab('rooms_watermaze', seed=0)

  def make_action_sequence(self):
    yield from np.random.default_rng(0).integers(15, size=50)


class DMLabTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.module = self.enter_context(dmlab_testing.deepmind_lab(frames_per_episode=10))

  def tearDown(self):
    gin.clear_config()
    super().tearDown()

  def test_specs_are_those_of_table_2(self):
    environment = dmlab.DMLab('rooms_watermaze')
    self.assertEqual(environment.observation_spec(), table2.OBSERVATION_SPEC)
    self.assertEqual(environment.action_spec(), table2.ACTION_SPEC)

  @parameterized.parameters(*dmlab.DMLAB_30)
  def test_starts_every_level(self, level):
    environment = dmlab.DMLab(level, dataset_path='/photographs', seed=0)
    self.assertTrue(environment.reset().first())
    self.assertEqual(self.module.labs[-1].level, f'contributed/dmlab30/{level}')

  def test_shows_the_image_and_the_hashed_instruction(self):
    environment = dmlab.DMLab('language_select_located_object', seed=0)
    for time_step in (environment.reset(), environment.step(FORWARD)):
      self.assertEqual(time_step.observation['rgb'].shape, (72, 96, 3))
      self.assertEqual(time_step.observation['rgb'].dtype, np.uint8)
      np.testing.assert_array_equal(
          time_step.observation['instruction'],
          instructions.hash_instruction(dmlab_testing.INSTRUCTION, 16))

  @parameterized.parameters(
      ('dmlab30', 15, 3, [0, 0, 1, 0, 0, 0, 0]),      # Strafe right.
      ('dmlab30', 15, 6, [-60, 0, 0, 0, 0, 0, 0]),    # Large look left.
      ('dmlab30', 15, 8, [0, 10, 0, 0, 0, 0, 0]),     # Look down.
      ('dmlab30', 15, 11, [10, 0, 0, 1, 0, 0, 0]),    # Forward and small look right.
      ('dmlab30', 15, FIRE, [0, 0, 0, 0, 1, 0, 0]),
      ('avm', 5, 0, [-10, 0, 0, 0, 0, 0, 0]),
      ('avm', 5, 4, [0, 0, 0, 0, 0, 0, 0]))
  def test_plays_native_actions(self, actions, num_actions, action, native):
    environment = dmlab.DMLab('rooms_watermaze', actions)
    self.assertEqual(environment.action_spec().num_values, num_actions)
    environment.reset()
    environment.step(action)
    self.assertEqual(self.module.labs[-1].steps, [(native, 4)])

  def test_an_action_is_repeated_and_its_rewards_are_summed(self):
    environment = dmlab.DMLab('rooms_watermaze', action_repeat=3)
    environment.reset()
    time_steps = [environment.step(action) for action in (FIRE, FORWARD, FIRE, FIRE)]
    self.assertEqual([t.reward for t in time_steps], [3, 0, 3, 1])  # 10 frames.
    self.assertEqual([t.last() for t in time_steps], [False, False, False, True])

  def test_the_end_has_discount_0_and_repeats_the_last_image(self):
    environment = dmlab.DMLab('rooms_watermaze', action_repeat=5)
    first, middle, last, again = (
        environment.reset(), environment.step(0), environment.step(0),
        environment.step(0))
    self.assertEqual((middle.discount, last.discount), (1, 0))
    first_image, middle_image, last_image, next_image = (
        time_step.observation['rgb'] for time_step in (first, middle, last, again))
    self.assertTrue((last_image == middle_image).all())
    self.assertTrue((first_image != middle_image).any())
    self.assertTrue(again.first())
    self.assertTrue((next_image != last_image).any())

  def test_settings_reach_deepmind_lab(self):
    config.parse([], [
        'DMLab.level = "psychlab_arbitrary_visuomotor_mapping"',
        'DMLab.actions = "avm"', 'DMLab.dataset_path = "/photographs"',
        'DMLab.renderer = "hardware"'])
    environment = dmlab.DMLab(seed=0)
    self.assertEqual(environment.action_spec().num_values, 5)
    lab, = self.module.labs
    self.assertEqual(lab.level,
                     'contributed/dmlab30/psychlab_arbitrary_visuomotor_mapping')
    self.assertEqual(lab.config['datasetPath'], '/photographs')
    self.assertEqual(lab.renderer, 'hardware')

  def test_levels_with_photographs_need_their_folder(self):
    with self.assertRaisesRegex(config.ConfigError, 'DMLab.dataset_path is not set'):
      dmlab.DMLab('psychlab_continuous_recognition')
    self.assertEmpty(self.module.labs)


class LevelsTest(absltest.TestCase):

  def test_each_level_is_either_memory_or_reactive(self):
    self.assertLen(set(dmlab.DMLAB_30), 30)
    self.assertLen(scores.MEMORY_LEVELS, 8)
    self.assertLen(scores.REACTIVE_LEVELS, 22)
    self.assertEqual(set(scores.MEMORY_LEVELS + scores.REACTIVE_LEVELS),
                     set(dmlab.DMLAB_30))


if __name__ == '__main__':
  absltest.main()
