"""Tests of nests.py."""

import sys

from absl.testing import absltest
import numpy as np
import tensorflow as tf

from gtrxl_tf import nests


class WhereTest(absltest.TestCase):

  def test_selects_rows_of_leaves_of_any_rank(self):
    mask = tf.constant([True, False])
    x = (tf.ones([2]), {'a': tf.ones([2, 3, 4], tf.int32)})
    y = tf.nest.map_structure(tf.zeros_like, x)
    vector, rest = nests.where(mask, x, y)
    np.testing.assert_array_equal(vector, [1, 0])
    np.testing.assert_array_equal(rest['a'][0], np.ones([3, 4]))
    np.testing.assert_array_equal(rest['a'][1], np.zeros([3, 4]))

  def test_selects_along_several_leading_axes(self):
    mask = tf.constant([[True, False], [False, True]])
    selected = nests.where(mask, tf.ones([2, 2, 3]), tf.zeros([2, 2, 3]))
    np.testing.assert_array_equal(selected[..., 0], [[1, 0], [0, 1]])

  def test_does_not_need_a_static_batch_size(self):
    function = tf.function(
        lambda mask, x: nests.where(mask, x, tf.zeros_like(x)),
        input_signature=[tf.TensorSpec([None], tf.bool), tf.TensorSpec([None, 2])])
    np.testing.assert_array_equal(
        function(tf.constant([True, False]), tf.ones([2, 2])), [[1, 1], [0, 0]])

  def test_the_other_side_has_no_influence(self):
    selected = nests.where(
        tf.constant([True, False]), tf.ones([2, 1]), tf.fill([2, 1], float('nan')))
    self.assertEqual(selected[0], 1)


class FreeAttributesTest(absltest.TestCase):

  def test_deleted_tensors_leave_no_memory_behind(self):
    before = sys.getallocatedblocks()
    for _ in range(1000):
      nests.free_attributes([tf.constant(1), 'no tensor'])
    self.assertLess(sys.getallocatedblocks() - before, 500)

  def test_tensors_remain_valid(self):
    x = tf.constant([1, 2])
    nests.free_attributes([x, x])
    nests.free_attributes([x])
    x.name_of_mine = 'x'
    self.assertEqual((x.name_of_mine, x.shape.rank), ('x', 1))
    np.testing.assert_array_equal(x + 1, [2, 3])


class PackingTest(absltest.TestCase):

  def test_leaves_of_every_dtype_and_shape_return_unchanged(self):
    random = np.random.default_rng(0)
    leaves = [random.integers(0, 2, shape).astype(dtype) for shape in ((2, 3), (), (0,))
              for dtype in (np.float32, np.bool_, np.int64, tf.bfloat16.as_numpy_dtype)]
    packing = nests.Packing(leaves)
    arrays = packing.pack(leaves)
    self.assertLen(arrays, 4)
    tensors = packing.pack(list(map(tf.constant, leaves)))
    from_tensors = [x.numpy() for x in packing.unpack(tensors)]
    for unpacked in packing.unpack(arrays), from_tensors:
      for leaf, got in zip(leaves, unpacked):
        self.assertEqual(leaf.dtype, got.dtype)
        np.testing.assert_array_equal(leaf, got)


if __name__ == '__main__':
  absltest.main()
