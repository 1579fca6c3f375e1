"""Torsos: networks that embed the observation of one step as a vector."""

import abc
from typing import Any, Optional, Sequence

import numpy as np
import tensorflow as tf

from gtrxl_tf.networks import batch_apply
from gtrxl_tf.settings import config


class Torso(tf.keras.layers.Layer, metaclass=abc.ABCMeta):
  """The base class of torsos.

  `torso(observation, batch_dims)` maps a nest of tensors `[..., *shape]`, whose first
  `batch_dims` axes are batch axes (1 for `[B, ...]`, 2 for `[B, T, ...]`), to vectors
  `[..., D]` in the layer's compute dtype. The number of batch axes is an argument
  because an array `[B, T]` may be one number at each of T steps, or T numbers at one.

  A torso implements `embed`, which has one batch axis.
  """

  _mean = _deviation = None  # Variables, once `_normalized` was called.

  def call(self, observation: Any, batch_dims: int) -> tf.Tensor:
    return batch_apply.batch_apply(self.embed, observation, batch_dims)

  @abc.abstractmethod
  def embed(self, observation: Any) -> tf.Tensor:
    """Embeds a nest of `[N, *shape]` as `[N, D]`."""

  def _normalized(self, x: tf.Tensor, deviation_shape: Sequence[int]) -> tf.Tensor:
    """Subtracts the mean from `[N, *shape]`, and divides by the deviation, in float32.

    It makes the variables, which leave `x` as it is until they are assigned.
    """
    if self._mean is None:
      self._mean, self._deviation = (
          self.add_weight(name, shape, tf.float32, initial, trainable=False,
                          experimental_autocast=False)
          for name, shape, initial in (('mean', x.shape[1:], 'zeros'),
                                       ('deviation', deviation_shape, 'ones')))
    normalized = (tf.cast(x, tf.float32) - self._mean) / self._deviation
    return tf.cast(normalized, self.compute_dtype)


@config.configurable
class VectorTorso(Torso):
  """Tanh layers on all observations (GTrXL, appendix A, Numpad).

  Each leaf of the observation, of any shape and number type, is flattened. The leaves
  are concatenated in the order of `tf.nest.flatten`, which sorts dictionaries by key.
  Integers are numbers here, whatever they mean; `SpecTorso` embeds them as their spec
  says, and images by convolutions.

  >>> import tensorflow as tf
  >>> from gtrxl_tf import networks
  >>> torso = networks.VectorTorso([16, 8])
  >>> unroll = {'position': tf.zeros([2, 6, 3]), 'lit': tf.ones([2, 6], tf.int32)}
  >>> torso(unroll, batch_dims=2).shape
  TensorShape([2, 6, 8])

  Args:
    units: width of each layer. The paper has two layers and does not give their width;
      256 is the width of its other parts.
    num_indices: if given, integer leaves hold indices below this number, such as the
      kinds of cells in Minigrid, and become one-hot vectors. By default they are
      numbers, but an array that can only be an image, uint8 of rank 3, is refused.
    normalize: whether numbers are brought to mean 0 and deviation 1 first, as RATE's
      code does in MuJoCo. An offline experiment takes both from its dataset; they are
      variables, which checkpoints and exported policies have.

  Raises:
    ConfigError: `normalize` with `num_indices`; in a call, an image.
  """

  def __init__(self, units: Sequence[config.PositiveInt] = (256, 256),
               num_indices: Optional[config.PositiveInt] = None,
               name: Optional[str] = None, normalize: bool = False):
    super().__init__(name=name)
    if normalize and num_indices:
      raise config.ConfigError(
          f'VectorTorso.normalize = True with num_indices = {num_indices}: expected '
          'numbers only')
    self._num_indices = num_indices
    self.normalizes = normalize
    self._layers = [tf.keras.layers.Dense(u, 'tanh', name=f'dense_{i}')
                    for i, u in enumerate(units)]

  def embed(self, observation: Any) -> tf.Tensor:
    outputs = tf.concat(
        [self._numbers(x) for x in tf.nest.flatten(observation)], axis=-1)
    if self.normalizes:
      outputs = self._normalized(outputs, outputs.shape[1:])
    for layer in self._layers:
      outputs = layer(outputs)
    return outputs

  def set_statistics(self, mean: Any, deviation: Any) -> None:
    """Sets the statistics that normalize observations; the variables must exist.

    Args:
      mean: nest of arrays, as an observation.
      deviation: the same. Where it is 0, observations are not scaled.
    """
    for variable, nest in ((self._mean, mean), (self._deviation, deviation)):
      values = np.concatenate([np.ravel(x) for x in tf.nest.flatten(nest)])
      if variable is self._deviation:
        values = np.where(values > 0, values, 1)
      variable.assign(values.astype(np.float32))

  def _numbers(self, x: tf.Tensor) -> tf.Tensor:
    """Flattens a leaf to `[N, D]`."""
    if self._num_indices and x.dtype.is_integer:
      x = tf.one_hot(x, self._num_indices)
    elif x.dtype == tf.uint8 and x.shape.rank == 4:
      raise config.ConfigError(
          f'VectorTorso: the observation has an image, uint8 {x.shape[1:].as_list()}: '
          'expected numbers. PixelTorso or ConvTorso embeds one image, and SpecTorso, '
          'the default of networks without a torso, any observation. If it is an array '
          'of indices, set VectorTorso.num_indices')
    return tf.cast(tf.reshape(x, [-1, x.shape[1:].num_elements()]), self.compute_dtype)


