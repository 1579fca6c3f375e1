"""Every experiment in gin/ can be started, those at the paper's size too.

Each is built whole, with the loss of an unroll. DeepMind Lab is a stand-in here.
"""

import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import gin

from gtrxl_tf import config
from gtrxl_tf.environments import dmlab_testing
from gtrxl_tf.training import train

_GIN = pathlib.Path(__file__).parents[1] / 'gin'
_EXPERIMENTS = sorted(path.name for path in _GIN.glob('*.gin'))
_SMALL = [name for name in _EXPERIMENTS if name.endswith('_cpu.gin')]
_LARGE = [name for name in _EXPERIMENTS if name not in _SMALL]
_CORES = sorted(path.name for path in _GIN.glob('cores/*.gin'))

_BINDINGS = {'dmlab_avm.gin': ['DMLab.dataset_path = "/photographs"']}


class GinFilesTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    gin.clear_config()
    self.addCleanup(gin.clear_config)

  def prepare(self, name, *more):
    try:
      with dmlab_testing.deepmind_lab():
        return train.prepare([str(_GIN / name), *more], _BINDINGS.get(name, []))
    except config.ConfigError as error:
      if 'which is not installed' in str(error):
        self.skipTest(str(error))  # `make test-envs` has the package.
      raise

  @parameterized.parameters(*_LARGE)
  def test_experiment_of_the_papers_size(self, name):
    experiment = self.prepare(name)
    self.assertEqual((experiment.unroll_length, experiment.batch_size), (95, 128))
    core = experiment.acting_network.core
    if 'lstm' in name:
      self.assertEqual(core.output_size, 3 * 256)
    else:
      self.assertEqual(core.memory_length, 512)

  @parameterized.parameters(*_SMALL)
  def test_small_experiment(self, name):
    core = self.prepare(name).acting_network.core
    self.assertEqual(type(core).__name__, 'TransformerXL')

  @parameterized.parameters(*_CORES)
  def test_core(self, name):
    core = self.prepare(_SMALL[0], str(_GIN / 'cores' / name)).acting_network.core
    self.assertGreater(core.output_size, 0)


if __name__ == '__main__':
  absltest.main()
