"""Tests of specs.py."""

from absl.testing import absltest
from dm_env import specs
import numpy as np

from gtrxl_tf.environments import specs as specs_lib


class SplitTest(absltest.TestCase):

  def test_only_dictionaries_have_a_mask(self):
    both = {'x': 1, 'action_mask': 2}
    self.assertEqual(specs_lib.split_mask(both), ({'x': 1}, 2))
    self.assertLen(both, 2)
    for without in {'x': 1}, 1, [2]:
      self.assertEqual(specs_lib.split_mask(without), (without, None))


class NumValuesTest(absltest.TestCase):

  def test_every_element_has_its_own(self):
    for spec, expected in (
        (specs.DiscreteArray(4), [4]),
        (specs.BoundedArray((2, 2), np.int8, 0, [[1, 2], [3, 4]]), [2, 3, 4, 5]),
        (specs.BoundedArray((1,), np.uint64, 0, 2**63), [2**63 + 1]),
        (specs.BoundedArray((0,), np.int32, 0, 1), [])):
      found = specs_lib.num_values(spec)
      self.assertEqual(found, expected)
      self.assertContainsSubset({type(x) for x in found}, {int})


if __name__ == '__main__':
  absltest.main()
