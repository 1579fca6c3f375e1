"""What every environment must hold, as a class of tests."""

from typing import Callable, Type

from absl.testing import absltest
import dm_env
from dm_env import test_utils
import numpy as np
import tree

from gtrxl_tf.environments import specs as specs_lib


def contract(make: Callable[[int], dm_env.Environment], num_steps: int
             ) -> Type[absltest.TestCase]:
  """Returns tests of dm_env's contract, and of the seed, by random actions.

  Args:
    make: makes the environment, given a seed.
    num_steps: length of a test.
  """
  def actions(environment):
    random = np.random.default_rng(0)
    for _ in range(num_steps):
      yield specs_lib.random_action(environment.action_spec(), None, random)

  class Contract(test_utils.EnvironmentTestMixin, absltest.TestCase):

    def make_object_under_test(self):
      return make(0)

    def make_action_sequence(self):
      return actions(self.environment)

    def test_one_seed_gives_one_course_of_episodes(self):
      def course(seed):
        environment = make(seed)
        self.addCleanup(environment.close)
        return np.concatenate([
            np.ravel(x) for action in actions(environment)
            for x in tree.flatten(environment.step(action).observation)])

      first = course(3)
      np.testing.assert_array_equal(first, course(3))
      self.assertFalse(np.array_equal(first, course(4)))

  return Contract
