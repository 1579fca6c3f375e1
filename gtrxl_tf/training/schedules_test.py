"""Tests of schedules.py."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from gtrxl_tf.training import schedules


def _reference(step, peak, warmup, decay, end, final):
  """The schedule in one formula."""
  step = tf.cast(step, tf.float32)
  rise = (step + 1) / max(warmup, 1)
  part = tf.maximum((step - warmup) / max(end - warmup, 1), 0)
  if decay != 'cyclic_cosine':
    part = tf.minimum(part, 1)
  if decay == 'linear':
    fall = 1 - (1 - final) * part
  else:
    fall = tf.maximum(final, 0.5 * (1 + tf.cos(math.pi * part)))
  return peak * tf.minimum(rise, fall)


class WarmUpAndDecayTest(parameterized.TestCase):

  @parameterized.product(
      decay=('linear', 'cosine', 'cyclic_cosine'), warmup=(0, 7), end=(3, 50),
      final=(0.0, 0.1, 1.0))
  def test_it_is_the_formula_bit_for_bit(self, decay, warmup, end, final):
    steps = tf.range(120, dtype=tf.int64)
    schedule = schedules.WarmUpAndDecay(3e-4, warmup, decay, end, final)
    np.testing.assert_array_equal(
        schedule(steps), _reference(steps, 3e-4, warmup, decay, end, final))

  def test_it_rises_and_falls_to_its_share(self):
    for decay in 'linear', 'cosine':
      schedule = schedules.WarmUpAndDecay(2.0, 10, decay, 110, 0.1)
      np.testing.assert_allclose(
          [schedule(step) for step in (0, 4, 9, 60, 110, 1000)],
          [0.2, 1.0, 2.0, 1.1 if decay == 'linear' else 1.0, 0.2, 0.2], rtol=1e-6)


if __name__ == '__main__':
  absltest.main()
