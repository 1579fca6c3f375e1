"""Torsos: networks that embed the observation of one step as a vector."""

import abc
from typing import Any, Optional, Sequence

from dm_env import specs
import tensorflow as tf

from gtrxl_tf.environments import specs as specs_lib
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
  _specs: Sequence[specs.Array] = ()

  def expect(self, observation_spec: Any) -> None:
    """Tells the torso the specs of observations, by whose bounds it may scale them."""
    self._specs = tuple(tf.nest.flatten(observation_spec))

  def call(self, observation: Any, batch_dims: int) -> tf.Tensor:
    return batch_apply.batch_apply(self._embedded, observation, batch_dims)

  def _embedded(self, observation: Any) -> tf.Tensor:
    embedded = self.embed(observation)
    if embedded.shape.rank != 2:
      raise ValueError(f'{type(self).__name__}.embed returned the shape '
                       f'{embedded.shape}: expected [N, D]')
    return embedded

  @abc.abstractmethod
  def embed(self, observation: Any) -> tf.Tensor:
    """Embeds a nest of `[N, *shape]` as `[N, D]`."""


@config.configurable
class VectorTorso(Torso):
  """Tanh layers on all observations (GTrXL, appendix A, Numpad).

  Each leaf of the observation, of any shape and number type, is flattened. The leaves
  are concatenated in the order of `tf.nest.flatten`, which sorts dictionaries by key.
  Integers are numbers here, whatever they mean; `SpecTorso` embeds them as their spec
  says, and images by convolutions. Networks tell it bounds, by which it scales numbers.

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
  """

  def __init__(self, units: Sequence[config.PositiveInt] = (256, 256),
               num_indices: Optional[config.PositiveInt] = None,
               name: Optional[str] = None):
    super().__init__(name=name, autocast=False)  # Numbers are scaled in float32.
    self._num_indices = num_indices
    self._layers = [tf.keras.layers.Dense(u, 'tanh', name=f'dense_{i}')
                    for i, u in enumerate(units)]

  def embed(self, observation: Any) -> tf.Tensor:
    leaves = tf.nest.flatten(observation)
    outputs = tf.concat([*map(
        self._numbers, leaves, self._specs or [None] * len(leaves))], axis=-1)
    for layer in self._layers:
      outputs = layer(outputs)
    return outputs

  def _numbers(self, x: tf.Tensor, spec: Optional[specs.Array]) -> tf.Tensor:
    """Flattens a leaf to `[N, D]`."""
    if self._num_indices and x.dtype.is_integer:
      x = tf.one_hot(tf.cast(x, tf.int64), self._num_indices)  # It takes no int16.
    elif x.dtype == tf.uint8 and x.shape.rank == 4:
      raise config.ConfigError(
          f'VectorTorso: the observation has an image, uint8 {x.shape[1:].as_list()}: '
          'expected numbers. PixelTorso or ConvTorso embeds one image, and SpecTorso, '
          'the default of networks without a torso, any observation. If it is an array '
          'of indices, set VectorTorso.num_indices')
    elif spec is not None and specs_lib.kind(spec) != 'index':
      x = scaled(spec, x)
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
      defaults reproduce the parameter counts of its Table 2, and IMPALA's (16, 32, 32)
      do not.
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
    strides: stride of each convolution. The table does not have them; the defaults are
      DQN's (Mnih et al., 2015), whose channels and kernels the table has.
    padding: pixels of zeros on each side of the inputs of each convolution; 2 in Memory
      Maze.
  """

  def __init__(self, channels: Sequence[config.PositiveInt] = (32, 64, 64),
               kernel_sizes: Sequence[config.PositiveInt] = (8, 4, 3),
               strides: Sequence[config.PositiveInt] = (4, 2, 1),
               padding: config.NonNegativeInt = 0, name: Optional[str] = None):
    super().__init__(name=name)
    if not len(channels) == len(kernel_sizes) == len(strides):
      raise config.ConfigError(
          f'ConvTorso has channels {channels}, kernel_sizes {kernel_sizes} and strides '
          f'{strides}: expected the same number of each')
    self._padding = padding
    self._layers = [
        tf.keras.layers.Conv2D(*sizes, activation='relu', name=f'convolution_{i}')
        for i, sizes in enumerate(zip(channels, kernel_sizes, strides))]
    self._flatten = tf.keras.layers.Flatten()

  def embed(self, observation: Any) -> tf.Tensor:
    outputs = _rescaled(_image(observation), self.compute_dtype)
    around = [self._padding, self._padding]
    for layer in self._layers:
      outputs = tf.pad(outputs, [[0, 0], around, around, [0, 0]])
      size, kernel = outputs.shape[1:3], layer.kernel_size
      if min(size) < min(kernel):
        raise ValueError(f'observation: too small for ConvTorso: {layer.name} sees '
                         f'{size.as_list()} pixels, expected {list(kernel)} or more')
      outputs = layer(outputs)
    return self._flatten(outputs)


def scaled(spec: specs.Array, x: tf.Tensor) -> tf.Tensor:
  """Scales numbers `[..., *shape]` by the bounds in their spec; float32."""
  shift, scale = specs_lib.scaling(spec)
  if shift.any() or (scale != 1).any():  # Float32 would round large integers.
    x = (tf.cast(x, tf.float64) - shift) / scale
  return tf.cast(x, tf.float32)


def _image(observation: Any) -> tf.Tensor:
  """Returns the observation's image `[N, H, W, C]`, uint8 or floating point."""
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
  """Converts the image to floats; bytes are rescaled to [0, 1]."""
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
