"""A torso for any observation, made from the observation's spec."""

import math
from typing import Any, Callable, Optional

from dm_env import specs
import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.networks import torsos
from gtrxl_tf.settings import config


@config.configurable
class SpecTorso(torsos.Torso):
  """Embeds any observation: each of its arrays as the array's spec says.

  The first row of this table that fits an array decides:

  | array | embedded as |
  |---|---|
  | uint8 `[H, W, C]`; floats `[H, W, C]`, see `environments.specs.is_image` | image |
  | bools; integers with two values each, not a `DiscreteArray` (MultiBinary) | bit |
  | integers with at most `max_one_hot` values each | index: a one-hot vector |
  | integers with more values, at most 65,536 in the array | row of a learned table |
  | floats; integers with still more values, or without bounds | number |

  The number of an integer's values follows from its bounds, which may differ between
  the elements of an array; 2**31 - 1 and more is no bound. Each element has its own rows
  in the table. Numbers and float images are scaled, see `environments.specs.scaling`.

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
  """

  def __init__(self, observation_spec: Any,
               vector: Callable[[], torsos.Torso] = torsos.VectorTorso,
               image: Callable[[], torsos.Torso] = torsos.PixelTorso,
               units: config.PositiveInt = 256,
               max_one_hot: config.PositiveInt = 64,
               embedding_dim: config.PositiveInt = 32,
               name: Optional[str] = None):
    super().__init__(name=name, autocast=False)  # Numbers are scaled in float32.
    for argument, make in ('vector', vector), ('image', image):
      if isinstance(make, tf.Module) or not callable(make):
        raise config.ConfigError(
            f'SpecTorso.{argument} = {make!r:.80}: expected a function that makes a torso')
    self._check(observation_spec)
    self.expect(observation_spec)
    self._kinds = kinds = tuple(
        specs_lib.kind(spec, max_one_hot) for spec in self._specs)
    self._tables = [
        tf.keras.layers.Embedding(
            sum(specs_lib.num_values(spec)), embedding_dim,
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
      if not isinstance(spec, specs.Array) or spec.dtype.kind not in 'biuf':
        name = 'observation_spec' + ''.join(f'[{key!r}]' for key in path)
        raise config.ConfigError(f'{name} = {spec!r}: expected an array of numbers')
    if not any(math.prod(spec.shape) for spec in tf.nest.flatten(observation_spec)):
      raise config.ConfigError(
          f'observation_spec = {observation_spec!r}: expected at least one number')

  def embed(self, observation: Any) -> tf.Tensor:
    tables, images = iter(self._tables), iter(self._images)
    vectors, parts = [], []
    for spec, kind, x in zip(
        self._specs, self._kinds, tf.nest.flatten(observation)):
      if kind == 'image':
        x = x if spec.dtype == np.uint8 else torsos.scaled(spec, x)
        parts.append(next(images)(x, 1))
      elif kind == 'index':
        vectors.append(_one_hot(spec, x, self.compute_dtype))
      elif kind == 'row':
        vectors.append(next(tables)(_rows(spec, x)))
      else:
        vectors.append(torsos.scaled(spec, x))
    if vectors:
      parts.insert(0, self._vector(vectors, 1))
    if self._join is None:
      return parts[0]
    return self._join(tf.concat(parts, axis=-1))


def _from_minimum(spec: specs.Array, x: tf.Tensor) -> tf.Tensor:
  """Flattens integers `[N, *shape]` to `[N, n]`, int64, counted from their minimum."""
  flat = tf.cast(tf.reshape(x, [-1, math.prod(spec.shape)]), tf.int64)
  return flat - specs_lib.minimum(spec).reshape(-1)


def _one_hot(spec: specs.Array, x: tf.Tensor, dtype: str) -> tf.Tensor:
  """Converts integers `[N, *shape]` to each element's one-hot vector, concatenated."""
  num_values = np.array(specs_lib.num_values(spec))
  depth = num_values.max()
  vectors = tf.one_hot(_from_minimum(spec, x), depth, dtype=dtype)
  flat = tf.reshape(vectors, [-1, len(num_values) * depth])
  used = np.flatnonzero(np.arange(depth) < num_values[:, np.newaxis])
  return flat if len(used) == flat.shape[1] else tf.gather(flat, used, axis=1)


def _rows(spec: specs.Array, x: tf.Tensor) -> tf.Tensor:
  """Returns the rows `[N, n]` of integers in their table."""
  num_values = np.array(specs_lib.num_values(spec))
  first = np.cumsum(num_values) - num_values
  # An index outside its bounds would be an error on CPUs and zeros on GPUs.
  return first + tf.clip_by_value(_from_minimum(spec, x), 0, num_values - 1)
