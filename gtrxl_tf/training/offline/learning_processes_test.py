"""Tests of learning_processes.py."""

import csv
import math
import pathlib

from absl.testing import absltest
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import collecting
from gtrxl_tf import environments
from gtrxl_tf.agents import distillation as policy_lib
from gtrxl_tf.cores import segment_transformer
from gtrxl_tf.datasets import format as format_lib
from gtrxl_tf.networks import distillation
from gtrxl_tf.training.offline import history_curves
from gtrxl_tf.training.offline import learning_processes

_B, _T = 5, 24


def _collector():
  family = environments.DarkRoomFamily('dr', size=3, episode_length=4, num_episodes=6)
  return collecting.HistoryCollector(family, collecting.QLearning, num_evaluation=_B)


def _network(specs):
  core = segment_transformer.SegmentTransformer(
      1, 8, 2, 4, 8, segment_length=3, recurrence='same_layer', memory_length=4)
  network = distillation.DistillationNetwork(specs.action, core, num_positions=_T)
  network.create_variables(specs.observation)
  random = np.random.RandomState(0)
  for variable in network.trainable_variables:
    variable.assign_add(0.1 * random.randn(*variable.shape))
  return network


def _policy(collector):
  return policy_lib.DistillationPolicy(
      _network(collector.specs), collector.specs.observation, collector.specs.action)


def _same_tasks(one, other):
  """Returns whether two batches have equally many tasks and equal informed actions."""
  for _ in range(4):
    actions = one.informed_actions()
    if not np.array_equal(actions, other.informed_actions()):
      return False
    one.step(actions)
    other.step(actions)
  return True


class LearningProcessesTest(tf.test.TestCase):

  @pytest.mark.medium
  def test_a_policy_sees_the_inputs_of_training_histories(self):
    collector = _collector()
    network = _network(collector.specs)
    policy = policy_lib.DistillationPolicy(
        network, collector.specs.observation, collector.specs.action)
    played = learning_processes.PolicySource(policy, seed=3).play(
        collector.evaluation_tasks(), _T)
    self.assertGreater(np.sum(played.end == 1), 0)
    self.assertGreater(np.sum(played.end == 2), 0)
    def before(x):
      return tf.constant(np.concatenate([x[:, :1], x], axis=1))
    expected, _ = network(distillation.Histories(
        before(played.observation), before(played.action),
        before(played.reward.astype(np.float32)), before(played.end != 0),
        is_first=tf.tile(tf.range(_T)[tf.newaxis] == 0, [_B, 1]),
        position=tf.tile(tf.range(_T)[tf.newaxis], [_B, 1])), network.initial_state(_B))
    for t in range(_T):
      of_step = expected._replace(logits=expected.logits[:, t])
      drawn = network.action_space.sample(of_step, tf.constant([3, t]))
      self.assertAllEqual(played.action[:, t], drawn)

  @pytest.mark.medium
  def test_policy_and_source_are_in_one_picture(self):
    collector = _collector()
    policy = _policy(collector)
    picture = pathlib.Path(self.create_tempdir().full_path) / 'learning.png'
    evaluator = learning_processes.LearningProcesses(policy, collector, 0, picture)
    played = evaluator.evaluate()
    found = played.means
    self.assertEqual(tuple(found), evaluator.columns)
    source = collector.play('evaluation', 0)
    last = history_curves.curve(source.reward, source.end, 5).mean[-1]
    self.assertAllClose(found['source_return'], last)
    self.assertBetween(found['success'], 0, 1)
    self.assertAllClose(found['return'], np.mean(played.returns))
    self.assertEqual(evaluator.evaluate(), played)
    self.assertTrue(picture.exists())
    with open(picture.with_suffix('.csv'), encoding='utf-8') as file:
      self.assertEqual({row['name'] for row in csv.DictReader(file)},
                       {'policy', 'greedy', 'source'})

  def test_results_are_described_in_one_line(self):
    values = 0.5, 0.75, 0.9, 0.1, 0.5, 0.6, 0.625
    self.assertEqual(
        learning_processes.describe(dict(zip((
            'return', 'success', 'source_return', 'random_return', 'normalized',
            'greedy_return', 'greedy_normalized'), values))),
        'In the last fifth of learning processes: return 0.50 (greedy 0.60, source '
        '0.90, random 0.10), success 0.75; normalized (random 0, source 1) 0.50 '
        '(greedy 0.62)')

  @pytest.mark.medium
  def test_the_temperature_is_chosen_in_tasks_of_training(self):
    collector = _collector()
    policy = _policy(collector)
    evaluator = learning_processes.LearningProcesses(
        policy, collector, 0, temperatures=(0.0, 10.0))
    # What is played at 10 gains most in training, and at 0 in the evaluation.
    gain = {(0.0, True): 0, (10.0, True): 1, (0.0, False): 3, (10.0, False): 2}
    played = []

    class Source:

      def __init__(self, temperature):
        self.temperature = temperature

      def play(self, tasks, num_steps):
        training = _same_tasks(tasks, collector.training_tasks(3))
        its = collector.play('evaluation', 0)
        played.append((self.temperature, training))
        return its._replace(
            reward=np.full([_B, num_steps], gain[played[-1]]),
            end=np.ones([_B, num_steps], np.uint8))

    evaluator._at = {x: Source(x) for x in evaluator._at}  # pylint: disable=protected-access
    before = evaluator.evaluate()
    self.assertEmpty(played)
    self.assertNotIn('tuned', evaluator.curves)
    found = evaluator.evaluate(after_training=True)
    self.assertEqual(played, [(0.0, True), (10.0, True), (10.0, False)])
    self.assertEqual(tuple(found.means), evaluator.columns)
    self.assertEqual(found.means['temperature'], 10.0)
    self.assertEqual(found.means['tuned_return'], 2)
    self.assertEqual(found.returns, before.returns)
    self.assertIn('tuned', evaluator.curves)
    self.assertEndsWith(
        learning_processes.describe(found.means),
        'at temperature 10, the best in tasks of training: return 2.00, normalized '
        f'{found.means["tuned_normalized"]:.2f}')

  @pytest.mark.medium
  def test_returns_lie_between_random_play_and_the_source(self):
    collector = _collector()
    policy = _policy(collector)
    found = learning_processes.LearningProcesses(
        policy, collector, 0).evaluate().means
    random, source = found['random_return'], found['source_return']
    self.assertBetween(random, 0.1, source - 0.1)
    for kind in ('', 'greedy_'):
      self.assertAllClose(found[f'{kind}normalized'],
                          (found[f'{kind}return'] - random) / (source - random))
    # Greedy actions need no random numbers.
    again = learning_processes.LearningProcesses(
        policy, collector, 1).evaluate().means
    self.assertEqual(again['greedy_return'], found['greedy_return'])

  def test_success_is_counted_by_the_misses_before(self):
    won, cut = format_lib.End.TERMINATION, format_lib.End.TRUNCATION
    end = np.array([[cut, 0, won, won, cut, won, cut, cut, won],
                    [cut, cut, cut, 0, 0, cut, cut, cut, cut]], np.uint8)
    self.assertAllClose(learning_processes.success_after_misses(end, 3),
                        [1 / 3, 1 / 2, 1, math.nan])


if __name__ == '__main__':
  absltest.main()
