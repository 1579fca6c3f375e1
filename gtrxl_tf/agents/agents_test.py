"""Tests of what `agents` offers."""

import subprocess
import sys

from absl.testing import absltest
import pytest

from gtrxl_tf import agents


class AgentsTest(absltest.TestCase):

  def test_every_agent_has_the_interface_of_a_learner(self):
    for agent in agents.__all__:
      if agent.endswith('Agent'):
        for name in ('learned_variables', 'loss', 'after_step'):
          self.assertTrue(hasattr(getattr(agents, agent), name), f'{agent}.{name}')

  def test_every_name_can_be_imported(self):
    for name in agents.__all__:
      self.assertIsNotNone(getattr(agents, name))
      self.assertIn(name, dir(agents))
    with self.assertRaisesRegex(AttributeError, 'no attribute .Agnet.'):
      getattr(agents, 'Agnet')

  @pytest.mark.long
  def test_a_class_does_not_import_the_others(self):
    program = ('import sys; from gtrxl_tf import agents; agents.VMPOAgent; '
               'print([m for m in sys.modules if m.endswith(".cql_sac")])')
    result = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True, check=True)
    self.assertEqual(result.stdout.strip().splitlines()[-1], '[]')


if __name__ == '__main__':
  absltest.main()