@config.configurable
class PixelTorso(Torso):
  """The ResNet for images (GTrXL, appendix A, after Hessel et al., 2018).

  Each stack has a 3x3 convolution, 3x3 max-pooling with stride 2, and two residual
  blocks. A ReLU and a ReLU layer of `units` follow the last stack.

  The observation is one image `[..., H, W, C]`, alone or as the only leaf of a nest:
  uint8, which is rescaled to [0, 1], or floating point, which is not.

  Args:
    channels: number of channels of each stack. The paper does not give them; the
      defaults reproduce the parameter counts of its Table 2, IMPALA's (16, 32, 32) do
      not.
    units: width of the output, also inferred from Table 2.
  """

  def __init__(self, channels: Sequence[config.PositiveInt] = (64, 128, 128),
               units: config.PositiveInt = 256, name: Optional[str] = None):
    super().__init__(name=name)
    self._stacks = [_ResidualStack(c, name=f'stack_{i}')
                    for i, c in enumerate(channels)]
    self._flatten = tf.keras.layers.Flatten()
    self._linear = tf.keras.layers.Dense(units, 'relu', name='linear')

  def embed(self, observation: Any) -> tf.Tensor:
    outputs = _rescaled(_image(observation), self.compute_dtype)
    for stack in self._stacks:
      outputs = stack(outputs)
    return self._linear(self._flatten(tf.nn.relu(outputs)))


