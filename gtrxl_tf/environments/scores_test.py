"""Tests of scores.py."""

import importlib
import math

from absl.testing import absltest
from absl.testing import parameterized
import gin

from gtrxl_tf.environments import scores
from gtrxl_tf.settings import config


def _returns(table, fraction):
  """Returns at a `fraction` of the way from the random to the human return."""
  return {task: reference.random + fraction * (reference.human - reference.random)
          for task, reference in table.items()}


class TablesTest(absltest.TestCase):

  def test_dmlab_30_has_its_levels(self):
    self.assertLen(scores.DMLAB_30, 30)
    self.assertEqual(scores.DMLAB_30['rooms_collect_good_objects_train'], (0.073, 10))
    self.assertEqual(scores.DMLAB_30['language_execute_random_task'], (-5.913, 254.05))

  def test_atari_57_has_its_games(self):
    self.assertLen(scores.ATARI_57, 57)
    self.assertEqual(scores.ATARI_57['breakout'], (1.7, 30.5))
    self.assertEqual(scores.ATARI_57['pong'], (-20.7, 14.6))

  def test_games_are_named_as_the_emulator_names_them(self):
    try:
      roms = importlib.import_module('ale_py.roms')
    except ModuleNotFoundError:
      self.skipTest('needs ale-py')
    self.assertContainsSubset(scores.ATARI_57, roms.get_all_rom_ids())


class HumanNormalizedTest(parameterized.TestCase):

  def test_random_is_0_and_human_is_100(self):
    table = {'a': scores.Reference(-5, 15), 'b': scores.Reference(1, 3)}
    self.assertEqual(scores.human_normalized({'a': -5, 'b': 3}, table),
                     {'a': 0, 'b': 100})
    self.assertEqual(scores.human_normalized({'a': 0}, table), {'a': 25})
    self.assertEqual(scores.human_normalized({'b': 0}, table), {'b': -50})

  @parameterized.parameters(scores.dmlab30_scores, scores.atari57_score)
  def test_an_unknown_task_is_named(self, score):
    with self.assertRaisesRegex(ValueError, "known for 'pong2'"):
      score({'pong2': 1.})


def _dmlab30(returns):
  return scores.dmlab30_scores(returns)['score']


class SummariesTest(parameterized.TestCase):

  def tearDown(self):
    gin.clear_config()
    super().tearDown()

  @parameterized.parameters(
      (_dmlab30, scores.DMLAB_30),
      (scores.atari57_score, scores.ATARI_57))
  def test_scale(self, score, table):
    self.assertAlmostEqual(score(_returns(table, 0)), 0)
    self.assertAlmostEqual(score(_returns(table, 1.5)), 150)

  def test_all_scores_of_dmlab_30_have_the_names_of_the_tables(self):
    returns = _returns(scores.DMLAB_30, 0.5)
    returns['rooms_watermaze'] = 54 + 3 * (54 - 4.065)  # 400, and of the memory levels.
    self.assertEqual(scores.dmlab30_scores(returns), {
        'score': (29 * 50 + 400) / 30, 'score_capped': (29 * 50 + 100) / 30,
        'score_memory': (7 * 50 + 400) / 8, 'score_reactive': 50})

  def test_atari_57_is_the_median(self):
    returns = {'pong': 14.6, 'breakout': 1.7, 'boxing': 1200.1}  # 100, 0, 10000.
    self.assertAlmostEqual(scores.atari57_score(returns), 100)

  def test_d4rl_has_0_for_random_actions_and_100_for_an_expert(self):
    config.parse([], ['d4rl_score.low = -20.0', 'd4rl_score.high = 3230.0'])
    score = gin.get_configurable('d4rl_score')
    for value, expected in [(-20.0, 0), (3230.0, 100), (1605.0, 50)]:
      self.assertAlmostEqual(score({'': value}), expected)
    self.assertTrue(math.isnan(score({})))
    with self.assertRaisesRegex(config.ConfigError, 'high = 5'):
      scores.d4rl_score({'': 1.0}, low=5, high=5)

  @parameterized.parameters(
      (_dmlab30, {}), (scores.atari57_score, {}),
      (lambda returns: scores.dmlab30_scores(returns)['score_reactive'],
       {'rooms_watermaze': 54.}),
      (_dmlab30,
       {'rooms_watermaze': math.nan, 'natlab_fixed_large_map': 2.}),
      (scores.atari57_score, {'pong': math.nan, 'breakout': 2., 'boxing': 3.}))
  def test_without_a_return_there_is_no_score(self, score, returns):
    self.assertTrue(math.isnan(score(returns)))


if __name__ == '__main__':
  absltest.main()
