"""Tests of numpad_search.py."""

from absl.testing import absltest

from tools import numpad_search


class NumpadSearchTest(absltest.TestCase):

  def test_every_sequence_is_listed(self):
    self.assertLen(numpad_search.sequences(2), 24)
    self.assertLen(set(numpad_search.sequences(3)), 784)

  def test_two_by_two_by_hand(self):
    # 1.5 wrong presses of one step for the first pad, 1 of two for the second, and 0.5
    # of three for the third; the last is then known.
    self.assertAlmostEqual(numpad_search.bound(2), 100 - 1.5 - 2 - 1.5)

  def test_a_search_is_close_to_the_bound(self):
    for size, close in ((2, 0.5), (3, 9)):
      reached = numpad_search.search_return(size, num_episodes=100)
      self.assertLess(reached, numpad_search.bound(size) + 0.5)
      self.assertGreater(reached, numpad_search.bound(size) - close)


if __name__ == '__main__':
  absltest.main()
