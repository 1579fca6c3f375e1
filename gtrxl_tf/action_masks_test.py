"""Tests of action_masks.py."""

from absl.testing import absltest

from gtrxl_tf import action_masks


class SplitTest(absltest.TestCase):

  def test_only_dictionaries_have_a_mask(self):
    both = {'x': 1, 'action_mask': 2}
    self.assertEqual(action_masks.split(both), ({'x': 1}, 2))
    self.assertLen(both, 2)
    for without in {'x': 1}, 1, [2]:
      self.assertEqual(action_masks.split(without), (without, None))


if __name__ == '__main__':
  absltest.main()
