from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from gtrxl_tf.networks import heads
from gtrxl_tf.settings import config


class MLPHeadTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters([[[4]], [[4, 5]], [[4, 5, 6]]])
  def test_takes_any_leading_axes(self, leading):
    head = heads.MLPHead(3)
    self.assertEqual(head(tf.ones([*leading, 8])).shape, [*leading, 3])
    self.assertEqual(head.count_params(), (8 + 1) * 256 + (256 + 1) * 3)

  def test_output_layer_is_linear(self):
    head = heads.MLPHead(2)
    inputs = tf.random.normal([4, 8])
    before = head(inputs)
    kernel, bias = head.output_layer.get_weights()
    head.output_layer.set_weights([kernel / 2, (bias + 1) / 2])
    self.assertAllClose(head(inputs), (before + 1) / 2)


class PixelControlHeadTest(tf.test.TestCase):

  def test_shape_and_size_of_the_paper(self):
    head = heads.PixelControlHead(15)
    self.assertEqual(head(tf.ones([1, 2, 512])).shape, [1, 2, 18, 24, 15])
    self.assertEqual(
        head.count_params(), (512 + 1) * 9 * 12 * 16 + (4 * 4 * 16 + 1) * (15 + 1))

  def test_advantages_have_mean_zero(self):
    head = heads.PixelControlHead(3, hidden_shape=(2, 2, 4))
    inputs = tf.random.normal([5, 8])
    q_values = head(inputs)
    # A bias that is equal for all actions' advantages changes no Q value.
    *others, bias = head._advantage.get_weights()
    head._advantage.set_weights([*others, bias + 7])
    self.assertAllClose(head(inputs), q_values, atol=1e-5)
    # The value's bias is part of every Q value.
    *others, bias = head._value.get_weights()
    head._value.set_weights([*others, bias + 7])
    self.assertAllClose(head(inputs), q_values + 7, atol=1e-5)

  def test_same_for_any_leading_axes(self):
    head = heads.PixelControlHead(3, hidden_shape=(2, 3, 4), kernel_size=3, stride=1)
    inputs = tf.random.normal([6, 8])
    outputs = head(inputs)
    self.assertEqual(outputs.shape, [6, 2, 3, 3])
    self.assertAllClose(
        head(tf.reshape(inputs, [2, 3, 8])), tf.reshape(outputs, [2, 3, 2, 3, 3]))

  def test_refuses_a_shape_that_is_not_an_image(self):
    with self.assertRaisesRegex(config.ConfigError, 'height, width and channels'):
      heads.PixelControlHead(3, hidden_shape=(9, 12))


class MixedPrecisionTest(tf.test.TestCase):

  def setUp(self):
    super().setUp()
    tf.keras.mixed_precision.set_global_policy('mixed_bfloat16')
    self.addCleanup(tf.keras.mixed_precision.set_global_policy, 'float32')

  def test_outputs_are_float32(self):
    inputs = tf.cast(np.ones([2, 8]), tf.bfloat16)
    for head in heads.MLPHead(3), heads.PixelControlHead(3):
      self.assertEqual(head(inputs).dtype, tf.float32)


if __name__ == '__main__':
  absltest.main()
