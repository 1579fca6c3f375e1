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
        ['OnlineExperiment.unroll_length = 7'], 3, 1)
    self.assertEqual(cost.batch, '3 x 7 + 0')
    self.assertGreater(cost.step, 0)

  def test_of_an_offline_experiment_in_a_process_of_its_own(self):
    dataset = self.create_tempdir().full_path + '/dataset'
    testing.write_informed_episodes(dataset, t_maze.TMaze(28, seed=0), 8)
    files = [str(_GIN / 'rate/t_maze_30_cpu.gin'), str(_GIN / 'rate/models/rate.gin')]
    bindings = [f"dataset = '{dataset}'", 'OfflineExperiment.batch_size = 8']
    cost = learner_cost.measure_apart(1, files, bindings, 20, 1)
    self.assertEqual(cost.batch, '20 x 30')
    # No less than the variables, their gradients and AdamW's two slots.
    self.assertGreater(cost.tensors * 2**20, 4 * 4 * cost.parameters)
    self.assertGreater(cost.process, cost.tensors)

  def test_a_row_has_the_share_of_the_first(self):
    dt = learner_cost.Cost(1234, '64 x 90', 2., 0.5, 0.4, 300., 2000.)
    self.assertEqual(
        learner_cost.cells('dt', dt, dt),
        ['dt', '1,234', '64 x 90', '2.0', '0.5', '0.4', '300', '1.00', '2,000'])
    self.assertEqual(
        learner_cost.cells('rate', dt._replace(tensors=120.), dt)[6:8], ['120', '2.50'])


if __name__ == '__main__':
  absltest.main()
