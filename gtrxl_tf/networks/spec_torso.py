"""A torso for any observation, made from the observation's spec."""

import math
from typing import Any, Callable, Optional

from absl import logging
from dm_env import specs
import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.networks import torsos
from gtrxl_tf.settings import config

# The most rows of a table of embeddings. A larger table would have more weights than
# the rest of most networks.
_MOST_ROWS = 2 ** 16
# Bounds further apart than this are those of an integer type, not of the observation.
_NO_BOUNDS = 2.0 ** 31


@config.configurable
class SpecTorso(torsos.Torso):
  """Embeds any observation: each of its arrays as the array's spec says.

  The first row of this table that fits an array decides:

  | array | embedded as |
  |---|---|
  | integers with two values each, not a `DiscreteArray` (MultiBinary) | numbers 0, 1 |
  | integers with at most `max_one_hot` values each | one-hot vectors |
  | uint8 `[H, W, C]`; floats `[H, W, C]`, see `environments.specs.is_image` | image |
  | integers with more values, at most 65,536 in the array | rows of a learned table |
  | integers with still more values | numbers, scaled to [0, 1] by their bounds |
  | floats, bools, integers without bounds | numbers |

  The number of an integer's values follows from its bounds, which may differ between
  the elements of an array; bounds as wide as 32 bits count as none. Each element has
  its own rows in the array's table.

  Each image has its own torso. All other arrays share one, which gets them flattened
  and concatenated in the order of `tf.nest.flatten`. If there are both, or several
  images, a ReLU layer of `units` joins the parts. For floats without images the result
  is that of `VectorTorso`.

  >>> from dm_env import specs
  >>> import numpy as np
  >>> import tensorflow as tf
  >>> from gtrxl_tf import networks
  >>> torso = networks.SpecTorso({
  ...     'camera': specs.BoundedArray((16, 16, 3), np.uint8, 0, 255),
  ...     'level': specs.DiscreteArray(5), 'speed': specs.Array((2,), np.float32)},
  ...     units=8)
  >>> observation = {'camera': tf.zeros([2, 16, 16, 3], tf.uint8),
  ...                'level': tf.zeros([2], tf.int32), 'speed': tf.zeros([2, 2])}
  >>> torso(observation, batch_dims=1).shape
  TensorShape([2, 8])

  Args:
    observation_spec: nest of `dm_env` array specs of one step's observation. Networks
      for which no other torso is set pass it.
    vector: makes the torso of all arrays that are not images, called without
      arguments. Its settings, such as `VectorTorso.units`, apply here too.
    image: makes the torso of an image, called without arguments.
    units: width of the layer that joins parts. The default is the width of the other
      layers of the GTrXL paper's networks.
    max_one_hot: number of values up to which integers become one-hot vectors. With the
      layer after it, a one-hot vector is an embedding as wide as that layer, and costs
      as much as this many numbers: with 64, a board of 8 x 8 places is no more than a
      wide vector.
    embedding_dim: width of the embedding of integers with more values. The default is
      not from a paper.

  Raises:
    ConfigError: the observation has no numbers, or has arrays of something else.
  """

  def __init__(self, observation_spec: Any,
               vector: Callable[[], torsos.Torso] = torsos.VectorTorso,
               image: Callable[[], torsos.Torso] = torsos.PixelTorso,
               units: config.PositiveInt = 256,
               max_one_hot: config.PositiveInt = 64,
               embedding_dim: config.PositiveInt = 32,
               name: Optional[str] = None):
    super().__init__(name=name)
    for argument, make in ('vector', vector), ('image', image):
      if isinstance(make, tf.Module) or not callable(make):
        raise config.ConfigError(
            f'SpecTorso.{argument} = {make!r:.80}: expected a function that makes a torso')
    self._max_one_hot = max_one_hot
    self._specs = tf.nest.flatten(observation_spec)
    self._check(observation_spec)
    self._kinds = kinds = tuple(map(self._kind, self._specs))
    self._tables = [
        tf.keras.layers.Embedding(
            int(_num_values(spec).sum()), embedding_dim,
            # A row then has about the length of a one-hot vector.
            tf.keras.initializers.RandomNormal(stddev=embedding_dim ** -0.5),
            name=f'table_{i}')
        for i, (spec, kind) in enumerate(zip(self._specs, kinds)) if kind == 'row']
    num_images = kinds.count('image')
    self._vector = vector() if num_images < len(kinds) else None
    self._images = [image() for _ in range(num_images)]
    parts = num_images + (self._vector is not None)
    self._join = (
        tf.keras.layers.Dense(units, 'relu', name='join') if parts > 1 else None)

  def _check(self, observation_spec: Any) -> None:
    for path, spec in tree.flatten_with_path(observation_spec):
      name = 'observation_spec' + ''.join(f'[{key!r}]' for key in path)
      if isinstance(spec, specs.Array) and (seems := self._misshapen_image(spec)):
        logging.log_first_n(
            logging.WARNING, '%s: an array of shape %s seems to be an image %s: '
            'expected [H, W, C]', 1, name, spec.shape, seems)
      if not isinstance(spec, specs.Array) or spec.dtype.kind not in 'biuf':
        raise config.ConfigError(f'{name} = {spec!r}: expected an array of numbers')
    if not any(math.prod(spec.shape) for spec in self._specs):
      raise config.ConfigError(
          f'observation_spec = {observation_spec!r}: expected at least one number')

  def _misshapen_image(self, spec: specs.Array) -> str:
    """Returns the axes of what seems to be an image in another layout; '' if none."""
    shape = spec.shape
    if specs_lib.is_index(spec, self._max_one_hot) or (
        min(shape[-2:], default=0) < specs_lib.SMALLEST_IMAGE):
      return ''
    if len(shape) == 2 and spec.dtype == np.uint8:
      return '[H, W]'
    if len(shape) == 3 and shape[0] in specs_lib.COLOURS and (
        spec.dtype == np.uint8 or spec.dtype.kind == 'f'):
      return '[C, H, W]'
    return ''

  def _kind(self, spec: specs.Array) -> str:
    """Returns how an array is embedded: image, one_hot, row, scaled or number."""
    num_values = _num_values(spec)
    if specs_lib.is_index(spec, self._max_one_hot):
      bits = not isinstance(spec, specs.DiscreteArray) and num_values.max() <= 2
      return 'scaled' if bits else 'one_hot'
    if specs_lib.is_image(spec):
      return 'image'
    if num_values is None or not num_values.size:
      return 'number'
    return 'row' if num_values.sum() <= _MOST_ROWS else 'scaled'

  def embed(self, observation: Any) -> tf.Tensor:
    tables, images = iter(self._tables), iter(self._images)
    vectors, parts = [], []
    for spec, kind, x in zip(
        self._specs, self._kinds, tf.nest.flatten(observation)):
      if kind == 'image':
        parts.append(next(images)(x, 1))
      elif kind == 'one_hot':
        vectors.append(_one_hot(spec, x, self.compute_dtype))
      elif kind == 'row':
        vectors.append(next(tables)(_rows(spec, x)))
      elif kind == 'scaled':
        vectors.append(_scaled(spec, x))
      else:
        vectors.append(x)
    if vectors:
      parts.insert(0, self._vector(vectors, 1))
    if self._join is None:
      return parts[0]
    return self._join(tf.concat(parts, axis=-1))


