"""The bounds of continuous actions, as policies and random actions read them."""

from typing import Tuple

from dm_env import specs
import numpy as np

# A bound this large is the limit of a float type and not of the action: tasks write
# float32's largest number where there is no bound.
_NO_BOUND = 1e30


def bounds(spec: specs.Array) -> Tuple[np.ndarray, np.ndarray]:
  """Returns the minimum and the maximum of each element of an array of floats.

  They are float64 with the array's shape, and infinite where there is no bound. Bounds
  of 1e30 and more count as none.

  >>> bounds(specs.BoundedArray((2,), np.float32, [-1, 0], [1, np.finfo('f').max]))
  (array([-1.,  0.]), array([ 1., inf]))
  """
  low, high = (
      np.broadcast_to(getattr(spec, name, none), spec.shape).astype(np.float64)
      for name, none in (('minimum', -np.inf), ('maximum', np.inf)))
  return (np.where(low <= -_NO_BOUND, -np.inf, low),
          np.where(high >= _NO_BOUND, np.inf, high))


def middle_and_half(spec: specs.Array) -> Tuple[np.ndarray, np.ndarray]:
  """Returns the middle and half the width of the bounds of each element.

  An element with one bound has that as its middle; one without bounds has 0. Where the
  width is infinite, or 0 as the bounds are equal, the half is 1.

  >>> middle_and_half(specs.BoundedArray((3,), np.float32, [0, 5, 3], [4, np.inf, 3]))
  (array([2., 5., 3.]), array([2., 1., 1.]))
  """
  low, high = bounds(spec)
  has_low, has_high = np.isfinite(low), np.isfinite(high)
  finite_low = np.where(has_low, low, np.where(has_high, high, 0.))
  finite_high = np.where(has_high, high, finite_low)
  half = (finite_high - finite_low) / 2
  return (finite_high + finite_low) / 2, np.where(half > 0, half, 1.)
