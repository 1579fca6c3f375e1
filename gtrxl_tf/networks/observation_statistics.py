"""Statistics that normalize observations."""

import math
from typing import Any, NamedTuple

from dm_env import specs
import numpy as np
import tensorflow as tf

from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.losses import averages
from gtrxl_tf.settings import config

# With running statistics, values are clipped to +-10, as in OpenAI's baselines.
_LIMIT = 10.0
# Added to variances, also as in baselines.
_SMALLEST_VARIANCE = 1e-8
# Float32 does not count single steps above this. From there on, statistics are averages
# over about this many recent steps.
_MOST_STEPS = 2.0 ** 24


class ObservationSums(NamedTuple):
  """Sums over the steps of a batch, float32, with which the statistics are updated."""
  count: tf.Tensor   # []: number of steps.
  first: tf.Tensor   # [n]: sum of x - mean.
  second: tf.Tensor  # [n]: sum of (x - global batch's mean)^2.


class ObservationStatistics(tf.Module):
  """Statistics that bring the numbers in observations to mean 0 and variance 1.

  Running statistics are those of all steps so far, and `update` adds a batch of steps.
  They normalize all numbers, as `SpecTorso` defines them, and clip the result to
  [-10, 10]. Before the first update they only clip.

  Other statistics are those of a dataset, which `assign` sets once. They normalize
  numbers and images, including images of bytes. The mean of each pixel is subtracted,
  and the result is divided by the root mean square of the pixels' deviations. A
  background that never changes becomes 0, so that small objects on it stand out.

  All other arrays, such as indices and an action mask, stay as they are.

  Args:
    observation_spec: nest of `dm_env` array specs of one step's observation.
    running: whether they are running statistics.

  Attributes:
    count: [] float32 variable, the number of steps of running statistics.
    mean: [n] float32 variable, of the n numbers that are normalized, in the order of
      `tf.nest.flatten`.
    variance: [n] float32 variable.
  """

  def __init__(self, observation_spec: Any, running: bool):
    super().__init__(name='observation_statistics')
    self._running = running
    self._specs = tf.nest.flatten(observation_spec)
    size = sum(
        math.prod(spec.shape) for spec in self._specs if self._is_normalized(spec))
    if not size:
      raise config.ConfigError(
          f'normalize_observations = True with {observation_spec!r}: expected an array '
          f'of floats or wide integers, {"and no" if running else "or an"} image')
    self.count, self.mean, self.variance = (
        tf.Variable(value, trainable=False, name=name) for name, value in (
            ('count', tf.zeros([])), ('mean', tf.zeros([size])),
            ('variance', tf.ones([size]))))

  def unbounded(self, observation_spec: Any) -> Any:
    """Returns the spec of normalized observations, which have no bounds any more."""
    return tf.nest.map_structure(
        lambda spec: specs.Array(spec.shape, spec.dtype, spec.name)
        if self._is_normalized(spec) else spec, observation_spec)

  def normalize(self, observation: Any) -> Any:
    """Returns an observation, nest of `[..., *shape]`, with float32 where normalized."""
    begin, normalized = 0, []
    mean = tf.convert_to_tensor(self.mean)
    deviation = tf.sqrt(self.variance + _SMALLEST_VARIANCE)
    for spec, x in zip(self._specs, tf.nest.flatten(observation)):
      if self._is_normalized(spec):
        end = begin + math.prod(spec.shape)
        x = (tf.cast(x, tf.float32) - tf.reshape(mean[begin:end], spec.shape)
             ) / tf.reshape(deviation[begin:end], spec.shape)
        if self._running:
          x = tf.clip_by_value(x, -_LIMIT, _LIMIT)
        begin = end
      normalized.append(x)
    return tf.nest.pack_sequence_as(observation, normalized)

  def assign(self, mean: Any, deviation: Any) -> None:
    """Sets the statistics to those of a dataset.

    Args:
      mean: nest of arrays, as an observation.
      deviation: nest of arrays, as an observation; for an image their root mean square
        counts. Where a deviation is below 1e-4, as rounding can make that of a
        constant, observations are not scaled.
    """
    means, variances = [], []
    for spec, x, y in zip(self._specs, *map(tf.nest.flatten, (mean, deviation))):
      if self._is_normalized(spec):
        variance = np.square(y, dtype=np.float64).ravel()
        if specs_lib.is_image(spec):
          variance[:] = np.mean(variance)
        means.append(np.ravel(x))
        # `normalize` adds what is subtracted here.
        variances.append(np.where(
            variance > _SMALLEST_VARIANCE, variance, 1) - _SMALLEST_VARIANCE)
    self.mean.assign(np.concatenate(means))
    self.variance.assign(np.concatenate(variances))

  def sums(self, observation: Any) -> ObservationSums:
    """Computes the sums of a batch for `update`.

    In a replica context these are the replica's sums; add those of all replicas. The
    squares are centred by the batch's own mean. With the running mean, which begins at
    0, float32 would lose the variance of numbers far from that mean.

    Args:
      observation: nest of `[B, T, *shape]`; every step counts.
    """
    floats = tf.concat([
        tf.reshape(tf.cast(x, tf.float32), [-1, math.prod(spec.shape)])
        for spec, x in zip(self._specs, tf.nest.flatten(observation))
        if self._is_normalized(spec)], axis=-1)
    centred = floats - self.mean
    count = tf.cast(tf.shape(floats)[0], tf.float32)
    first = tf.reduce_sum(centred, axis=0)
    shift = tf.math.divide_no_nan(
        averages.sum_over_replicas(first), averages.sum_over_replicas(count))
    return ObservationSums(
        count, first, tf.reduce_sum(tf.square(centred - shift), axis=0))

  def update(self, sums: ObservationSums) -> None:
    """Adds a batch to the statistics (Chan et al., 1979).

    Call it in cross-replica context, eagerly or in a `tf.function`.

    Args:
      sums: the sums of the global batch, computed with the present mean.
    """
    # Every variable is read before any is assigned.
    count, mean, variance = (
        tf.convert_to_tensor(x) for x in (self.count, self.mean, self.variance))
    total = count + sums.count
    shift = tf.math.divide_no_nan(sums.first, sums.count)
    share = tf.math.divide_no_nan(sums.count, total)
    new_mean = mean + share * shift
    squares = count * variance + sums.second + count * share * tf.square(shift)
    new_variance = tf.where(
        total > 0, tf.math.divide_no_nan(squares, total), variance)
    self.mean.assign(new_mean)
    self.variance.assign(new_variance)
    self.count.assign(tf.minimum(total, _MOST_STEPS))

  def _is_normalized(self, spec: specs.Array) -> bool:
    return specs_lib.kind(spec) in ('number', 'image')[:2 - self._running]
