"""Runs the examples in docstrings."""

import doctest
import importlib

from absl.testing import absltest
from absl.testing import parameterized

# Modules with examples, and the classes and functions that must have one.
EXAMPLES = {
    'gtrxl_tf.agents.decision.agent': ['DecisionAgent'],
    'gtrxl_tf.agents.vmpo.agent': ['VMPOAgent'],
    'gtrxl_tf.instructions': ['hash_instruction'],
    'gtrxl_tf.losses.averages': ['MaskedMean'],
    'gtrxl_tf.losses.returns': ['n_step_returns'],
    'gtrxl_tf.losses.vmpo': ['vmpo_loss'],
    'gtrxl_tf.nests': ['where'],
    'gtrxl_tf.networks.actor_critic': ['ActorCritic'],
    'gtrxl_tf.networks.core_network': ['CoreNetwork'],
    'gtrxl_tf.networks.popart': ['PopArt'],
    'gtrxl_tf.networks.torsos': ['VectorTorso'],
    'gtrxl_tf.serving.export': ['save_policy'],
    'gtrxl_tf.specs': ['tensor_specs', 'without_batch', 'zeros'],
}


class ExamplesTest(parameterized.TestCase):

  @parameterized.parameters(*EXAMPLES)
  def test_examples_run(self, name):
    module = importlib.import_module(name)
    tests = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    self.assertContainsSubset(
        [f'{name}.{example}' for example in EXAMPLES[name]],
        [test.name for test in tests])
    for test in tests:
      report = []
      result = doctest.DocTestRunner(verbose=False).run(test, out=report.append)
      self.assertEqual(result.failed, 0, ''.join(report))


if __name__ == '__main__':
  absltest.main()
