"""Compares relative attention with the code of the Transformer-XL authors."""

import pathlib

from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from gtrxl_tf.cores import masks
from gtrxl_tf.cores import relative_attention
from gtrxl_tf.cores import relative_positions

_GOLDEN = pathlib.Path(__file__).parents[2] / 'testdata/golden/relative_attention.npz'
_KERNELS = ('query_kernel', 'key_kernel', 'value_kernel', 'relative_kernel',
            'output_kernel', 'content_bias_u', 'position_bias_v')


def _golden(case):
  with np.load(_GOLDEN) as file:
    prefix = case + '/'
    return {k[len(prefix):]: file[k] for k in file if k.startswith(prefix)}


def _layer(golden):
  _, num_heads, head_dim = golden['query_kernel'].shape
  layer = relative_attention.RelativeMultiHeadAttention(num_heads, head_dim)
  layer.build(golden['inputs'].shape)
  for name in _KERNELS:
    getattr(layer, name).assign(golden[name])
  return layer


class RelativeAttentionTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters('with_memory', 'no_memory', 'one_step')
  def test_unroll_agrees_with_reference(self, case):
    golden = _golden(case)
    layer = _layer(golden)
    batch_size, unroll_length, _ = golden['inputs'].shape
    memory_length = golden['memory'].shape[1]
    mask = masks.attention_mask(
        tf.zeros((batch_size, unroll_length), tf.bool),
        tf.ones((batch_size, memory_length), tf.bool), banded=False)
    inputs = tf.constant(golden['inputs'])
    variables = [getattr(layer, name) for name in _KERNELS]
    with tf.GradientTape() as tape:
      tape.watch(inputs)
      outputs = layer(inputs, golden['memory'], mask)
      loss = tf.reduce_sum(outputs ** 2) / 2
    self.assertAllClose(outputs, golden['outputs'], atol=1e-5, rtol=1e-5)
    gradients = tape.gradient(loss, [inputs, *variables])
    for name, gradient in zip(('inputs', *_KERNELS), gradients):
      self.assertAllClose(
          gradient, golden[f'grad_{name}'], atol=1e-5, rtol=1e-4, msg=name)
    self.assertAllClose(
        relative_positions.sinusoids(*golden['positions'].shape), golden['positions'])

  @parameterized.parameters(0, 4)
  def test_scaled_memory(self, memory_length):
    layer = relative_attention.RelativeMultiHeadAttention(2, 4, use_bias=True)
    generator = tf.random.Generator.from_seed(0)
    layer.build([None, None, 8])
    for variable in layer.variables:
      variable.assign(generator.normal(variable.shape))
    inputs, memory = generator.normal((2, 3, 8)), generator.normal((2, memory_length, 8))
    mask = tf.ones((2, 3, memory_length + 3), tf.bool)
    scale, offset = generator.normal((8,)), generator.normal((8,))
    watched = [inputs, scale, offset]
    results = []
    for scaled_before in (True, False):
      with tf.GradientTape() as tape:
        tape.watch(watched)
        outputs = (
            layer(inputs, memory * scale + offset, mask) if scaled_before
            else layer(inputs, memory, mask, scale_and_offset=(scale, offset)))
        loss = tf.reduce_sum(outputs ** 2)
      results.append(
          [outputs, *tape.gradient(loss, [*watched, *layer.trainable_variables])])
    self.assertAllClose(*results, atol=1e-3, rtol=1e-4)

  def test_step_agrees_with_reference(self):
    golden = _golden('one_step')
    layer = _layer(golden)
    memory_length = golden['memory'].shape[1]
    keys, values = layer.cached_keys_and_values(tf.constant(golden['memory']))
    outputs, _, _ = layer.step(
        tf.constant(golden['inputs'][:, 0]), keys, values,
        tf.constant(relative_positions.sinusoids(memory_length + 1, 16)),
        tf.ones((2, memory_length), tf.bool))
    self.assertAllClose(outputs, golden['outputs'][:, 0], atol=1e-5, rtol=1e-5)

  def test_all_keys_masked_gives_no_nan(self):
    layer = relative_attention.RelativeMultiHeadAttention(2, 4)
    outputs = layer(
        tf.ones((1, 3, 8)), tf.ones((1, 2, 8)), tf.zeros((1, 3, 5), tf.bool))
    self.assertAllEqual(tf.math.is_finite(outputs), tf.ones_like(outputs, tf.bool))

  def test_mask_of_wrong_shape_is_refused(self):
    layer = relative_attention.RelativeMultiHeadAttention(2, 4)
    with self.assertRaisesRegex(ValueError, 'mask has shape '):
      layer(tf.ones((1, 3, 8)), tf.ones((1, 2, 8)), tf.ones((1, 3, 3), tf.bool))


if __name__ == '__main__':
  tf.test.main()
