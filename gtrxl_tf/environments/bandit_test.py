"""Tests for bandit."""

from absl.testing import absltest
import numpy as np

from gtrxl_tf.environments import bandit


class BanditTest(absltest.TestCase):

  def test_arms_pay_as_often_as_they_should(self):
    bandits = bandit.Bandits(np.array([[0.1, 0.9], [0.0, 1.0]]), seed=0)
    paid = np.zeros((2, 2))
    for arm in (0, 1):
      for _ in range(2000):
        outcome = bandits.step(np.array([arm, arm]))
        self.assertTrue(outcome.terminated.all())
        paid[:, arm] += outcome.reward / 2000
    np.testing.assert_allclose(paid, [[0.1, 0.9], [0, 1]], atol=0.03)
    np.testing.assert_array_equal(bandits.informed_actions(), [1, 1])
    np.testing.assert_array_equal(bandits.observe(bandits.state), [[0], [0]])

  def test_no_bandit_of_the_evaluation_is_met_in_training(self):
    family = bandit.BanditFamily(num_arms=2)
    def pays(*args):
      bandits = family.make(*args)
      return [bandits.step(np.ones(200, int)).reward.tolist() for _ in range(5)]

    self.assertEqual(pays('training', 200, 3), pays('training', 200, 3))
    self.assertNotEqual(pays('training', 200, 3), pays('evaluation', 200, 3))


if __name__ == '__main__':
  absltest.main()
