from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import numpy as np
import tensorflow as tf

from gtrxl_tf.networks import torsos
from gtrxl_tf.settings import config


def small_pixel_torso():
  return torsos.PixelTorso(channels=(4, 8), units=16)


class VectorTorsoTest(tf.test.TestCase, parameterized.TestCase):

  def test_embeds_every_leaf_in_the_order_of_keys(self):
    torso = torsos.VectorTorso(units=(5, 7))
    outputs = torso({'b': tf.constant([[True, False]]),
                     'a': tf.constant([3], tf.int64),
                     'c': {'d': tf.ones([1, 2, 2], tf.float64)}}, batch_dims=1)
    self.assertEqual(outputs.shape, [1, 7])
    self.assertEqual(outputs.dtype, tf.float32)
    first, second = torso.get_weights()[::2]
    expected = np.tanh(np.tanh([[3., 1, 0, 1, 1, 1, 1]] @ first) @ second)
    self.assertAllClose(outputs, expected)

  def test_numbers_are_scaled_by_the_bounds_that_it_expects(self):
    observation = {'a': tf.constant([[50., 2.]]), 'b': tf.constant([3_000_000_000])}
    torso = torsos.VectorTorso(units=())
    torso.expect({'a': specs.BoundedArray((2,), np.float32, [0, -1], [100, np.inf]),
                  'b': specs.BoundedArray((), np.int64, 0, 10 ** 9)})
    self.assertAllClose(torso(observation, batch_dims=1), [[0.5, 2, 3]])
    torso = torsos.VectorTorso(units=(), num_indices=3)
    torso.expect(specs.DiscreteArray(3))
    self.assertAllEqual(torso(tf.constant([2]), batch_dims=1), [[0, 0, 1]])

    torso = torsos.VectorTorso(units=(), num_indices=3)
    outputs = torso({'a': tf.constant([[2, 0]]), 'b': tf.constant([0.5])}, batch_dims=1)
    self.assertAllEqual(outputs, [[0, 0, 1, 1, 0, 0, 0.5]])

  def test_indices_may_be_any_integers(self):
    torso = torsos.VectorTorso(units=(), num_indices=3)
    for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64):
      self.assertAllEqual(torso(np.array([[2]], dtype), batch_dims=1), [[0, 0, 1]])

  def test_same_for_any_leading_axes(self):
    torso = torsos.VectorTorso()
    observation = {'scalar': tf.random.normal([6]), 'vector': tf.random.normal([6, 3])}
    unroll = {'scalar': tf.reshape(observation['scalar'], [2, 3]),
              'vector': tf.reshape(observation['vector'], [2, 3, 3])}
    outputs = torso(observation, batch_dims=1)
    self.assertEqual(outputs.shape, [6, 256])
    self.assertAllClose(
        torso(unroll, batch_dims=2), tf.reshape(outputs, [2, 3, 256]))

  def test_batch_size_may_be_unknown(self):
    torso = torsos.VectorTorso(units=(4,))
    @tf.function(
        autograph=False, input_signature=[tf.TensorSpec([None, 3, 2])])
    def embed(observation):
      outputs = torso(observation, batch_dims=2)
      self.assertEqual(outputs.shape.as_list(), [None, 3, 4])
      return outputs
    self.assertEqual(embed(tf.zeros([5, 3, 2])).shape, [5, 3, 4])

  def test_refuses_entries_of_different_batch_axes(self):
    with self.assertRaisesRegex(ValueError, r'\(2, 6, 5\) and \(6, 2, 5\)'):
      torsos.VectorTorso((8,))(
          {'a': tf.zeros([2, 6, 5]), 'b': tf.zeros([6, 2, 5])}, batch_dims=2)

  def test_refuses_an_observation_without_the_batch_axes(self):
    with self.assertRaisesRegex(ValueError, r'batch_dims = 2: .*\(3,\)'):
      torsos.VectorTorso()(tf.zeros([3]), batch_dims=2)

  def test_an_embedding_of_another_rank_is_refused(self):
    class Sum(torsos.Torso):

      def embed(self, observation):
        return tf.reduce_sum(observation, axis=-1)

    with self.assertRaisesRegex(ValueError, r'Sum.embed returned the shape \(6,\)'):
      Sum()(tf.zeros([2, 3, 4]), batch_dims=2)

  def test_an_image_is_refused(self):
    image = tf.zeros([2, 3, 7, 7, 3], tf.uint8)
    with self.assertRaisesRegex(config.ConfigError, r'an image, uint8 \[7, 7, 3\]'):
      torsos.VectorTorso()({'image': image}, batch_dims=2)
    outputs = torsos.VectorTorso((), num_indices=11)(image, batch_dims=2)
    self.assertEqual(outputs.shape, [2, 3, 7 * 7 * 3 * 11])

  @parameterized.parameters(0, -1, 2.5)
  def test_refuses_units(self, units):
    with self.assertRaisesRegex(config.ConfigError, r'VectorTorso\.units'):
      torsos.VectorTorso(units=(units,))


class ConvTorsoTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(  # RATE's Table 10; images of Atari and of Memory Maze.
      (84, 4, 0, 7 * 7 * 64), (64, 3, 2, 11 * 11 * 64))
  def test_size_of_the_paper(self, side, channels, padding, width):
    torso = torsos.ConvTorso(padding=padding)
    outputs = torso(tf.zeros([2, side, side, channels], tf.uint8), batch_dims=1)
    self.assertEqual(outputs.shape, [2, width])
    self.assertEqual(torso.count_params(), 64 * channels * 32 + 32
                     + 16 * 32 * 64 + 64 + 9 * 64 * 64 + 64)

  def test_bytes_are_rescaled_and_values_are_those_of_convolutions(self):
    torso = torsos.ConvTorso((2,), (2,), (1,), 1)
    image = np.random.RandomState(0).randint(256, size=(1, 2, 2, 1)).astype(np.uint8)
    outputs = tf.reshape(torso(tf.constant(image), batch_dims=1), [3, 3, 2])
    kernel, bias = torso.get_weights()
    padded = np.pad(image[0, :, :, 0] / 255, 1)
    expected = [[np.einsum('xy,xyc->c', padded[i:i + 2, j:j + 2], kernel[:, :, 0])
                 for j in range(3)] for i in range(3)]
    self.assertAllClose(outputs, np.maximum(expected + bias, 0))

  def test_refuses_settings_and_images_that_do_not_fit(self):
    with self.assertRaisesRegex(config.ConfigError, 'expected the same number of each'):
      torsos.ConvTorso((32, 64))
    with self.assertRaisesRegex(ValueError, r'sees \[7, 9\] pixels'):
      torsos.ConvTorso()(tf.zeros([1, 7, 9, 3], tf.uint8), batch_dims=1)


class PixelTorsoTest(tf.test.TestCase, parameterized.TestCase):

  def test_shape_and_size_of_the_paper(self):
    torso = torsos.PixelTorso()
    self.assertEqual(
        torso(tf.zeros([1, 72, 96, 3], tf.uint8), batch_dims=1).shape, [1, 256])
    self.assertEqual(torso.count_params(), 5_090_816)

  def test_scales_bytes_but_not_floats(self):
    torso = small_pixel_torso()
    image = np.random.RandomState(0).randint(0, 256, [2, 9, 7, 3], np.uint8)
    self.assertAllClose(torso(image, batch_dims=1),
                        torso(tf.constant(image / 255., tf.float32), batch_dims=1))

  def test_same_for_any_leading_axes_and_inside_a_nest(self):
    torso = small_pixel_torso()
    images = tf.random.uniform([6, 8, 8, 1])
    outputs = torso(images, batch_dims=1)
    unroll = {'rgb': tf.reshape(images, [3, 2, 8, 8, 1])}
    self.assertAllClose(
        torso(unroll, batch_dims=2), tf.reshape(outputs, [3, 2, 16]))

  def test_every_variable_gets_a_gradient(self):
    torso = small_pixel_torso()
    with tf.GradientTape() as tape:
      loss = tf.reduce_sum(torso(tf.random.uniform([4, 8, 8, 3]), batch_dims=1))
    # 2 stacks of 5 convolutions and a linear layer, each with kernel and bias.
    self.assertLen(torso.trainable_variables, 22)
    for variable, gradient in zip(torso.trainable_variables,
                                  tape.gradient(loss, torso.trainable_variables)):
      self.assertGreater(tf.norm(gradient), 0., variable.name)

  def test_refuses_observations_other_than_one_image(self):
    image = tf.zeros([1, 8, 8, 3])
    with self.assertRaisesRegex(ValueError, r'one image .* got \[\[8, 8\]\]'):
      small_pixel_torso()(image[..., 0], batch_dims=1)
    with self.assertRaisesRegex(ValueError, 'one image'):
      small_pixel_torso()((image, image), batch_dims=1)

  def test_refuses_integers_other_than_bytes(self):
    with self.assertRaisesRegex(ValueError, 'got int32'):
      small_pixel_torso()(tf.zeros([1, 8, 8, 3], tf.int32), batch_dims=1)


class MixedPrecisionTest(tf.test.TestCase):

  def setUp(self):
    super().setUp()
    tf.keras.mixed_precision.set_global_policy('mixed_bfloat16')
    self.addCleanup(tf.keras.mixed_precision.set_global_policy, 'float32')

  def test_computes_in_bfloat16_with_float32_variables(self):
    for torso, shape in ((small_pixel_torso(), [2, 8, 8, 3]),
                         (torsos.VectorTorso(), [2, 8, 24])):
      outputs = torso(tf.zeros(shape, tf.uint8), batch_dims=1)
      self.assertEqual(outputs.dtype, tf.bfloat16)
      for variable in torso.variables:
        self.assertEqual(variable.dtype, tf.float32)


if __name__ == '__main__':
  absltest.main()
