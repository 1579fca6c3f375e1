"""Tests of what `agents` offers."""

from absl.testing import absltest

from gtrxl_tf import agents


class AgentsTest(absltest.TestCase):

  def test_every_agent_has_the_interface_of_a_learner(self):
    for agent in agents.__all__:
      if agent.endswith('Agent'):
        for name in ('learned_variables', 'loss', 'after_step'):
          self.assertTrue(hasattr(getattr(agents, agent), name), f'{agent}.{name}')


if __name__ == '__main__':
  absltest.main()
