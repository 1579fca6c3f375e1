"""Tests of offline.py: small runs on episodes of small mazes."""

import functools
import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf import cores
from gtrxl_tf import datasets
from gtrxl_tf.agents.decision import network as network_lib
from gtrxl_tf.agents.decision import policy as policy_lib
from gtrxl_tf.environments import action_recall
from gtrxl_tf.environments import t_maze
from gtrxl_tf.networks import torsos
from gtrxl_tf.training import evaluation
from gtrxl_tf.training import offline
from gtrxl_tf.training import run_folder

_MAZE = functools.partial(t_maze.TMaze, corridor_length=4)
_NUM_EPISODES = 300


def _write_episodes(path):
  """Episodes of one who knows the way."""
  maze = _MAZE(seed=0)
  specs = datasets.Specs(maze.observation_spec(), maze.action_spec())
  with datasets.EpisodeWriter(path, specs, environment='t_maze') as writer:
    for _ in range(_NUM_EPISODES):
      time_steps, actions = [maze.reset()], []
      while not time_steps[-1].last():
        actions.append(np.int32(maze.informed_action()))
        time_steps.append(maze.step(actions[-1]))
      writer.write([datasets.from_dm_env(time_steps, actions, specs)])


def _network(action_spec):
  return network_lib.DecisionNetwork(
      action_spec, torsos.VectorTorso((16,)),
      cores.TransformerXL(1, 16, 2, 8, memory_length=18))


class OfflineTrainingTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.dataset = str(pathlib.Path(absltest.TEST_TMPDIR.value) / 'offline_test')
    _write_episodes(cls.dataset)

  def setUp(self):
    super().setUp()
    self.folder = run_folder.RunFolder(self.create_tempdir().full_path)
    self.lines = []

  def experiment(self, **settings):
    return offline.OfflineExperiment(**{**dict(
        dataset=self.dataset, environment=_MAZE, network=_network,
        policy=functools.partial(policy_lib.DecisionPolicy, target_return=1.0),
        learner_steps=300, segment_length=6, num_segments=1, batch_size=16,
        learning_rate=1e-2, warmup_steps=10, evaluation_episodes=20), **settings})

  def train(self, experiment, stop_after=None):
    """Trains until done, or told to stop after so many questions."""
    asked = []
    training = offline.OfflineTraining(
        experiment, self.folder, tf.distribute.get_strategy())

    def should_stop():
      asked.append(None)
      return stop_after is not None and len(asked) > stop_after

    done = training.run(should_stop, self.lines.append)
    return training, done

  def test_it_learns_to_turn_as_the_clue_said(self):
    experiment = self.experiment(evaluation_period=150)
    training, done = self.train(experiment)
    self.assertTrue(done)
    rows = run_folder.read_metrics(self.folder.metrics)
    self.assertEqual(rows[-1]['learner_step'], 300)
    self.assertEqual(rows[-1]['success'], 1.0)
    judged = [row['learner_step'] for row in rows if not np.isnan(row['return'])]
    self.assertEqual(judged, [150, 300])
    self.assertIn('success 1.00', self.lines[-1])
    training.export()
    played = evaluation.evaluate(
        self.folder.policy, experiment.make_environments(), 20)
    self.assertEqual(played.successes, [1.0] * 20)

  def test_a_run_that_was_interrupted_goes_on_as_if_it_was_not(self):
    whole, _ = self.train(self.experiment(learner_steps=20))
    self.folder = run_folder.RunFolder(self.create_tempdir().full_path)
    _, done = self.train(self.experiment(learner_steps=20), stop_after=12)
    self.assertFalse(done)
    resumed, done = self.train(self.experiment(learner_steps=20))
    self.assertTrue(done)
    # pylint: disable=protected-access
    for ours, theirs in zip(resumed._agent.learned_variables,
                            whole._agent.learned_variables):
      np.testing.assert_array_equal(ours, theirs)

  def test_refuses_a_dataset_of_another_task(self):
    with self.assertRaisesRegex(
        config.ConfigError, 'OfflineExperiment.dataset has observations'):
      self.experiment(environment=action_recall.ActionRecall)

  def test_refuses_what_is_no_dataset(self):
    with self.assertRaisesRegex(datasets.DatasetError, 'nowhere'):
      self.experiment(dataset='/nowhere')


if __name__ == '__main__':
  absltest.main()
