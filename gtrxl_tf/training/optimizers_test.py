from absl.testing import absltest
from absl.testing import parameterized
import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf.training import optimizers


def _learning_rates(settings, gradient_steps, num_steps):
  """The learning rate at each of some gradient steps."""
  optimizer = settings.make(gradient_steps)
  variable = tf.Variable(0.)
  rates = []
  for _ in range(num_steps):
    # pylint: disable-next=protected-access
    rates.append(float(optimizer._decayed_lr(tf.float32)))
    optimizer.apply_gradients([(tf.constant(1.), variable)])
  return rates


class AdamTest(parameterized.TestCase):

  def test_the_learning_rate_is_constant_by_default(self):
    for gradient_steps in (4, None):
      rates = _learning_rates(optimizers.Adam(0.5), gradient_steps, 3)
      self.assertEqual(rates, [0.5] * 3)
    self.assertIsNone(optimizers.Adam().clip_norm)

  def test_the_learning_rate_falls_linearly_to_its_last_share(self):
    settings = optimizers.Adam(0.5, final_learning_rate=0.2)
    rates = _learning_rates(settings, 4, 6)
    for rate, expected in zip(rates, [0.5, 0.4, 0.3, 0.2, 0.1, 0.1]):
      self.assertAlmostEqual(rate, expected)

  def test_a_falling_rate_needs_the_number_of_steps(self):
    with self.assertRaisesRegex(
        config.ConfigError, r'^Adam.final_learning_rate = 0.0: expected 1.0, since'):
      optimizers.Adam(final_learning_rate=0.).make(None)


if __name__ == '__main__':
  absltest.main()
