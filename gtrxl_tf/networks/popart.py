"""PopArt: a value head that learns in normalized units for tasks of any scale.

The method is that of van Hasselt et al. (2016), arXiv 1602.07714, with one pair of
statistics for each task as in Hessel et al. (2019), arXiv 1809.04474.
"""

from typing import NamedTuple, Tuple

import tensorflow as tf

from gtrxl_tf.losses import shapes
from gtrxl_tf.settings import config


class PopArtSums(NamedTuple):
  """Sums over the steps of each task, [K] float32, that update the statistics."""
  count: tf.Tensor   # Number of steps.
  first: tf.Tensor   # Sum of G - mu.
  second: tf.Tensor  # Sum of (G - mu)^2.


def rescale(
    kernel: tf.Tensor, bias: tf.Tensor, old_mean: tf.Tensor, old_scale: tf.Tensor,
    new_mean: tf.Tensor, new_scale: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
  """Rescales a linear layer so that its denormalized outputs stay the same.

    w' = w sigma / sigma',  b' = (sigma b + mu - mu') / sigma'

  A column whose mean and scale did not change stays bit-identical.

  Args:
    kernel: [H, K].
    bias: [K].
    old_mean: [K], mu.
    old_scale: [K], sigma.
    new_mean: [K], mu'.
    new_scale: [K], sigma'.

  Returns:
    The new kernel and the new bias.
  """
  ratio = old_scale / new_scale
  # The difference of means comes first, as both can be large compared to sigma b.
  return kernel * ratio, bias * ratio + (old_mean - new_mean) / new_scale


@config.configurable
class PopArt(tf.Module):
  """Mean and scale of the value targets of K tasks, and the update of the value head.

  Statistics are exponential averages with step size beta. A batch moves those of a task
  towards the mean of the task's n targets by the rate 1 - (1 - beta)^n, the rate of n
  updates with one target each. Unlike n beta, this rate never exceeds one.

  The variance is stored instead of the papers' second moment nu. They are equivalent up
  to rounding, nu = variance + mu^2, but in float32 nu - mu^2 has no correct digits once
  mu is some thousand times the scale.

  >>> import tensorflow as tf
  >>> from gtrxl_tf import networks
  >>> popart = networks.PopArt(num_tasks=2, step_size=1.0)
  >>> head = tf.keras.layers.Dense(2)
  >>> head.build([None, 4])
  >>> targets, tasks = tf.constant([[8.0, 12.0], [1.0, 3.0]]), tf.constant([0, 1])
  >>> popart.update(popart.sums(targets, tasks, tf.ones([2, 2], tf.bool)), head)
  >>> popart.mean.numpy(), popart.scale(tasks).numpy()
  (array([10.,  2.], dtype=float32), array([2., 1.], dtype=float32))
  >>> popart.normalize(targets, tasks).numpy()
  array([[-1.,  1.],
         [-1.,  1.]], dtype=float32)

  Args:
    num_tasks: K.
    step_size: beta. The default is from V-MPO (Song et al., 2019), as are both bounds.
    scale_min: sigma is never below this.
    scale_max: sigma is never above this.

  Attributes:
    num_tasks: K.
    mean: [K] float32 variable, mu; initially 0.
    variance: [K] float32 variable; initially 1. sigma is its root within the bounds.
  """

  def __init__(
      self,
      num_tasks: config.PositiveInt = 1,
      step_size: config.PositiveFraction = 1e-4,
      scale_min: config.PositiveFloat = 1e-2,
      scale_max: config.PositiveFloat = 1e6):
    super().__init__(name='popart')
    if scale_min > scale_max:
      raise config.ConfigError(f'PopArt.scale_min = {scale_min!r}: expected a number '
                               f'<= {scale_max!r}, which is PopArt.scale_max')
    self.num_tasks = num_tasks
    self.mean = tf.Variable(tf.zeros([num_tasks]), trainable=False, name='mean')
    self.variance = tf.Variable(tf.ones([num_tasks]), trainable=False, name='variance')
    self._step_size = float(step_size)
    self._scale_bounds = scale_min, scale_max

  def scale(self, tasks: tf.Tensor) -> tf.Tensor:
    """Returns sigma, float32 `[B]`, of the tasks, integers `[B]` in [0, K)."""
    return tf.gather(self._to_scale(self.variance), tasks)

  def normalize(self, values: tf.Tensor, tasks: tf.Tensor) -> tf.Tensor:
    """Returns (values - mu) / sigma.

    Args:
      values: [B, T], in the units of the rewards.
      tasks: [B] integers in [0, K): the task of each row.

    Returns:
      [B, T] float32.
    """
    values, mean, scale = self._broadcast(values, tasks)
    return (values - mean) / scale

  def denormalize(self, values: tf.Tensor, tasks: tf.Tensor) -> tf.Tensor:
    """Returns sigma values + mu, the inverse of `normalize`, with the same shapes."""
    values, mean, scale = self._broadcast(values, tasks)
    return scale * values + mean

  def sums(self, targets: tf.Tensor, tasks: tf.Tensor, valid: tf.Tensor) -> PopArtSums:
    """Computes the sums from which a batch updates the statistics.

    The sums of parts of a batch, for example of replicas, add up to those of the batch.

    Args:
      targets: [B, T] returns G, in the units of the rewards.
      tasks: [B] integers in [0, K): the task of each row.
      valid: [B, T] bool. Targets where it is false, even NaN, have no influence.

    Returns:
      Sums about the current means, which are outdated after the next `update`.
    """
    targets, mean, _ = self._broadcast(targets, tasks)
    valid = tf.cast(valid, tf.bool)
    shapes.check('valid', valid, targets.shape, 'targets')
    centred = tf.where(valid, targets - mean, 0.)
    is_task = tf.one_hot(tasks, self.num_tasks, on_value=True, off_value=False)

    def total(x: tf.Tensor) -> tf.Tensor:  # [B, T] to [K].
      row = tf.reduce_sum(x, axis=1, keepdims=True)
      return tf.reduce_sum(tf.where(is_task, row, 0.), axis=0)

    return PopArtSums(count=total(tf.cast(valid, tf.float32)), first=total(centred),
                      second=total(tf.square(centred)))

  def update(self, sums: PopArtSums, layer: tf.keras.layers.Dense) -> None:
    """Updates the statistics and rescales the layer so that values stay the same.

    The statistics and column of a task without steps do not change. Call it in
    cross-replica context, eagerly or in a `tf.function`.

    Args:
      sums: the sums of the global batch.
      layer: the last layer of the value head, kernel [H, K] and bias [K].
    """
    shapes.check('layer.kernel', layer.kernel, [None, self.num_tasks])
    # Every variable is read once, and its assignment depends on the value read, so that
    # no assignment can come before the read.
    mean, variance, kernel, bias = (tf.convert_to_tensor(x) for x in (
        self.mean, self.variance, layer.kernel, layer.bias))
    rate = -tf.math.expm1(tf.math.multiply_no_nan(
        tf.math.log1p(-self._step_size), sums.count))
    shift = tf.math.divide_no_nan(sums.first, sums.count)
    spread = tf.maximum(
        tf.math.divide_no_nan(sums.second, sums.count) - tf.square(shift), 0.)
    new_mean = mean + rate * shift
    # The variance of a mixture: both variances and the distance between the means. No
    # term is negative, so rounding cannot make the sum negative.
    new_variance = (1. - rate) * variance + rate * (
        spread + (1. - rate) * tf.square(shift))
    new_kernel, new_bias = rescale(
        kernel, bias, mean, self._to_scale(variance), new_mean,
        self._to_scale(new_variance))
    self.mean.assign(new_mean)
    self.variance.assign(new_variance)
    layer.kernel.assign(new_kernel)
    layer.bias.assign(new_bias)

  def _to_scale(self, variance: tf.Tensor) -> tf.Tensor:
    return tf.clip_by_value(tf.sqrt(variance), *self._scale_bounds)

  def _broadcast(self, values: tf.Tensor, tasks: tf.Tensor):
    """Returns the values as float32 [B, T], and their tasks' mean and scale, [B, 1]."""
    values = tf.cast(values, tf.float32)
    tasks = tf.convert_to_tensor(tasks)
    shapes.check('values', values, [None, None])
    shapes.check('tasks', tasks, values.shape[:1], 'values without their last axis')
    mean = tf.gather(tf.convert_to_tensor(self.mean), tasks)
    return values, mean[:, tf.newaxis], self.scale(tasks)[:, tf.newaxis]
