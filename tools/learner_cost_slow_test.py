"""Tests for learner_cost."""

import pathlib

from absl.testing import absltest
import gin

from gtrxl_tf import testing
from gtrxl_tf.environments import t_maze
from tools import learner_cost

_GIN = pathlib.Path(__file__).parents[1] / 'gin'


class LearnerCostTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    gin.clear_config()
    self.addCleanup(gin.clear_config)

  def test_of_an_online_experiment(self):
    cost = learner_cost.measure(
        [str(_GIN / 'gtrxl/action_recall_cpu.gin'),
         str(_GIN / 'cores/memoryless.gin')],
        ['OnlineExperiment.unroll_length = 7'], 3)
    self.assertEqual(cost['batch'], '3 x 7 + 0')
    self.assertGreater(cost['step, s'], 0)

  def test_of_an_offline_experiment_in_a_process_of_its_own(self):
    dataset = self.create_tempdir().full_path + '/dataset'
    testing.write_informed_episodes(dataset, t_maze.TMaze(28, seed=0), 8)
    files = [str(_GIN / 'rate/t_maze_30_cpu.gin'), str(_GIN / 'rate/models/rate.gin')]
    bindings = [f"dataset = '{dataset}'", 'OfflineExperiment.batch_size = 8']
    cost = learner_cost.measure_apart(1, files, bindings, 20)
    self.assertEqual(cost['batch'], '20 x 30')
    # No less than the variables, their gradients and AdamW's two slots.
    self.assertGreater(cost['tensors, MiB'] * 2**20, 4 * 4 * cost['parameters'])
    self.assertGreater(cost['process, MiB'], cost['tensors, MiB'])


if __name__ == '__main__':
  absltest.main()
