"""Heads: from the core's outputs to logits, values and pixel-control Q values.

The last layer of a head computes in float32, as losses do, in any precision policy.
"""

import math
from typing import Optional, Sequence

import tensorflow as tf

from gtrxl_tf.networks import batch_apply
from gtrxl_tf.settings import config


@config.configurable
class MLPHead(tf.keras.layers.Layer):
  """A ReLU layer and a linear layer, from `[..., D]` to float32 `[..., num_outputs]`.

  It follows GTrXL, appendix A, "Agent Output". The paper does not name the
  non-linearity; its other parts use ReLU.

  Args:
    num_outputs: number of logits or values.
    hidden_units: width of the ReLU layer.

  Attributes:
    output_layer: the linear layer, whose kernel and bias PopArt rescales.
  """

  def __init__(self, num_outputs: config.PositiveInt,
               hidden_units: config.PositiveInt = 256, name: Optional[str] = None):
    super().__init__(name=name)
    self._hidden = tf.keras.layers.Dense(hidden_units, 'relu', name='hidden')
    self.output_layer = tf.keras.layers.Dense(
        num_outputs, dtype='float32', name='outputs')

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    return self.output_layer(self._hidden(inputs))


@config.configurable
class PixelControlHead(tf.keras.layers.Layer):
  """Q values of changing each cell of the image (UNREAL, Jaderberg et al., 2017).

  It maps `[..., D]` to float32 `[..., H, W, A]`. A ReLU layer computes a small image.
  One transposed convolution computes the advantage of every action in every cell, and
  another the value of every cell: Q = value + advantage - mean advantage over actions.

  With the defaults H, W = 18, 24, for cells of 4x4 pixels of DMLab's 72x96 image.

  Args:
    num_actions: A.
    hidden_shape: height, width and channels of the small image. The paper gives no
      sizes; the defaults reproduce the parameter counts of its Table 2.
    kernel_size: kernel size of the transposed convolutions.
    stride: stride of the transposed convolutions: H and W are `stride` times the small
      image's height and width.
  """

  def __init__(self, num_actions: config.PositiveInt,
               hidden_shape: Sequence[config.PositiveInt] = (9, 12, 16),
               kernel_size: config.PositiveInt = 4,
               stride: config.PositiveInt = 2, name: Optional[str] = None):
    super().__init__(name=name)
    if len(hidden_shape) != 3:
      raise config.ConfigError(f'PixelControlHead.hidden_shape = {hidden_shape!r}: '
                               'expected height, width and channels')
    self.num_actions = num_actions
    self._hidden = tf.keras.layers.Dense(
        math.prod(hidden_shape), 'relu', name='hidden')
    self._reshape = tf.keras.layers.Reshape(hidden_shape)
    self._advantage = tf.keras.layers.Conv2DTranspose(
        num_actions, kernel_size, stride, padding='same', dtype='float32',
        name='advantage')
    self._value = tf.keras.layers.Conv2DTranspose(
        1, kernel_size, stride, padding='same', dtype='float32',
        name='value')

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    return batch_apply.batch_apply(self._q_values, inputs, inputs.shape.rank - 1)

  def _q_values(self, inputs: tf.Tensor) -> tf.Tensor:
    image = self._reshape(self._hidden(inputs))
    advantage = self._advantage(image)
    mean = tf.reduce_mean(advantage, axis=-1, keepdims=True)
    return self._value(image) + advantage - mean
