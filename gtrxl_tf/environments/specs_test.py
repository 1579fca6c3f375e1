"""Tests of specs.py."""

from absl.testing import absltest
from dm_env import specs
import numpy as np
import tree

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


class RandomActionTest(absltest.TestCase):

  def test_random_actions_obey_the_mask(self):
    spec = {'a': specs.BoundedArray((2,), np.int64, [1, -2], [3, 1]),
            'b': specs.DiscreteArray(2), 'c': specs.Array((), np.float32)}
    random = np.random.default_rng(0)
    observation = {'action_mask': np.int8([0, 1, 1, 0, 0, 0, 1, 0, 0])}
    drawn = [specs_lib.random_action(spec, observation, random) for _ in range(50)]
    self.assertEqual({tuple(x['a'].tolist()) for x in drawn}, {(2, 1), (3, 1)})
    self.assertEqual({int(x['b']) for x in drawn}, {0, 1})  # The mask allows neither.
    for leaf, of_spec in zip(tree.flatten(drawn[0]), tree.flatten(spec)):
      of_spec.validate(leaf)
    self.assertIn({0: 'left', 1: 'right'}[drawn[0]['b']], ('left', 'right'))
    free = [specs_lib.random_action(spec, np.zeros(3), random) for _ in range(200)]
    self.assertLen({tuple(x['a'].tolist()) for x in free}, 12)

  def test_values_that_were_not_tried_come_first(self):
    spec = {'a': specs.BoundedArray((2,), np.int64, [1, -2], [3, 1]),
            'b': specs.DiscreteArray(2**40, np.int64), 'c': specs.Array((), np.float32)}
    random, tried = np.random.default_rng(0), set()
    drawn = [specs_lib.random_action(spec, None, random, tried) for _ in range(4)]
    self.assertEqual({int(x['a'][0]) for x in drawn[:3]}, {1, 2, 3})
    self.assertEqual({int(x['a'][1]) for x in drawn}, {-2, -1, 0, 1})
    self.assertLen({int(x['b']) for x in drawn}, 4)
    self.assertLen(tried, 3 + 4 + 4)

  def test_only_allowed_values_are_tried(self):
    spec, random, tried = specs.DiscreteArray(5), np.random.default_rng(0), set()
    for allowed in {1, 3}, {1, 3}, {1, 3}, {1, 2}:
      mask = np.int8([x in allowed for x in range(5)])
      action = specs_lib.random_action(spec, {'action_mask': mask}, random, tried)
      self.assertIn(action, allowed)
    self.assertEqual((action, tried), (2, {1, 2, 3}))

  def test_random_floats_are_within_their_bounds_and_near_a_single_one(self):
    most = np.finfo(np.float64).max
    spec = specs.BoundedArray((6,), np.float64, [0, 3, -most, 5, -np.inf, -np.inf],
                              [10, 3, most, np.inf, -5, np.inf])
    random = np.random.default_rng(0)
    drawn = [specs_lib.random_value(spec, random) for _ in range(200)]
    for value in drawn:
      spec.validate(value)
    low, high = np.min(drawn, axis=0), np.max(drawn, axis=0)
    np.testing.assert_allclose(low, [0, 3, -1, 5, -6, -1], atol=0.2)
    np.testing.assert_allclose(high, [10, 3, 1, 6, -5, 1], atol=0.2)


if __name__ == '__main__':
  absltest.main()
