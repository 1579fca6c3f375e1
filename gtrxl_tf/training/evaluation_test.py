"""Tests of evaluation.py."""

import math
import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import pytest

from gtrxl_tf import environments
from gtrxl_tf import testing
from gtrxl_tf.environments import t_maze
from gtrxl_tf.serving import export
from gtrxl_tf.serving import exported
from gtrxl_tf.training import evaluation


class _Untold(t_maze.TMaze):
  """A maze that does not say whether an episode was a success."""
  episode_success = None


class EvaluationTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    root = pathlib.Path(cls.enter_context(tempfile.TemporaryDirectory()))
    cls.policies = {}
    for turn in (1, -1):
      cls.policies[turn] = root / str(turn)
      cls.policies[turn].parent.mkdir(parents=True, exist_ok=True)
      export.save_policy(testing.MazeSolver(t_maze.TMaze(), turn), cls.policies[turn])

  def evaluate(self, lengths, num_episodes, turn=1, maze=t_maze.TMaze):
    return evaluation.EpisodeEvaluator(
        exported.load(self.policies[turn]), environments.BatchedEnvironment(
            [maze(length, seed=i) for i, length in enumerate(lengths)]),
        num_episodes).evaluate()

  def test_an_informed_policys_episodes_are_successes(self):
    result = self.evaluate((4, 4, 4), num_episodes=6)
    self.assertEqual(result, (
        [1.0] * 6, [1.0] * 6, [0] * 6,
        {'return': 1.0, 'success': 1.0, 'episode_length': 5.0}, [5] * 6))
    self.assertEqual(
        evaluation.describe(result, informed=1.0),
        'Evaluation over 6 episodes: return 1.00 ± 0.00 (s.e.), '
        'informed policy 1.00, success 1.00, length 5.0')

  @pytest.mark.medium
  def test_a_misled_policys_episodes_are_not_successes(self):
    result = self.evaluate((4, 4, 4), num_episodes=6, turn=-1)
    self.assertEqual(result, (
        [0.0] * 6, [0.0] * 6, [0] * 6,
        {'return': 0.0, 'success': 0.0, 'episode_length': 5.0}, [5] * 6))

  @parameterized.parameters((1, 3), (3, 3), (4, 6), (7, 9))
  @pytest.mark.medium
  def test_each_environment_plays_as_many_episodes(self, asked, played):
    # In one episode of the longest there are many of the shortest.
    result = self.evaluate((2, 3, 30), num_episodes=asked)
    self.assertLen(result.returns, played)
    self.assertLen(result.successes, played)

  def test_success_is_not_reported_if_the_environment_has_none(self):
    result = self.evaluate((2, 2), num_episodes=4, maze=_Untold)
    self.assertEqual(result.returns, [1.0] * 4)
    self.assertTrue(all(map(math.isnan, result.successes)))
    self.assertEqual(evaluation.describe(result, informed=None),
                     'Evaluation over 4 episodes: return 1.00 ± 0.00 (s.e.), length 3.0')

  @parameterized.parameters((40, True), (60, False))
  def test_episodes_that_do_not_end_are_reported(self, steps, expected):
    with mock.patch.object(evaluation, '_MANY_STEPS', steps), mock.patch.object(
        evaluation.logging, 'warning') as warning:
      self.evaluate((50, 50), num_episodes=4)
    self.assertEqual(warning.called, expected)
    if expected:
      self.assertIn('no episode has ended after %d steps', warning.call_args[0][0])

  def test_tasks_are_described_separately(self):
    result = evaluation.EpisodeEvaluator(
        exported.load(self.policies[1]), environments.BatchedEnvironment(
            [t_maze.TMaze(2, seed=0), _Untold(3, seed=0), t_maze.TMaze(4, seed=0)],
            tasks=[0, 1, 0]), num_episodes=6).evaluate()
    self.assertEqual(result.tasks, [0, 0, 1, 1, 0, 0])
    self.assertEqual(
        evaluation.describe(result, None, ['maze', 'untold'], {'score': 55.5}),
        'Evaluation over 6 episodes: return 1.00 ± 0.00 (s.e.), length 4.0, '
        'score 55.5\n'
        '  maze: 1.00 over 4 episodes, success 1.00\n'
        '  untold: 1.00 over 2 episodes')


if __name__ == '__main__':
  absltest.main()
