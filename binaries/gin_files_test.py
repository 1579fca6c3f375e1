"""Every experiment in gin/ can be started, with every core."""

import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import gin

from gtrxl_tf.training import train

_GIN = pathlib.Path(__file__).parents[1] / 'gin'
_EXPERIMENTS = sorted(path.name for path in _GIN.glob('*.gin'))
_CORES = sorted(path.name for path in _GIN.glob('cores/*.gin'))


class GinFilesTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    gin.clear_config()
    self.addCleanup(gin.clear_config)

  @parameterized.parameters(*_EXPERIMENTS)
  def test_experiment_remembers_by_transformer_xl(self, name):
    core = train.prepare([str(_GIN / name)], []).acting_network.core
    self.assertEqual(type(core).__name__, 'TransformerXL')

  @parameterized.product(name=_EXPERIMENTS, core=_CORES)
  def test_experiment_takes_any_core(self, name, core):
    experiment = train.prepare([str(_GIN / name), str(_GIN / 'cores' / core)], [])
    self.assertGreater(experiment.acting_network.core.output_size, 0)


if __name__ == '__main__':
  absltest.main()
