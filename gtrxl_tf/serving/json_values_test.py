"""Tests of json_values.py."""

import json
from typing import Any, NamedTuple

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import tensor_spec

from gtrxl_tf.serving import json_values


class _Pair(NamedTuple):
  left: Any
  right: Any


_NEST = {
    'image': tensor_spec.BoundedTensorSpec([2, 1], tf.uint8, 0, 255),
    'pair': _Pair(tf.TensorSpec([], tf.float32), tf.TensorSpec([2], tf.bool)),
    'parts': (tensor_spec.BoundedTensorSpec([], tf.int32, 0, 3),
              tensor_spec.BoundedTensorSpec([2], tf.int64, [0, 0], [1, 2]))}
_VALUE = {'image': [[0], [255]], 'pair': {'left': 1, 'right': [True, False]},
          'parts': [3, [1, 2]]}


class JsonValuesTest(parameterized.TestCase):

  def test_a_nest_there_and_back(self):
    arrays = json_values.read(_NEST, json.loads(json.dumps(_VALUE)), 'x')
    self.assertEqual(list(arrays), list(json_values.leaves(_NEST, 'x')))
    self.assertEqual({name: a.dtype for name, a in arrays.items()}, {
        'x/image': np.uint8, 'x/pair/left': np.float32, 'x/pair/right': np.bool_,
        'x/parts/0': np.int32, 'x/parts/1': np.int64})
    self.assertEqual(json_values.write(_NEST, arrays, 'x'), _VALUE)

  def test_names_and_order_are_those_of_tensorflow(self):
    self.assertEqual(list(json_values.leaves(_NEST, 'x').values()),
                     tf.nest.flatten(_NEST))

  @parameterized.parameters(
      ({'image': [[0], [256]]}, 'x/image: expected integers from 0 to 255'),
      ({'image': [[-1], [0]]}, 'x/image: expected integers from 0 to 255'),
      ({'image': [[0.5], [0]]}, r'x/image: expected uint8 of shape \[2, 1\], got floats'),
      ({'image': [[10**30], [0]]}, 'x/image: expected integers from 0 to 255'),
      ({'image': [[True], [1]]}, r'shape \[2, 1\], got integers, true or false$'),
      ({'image': [['a'], [None]]}, r'shape \[2, 1\], got null, text$'),
      ({'image': [[{}], [0]]}, 'got integers, objects$'),
      ({'image': [[0], [1, 2]]}, r'got shape \[2\]$'),
      ({'image': ['a' * 2**20] + [''] * 2**12}, r'got shape \[4097\]$'),
      ({'pair': {'left': 10**400, 'right': [True, True]}}, 'x/pair/left: has'),
      ({'pair': {'left': 1}}, 'x/pair: right is missing'),
      ({'pair': [1, [True, False]]}, 'x/pair: expected an object with left, right'),
      ({'pair': {'left': 1, 'right': [1, 0]}}, 'x/pair/right: .* got integers'),
      ({'pair': {'left': float('inf'), 'right': [True, True]}}, 'x/pair/left: has'),
      ({'parts': [4, [0, 0]]}, 'x/parts/0: expected integers from 0 to 3'),
      ({'parts': [0, [1, 3]]}, r'x/parts/1: expected integers from 0 to \[1, 2\]'),
      ({'parts': [0]}, 'x/parts: expected an array of 2 values'),
      ({'more': 1}, "x: 'more' is unknown: expected image, pair, parts"))
  def test_refuses(self, changes, message):
    with self.assertRaisesRegex(json_values.Refused, message):
      json_values.read(_NEST, {**_VALUE, **changes}, 'x')

  def test_describes(self):
    self.assertEqual(json_values.describe(_NEST), {
        'image': {'shape': [2, 1], 'dtype': 'uint8', 'minimum': 0, 'maximum': 255},
        'pair': {'left': {'shape': [], 'dtype': 'float32'},
                 'right': {'shape': [2], 'dtype': 'bool'}},
        'parts': [{'shape': [], 'dtype': 'int32', 'minimum': 0, 'maximum': 3},
                  {'shape': [2], 'dtype': 'int64', 'minimum': 0, 'maximum': [1, 2]}]})

  def test_what_json_cannot_hold_is_null(self):
    arrays = {'logits': np.array([1.5, -np.inf, np.nan], np.float32)}
    self.assertEqual(json_values.write_flat(arrays), {'logits': [1.5, None, None]})


if __name__ == '__main__':
  absltest.main()