def _num_values(spec: specs.Array) -> Optional[np.ndarray]:
  """Returns how many values each element has, [n].

  The result is None unless the elements are integers with bounds.
  """
  if not specs_lib.is_discrete(spec):
    return None
  num_values = np.array(specs_lib.num_values(spec), np.float64)
  return None if (num_values > _NO_BOUNDS).any() else num_values


def _from_minimum(spec: specs.Array, x: tf.Tensor) -> tf.Tensor:
  """Flattens integers `[N, *shape]` to `[N, n]`, int64, counted from their minimum."""
  flat = tf.cast(tf.reshape(x, [-1, math.prod(spec.shape)]), tf.int64)
  return flat - specs_lib.minimum(spec).reshape(-1)


def _one_hot(spec: specs.Array, x: tf.Tensor, dtype: str) -> tf.Tensor:
  """Converts integers `[N, *shape]` to each element's one-hot vector, concatenated."""
  num_values = _num_values(spec)
  depth = int(num_values.max())
  vectors = tf.one_hot(_from_minimum(spec, x), depth, dtype=dtype)
  flat = tf.reshape(vectors, [-1, len(num_values) * depth])
  used = np.flatnonzero(np.arange(depth) < num_values[:, np.newaxis])
  return flat if len(used) == flat.shape[1] else tf.gather(flat, used, axis=1)


def _rows(spec: specs.Array, x: tf.Tensor) -> tf.Tensor:
  """Returns the rows `[N, n]` of integers in their table."""
  num_values = _num_values(spec).astype(np.int64)
  first = np.cumsum(num_values) - num_values
  # An index outside its bounds would be an error on CPUs and zeros on GPUs.
  return first + tf.clip_by_value(_from_minimum(spec, x), 0, num_values - 1)


def _scaled(spec: specs.Array, x: tf.Tensor) -> tf.Tensor:
  """Converts integers `[N, *shape]` to numbers `[N, n]`, their bounds to 0 and 1."""
  width = np.maximum(_num_values(spec) - 1, 1).astype(np.float32)
  return tf.cast(_from_minimum(spec, x), tf.float32) / width