@config.configurable
class ConvTorso(Torso):
  """Three convolutions for images (RATE, Table 10), each followed by a ReLU.

  For the observation see `PixelTorso`. The output is the last convolution's, flattened;
  the layer after it makes the token.

  Args:
    channels: number of channels of each convolution.
    kernel_sizes: height and width of each kernel.
    strides: of each convolution. The table does not have them; these are DQN's (Mnih et
      al., 2015), whose channels and kernels the table has.
    padding: pixels of zeros on each side of the inputs of each convolution; 2 in Memory
      Maze.
    normalize: whether the mean of each pixel is subtracted, and the result divided by
      the root mean square of the pixels' deviations, instead of rescaling bytes. A
      background that never changes becomes 0, so that small objects on it stand out. An
      offline experiment takes the statistics from its dataset; they are variables,
      which checkpoints and exported policies have. RATE's code does not do this.
  """

  def __init__(self, channels: Sequence[config.PositiveInt] = (32, 64, 64),
               kernel_sizes: Sequence[config.PositiveInt] = (8, 4, 3),
               strides: Sequence[config.PositiveInt] = (4, 2, 1),
               padding: config.NonNegativeInt = 0, name: Optional[str] = None,
               normalize: bool = False):
    super().__init__(name=name)
    if not len(channels) == len(kernel_sizes) == len(strides):
      raise config.ConfigError(
          f'ConvTorso has channels {channels}, kernel_sizes {kernel_sizes} and strides '
          f'{strides}: expected equally many')
    self.normalizes = normalize
    self._padding = padding
    self._layers = [
        tf.keras.layers.Conv2D(*sizes, activation='relu', name=f'convolution_{i}')
        for i, sizes in enumerate(zip(channels, kernel_sizes, strides))]
    self._flatten = tf.keras.layers.Flatten()

  def embed(self, observation: Any) -> tf.Tensor:
    image = _image(observation)
    outputs = (self._normalized(image, ()) if self.normalizes
               else _rescaled(image, self.compute_dtype))
    around = [self._padding, self._padding]
    for layer in self._layers:
      outputs = tf.pad(outputs, [[0, 0], around, around, [0, 0]])
      size, kernel = outputs.shape[1:3], layer.kernel_size
      if min(size) < min(kernel):
        raise ValueError(f'observation: too small for ConvTorso: {layer.name} sees '
                         f'{size.as_list()} pixels, expected {list(kernel)} or more')
      outputs = layer(outputs)
    return self._flatten(outputs)

  def set_statistics(self, mean: Any, deviation: Any) -> None:
    """Sets the statistics that normalize images; the variables must exist.

    Args:
      mean: a nest with one array `[H, W, C]`, as an observation.
      deviation: the same. If all of it is 0, images are not scaled.
    """
    [mean], [deviation] = tf.nest.flatten(mean), tf.nest.flatten(deviation)
    self._mean.assign(np.asarray(mean, np.float32))
    self._deviation.assign(np.sqrt(np.mean(np.square(deviation))) or 1.0)


def _image(observation: Any) -> tf.Tensor:
  """The observation's image `[N, H, W, C]`, uint8 or floating point."""
  leaves = tf.nest.flatten(observation)
  if len(leaves) != 1 or leaves[0].shape.rank != 4:
    raise ValueError('observation: expected one image [H, W, C] per step, got '
                     f'{[x.shape[1:].as_list() for x in leaves]}')
  image = leaves[0]
  if image.dtype != tf.uint8 and not image.dtype.is_floating:
    raise ValueError('observation: expected an image of uint8 or floating point, '
                     f'got {image.dtype.name}')
  return image


def _rescaled(image: tf.Tensor, dtype: str) -> tf.Tensor:
  """The image as floats; bytes are rescaled to [0, 1]."""
  floats = tf.cast(image, dtype)
  return floats / 255 if image.dtype == tf.uint8 else floats


class _ResidualStack(tf.keras.layers.Layer):
  """Maps `[N, H, W, C]` to `[N, ceil(H / 2), ceil(W / 2), channels]`."""

  def __init__(self, channels: int, name: str):
    super().__init__(name=name)
    def convolution(name: str) -> tf.keras.layers.Conv2D:
      return tf.keras.layers.Conv2D(channels, 3, padding='same', name=name)

    self._convolution = convolution('convolution')
    self._pool = tf.keras.layers.MaxPool2D(3, strides=2, padding='same')
    self._blocks = [(convolution(f'block_{i}_first'), convolution(f'block_{i}_second'))
                    for i in range(2)]

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    outputs = self._pool(self._convolution(inputs))
    for first, second in self._blocks:
      outputs += second(tf.nn.relu(first(tf.nn.relu(outputs))))
    return outputs
