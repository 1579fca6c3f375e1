"""Tests of evaluator.py."""

# pylint: disable=protected-access

import types

from absl.testing import absltest

from gtrxl_tf import cores
from gtrxl_tf.environments import t_maze
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import torsos
from gtrxl_tf.replay import replay_testing
from gtrxl_tf.training import evaluation
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder
from gtrxl_tf.training.online import evaluator as evaluator_lib
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import trainer as trainer_lib


def _experiment():
  return experiment_lib.OnlineExperiment(
      environment=lambda corridor_length, seed: t_maze.TMaze(
          corridor_length, seed=seed),
      network=lambda action_spec, num_values: actor_critic.ActorCritic(
          action_spec, torsos.VectorTorso((4,)), cores.Memoryless(1, 4),
          num_values=num_values),
      tasks={'corridor_length': (2, 5)}, evaluation_episodes=1,
      score=lambda returns: {'score': returns['2'] + 10 * returns['5'], 'other': 7})


class ScoreTest(absltest.TestCase):

  def test_an_evaluation_is_stored_with_its_scores(self):
    folder = run_folder.RunFolder(self.create_tempdir().full_path)
    experiment = _experiment()
    evaluator = evaluator_lib.OnlineEvaluator(
        experiment, replay_testing.memory(self, experiment), folder, lambda: True)
    evaluator._write(3, evaluation.Evaluation(
        [1., 2., 5.], [1., 1., 0.], [0, 0, 1], {
            'return': 8 / 3, 'success': 2 / 3, 'episode_length': 4}))
    [row] = metrics_csv.read_metrics(folder.evaluations)
    self.assertEqual((row['learner_step'], row['score'], row['other']), (3, 51.5, 7))

  def test_evaluations_of_lost_weights_are_replaced(self):
    folder = run_folder.RunFolder(self.create_tempdir().full_path)
    experiment = _experiment()
    evaluator = evaluator_lib.OnlineEvaluator(
        experiment, replay_testing.memory(self, experiment), folder, lambda: True)
    for step, value in (100, 1.), (120, 2.), (140, 3.), (120, 4.), (140, 5.):
      evaluator._write(step, evaluation.Evaluation(
          [value] * 2, [1., 1.], [0, 1], {
              'return': value, 'success': 1., 'episode_length': 4}))
    self.assertEqual(
        [(row['learner_step'], row['return'])
         for row in metrics_csv.read_metrics(folder.evaluations)],
        [(100, 1), (120, 4), (140, 5)])

  def test_metrics_have_returns_and_scores_of_the_last_episodes(self):
    trainer = types.SimpleNamespace(
        _experiment=_experiment(),
        _ledger=types.SimpleNamespace(task_returns=[[1., 2.], [5.]]))
    self.assertEqual(
        trainer_lib.OnlineTrainer._returns_of_tasks(trainer),
        {'return_2': 1.5, 'return_5': 5., 'score': 51.5, 'other': 7.})


if __name__ == '__main__':
  absltest.main()
