"""Runs the examples in docstrings."""

import doctest
import importlib
import importlib.util
import pathlib

from absl.testing import absltest
from absl.testing import parameterized

import gtrxl_tf

# Classes and functions that must have an example, by module. All other examples in the
# library are run too. An example runs in about a second: sizes are tiny.
REQUIRED = {
    'agents.decision': ['DecisionAgent'],
    'agents.vmpo': ['VMPOAgent'],
    'cores.mamba': ['Mamba'],
    'cores.mamba_dm': ['MambaDM'],
    'cores.memoryless': ['Memoryless'],
    'cores.merlin': ['MERLIN'],
    'cores.rate': ['RATE'],
    'cores.recurrent': ['DeepGRU', 'DeepLSTM'],
    'cores.segment_transformer': ['SegmentTransformer'],
    'cores.transformer_xl': ['TransformerXL'],
    'datasets.writer': ['EpisodeWriter'],
    'environments.batched_environment': ['BatchedEnvironment'],
    'environments.dark_room': ['DarkRoomFamily'],
    'environments.numpad': ['Numpad'],
    'environments.t_maze': ['TMaze'],
    'losses.averages': ['MaskedMean'],
    'losses.returns': ['n_step_returns'],
    'losses.vmpo': ['vmpo_loss'],
    'networks.actor_critic': ['ActorCritic'],
    'networks.core_network': ['CoreNetwork'],
    'networks.popart': ['PopArt'],
    'networks.spec_torso': ['SpecTorso'],
    'networks.torsos': ['VectorTorso'],
    'serving.export': ['save_policy'],
}

if not importlib.util.find_spec('tf_agents'):  # The extra `online` brings it.
  del REQUIRED['networks.core_network']


def _modules_with_examples() -> list[str]:
  folder = pathlib.Path(gtrxl_tf.__file__).parent
  names = {
      '.'.join(path.relative_to(folder).with_suffix('').parts)
      for path in folder.rglob('*.py')
      if not path.name.endswith('_test.py') and '  >>> ' in path.read_text('utf-8')}
  return sorted(names - ({'networks.core_network'} - set(REQUIRED)))


class ExamplesTest(parameterized.TestCase):

  @parameterized.parameters(*_modules_with_examples())
  def test_examples_run(self, name):
    module = importlib.import_module(f'gtrxl_tf.{name}')
    runner = doctest.DocTestRunner(verbose=False)
    for test in doctest.DocTestFinder().find(module):
      report = []
      result = runner.run(test, out=report.append)
      self.assertEqual(result.failed, 0, ''.join(report))
    self.assertGreater(runner.tries, 0)

  @parameterized.parameters(*REQUIRED)
  def test_required_examples_exist(self, name):
    module = importlib.import_module(f'gtrxl_tf.{name}')
    for member in REQUIRED[name]:
      self.assertIn('>>> ', getattr(module, member).__doc__, f'{name}.{member}')


if __name__ == '__main__':
  absltest.main()
