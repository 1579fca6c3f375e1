"""Tests of optimizers.py."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from gtrxl_tf.settings import config
from gtrxl_tf.training import optimizers


def _learning_rates(settings, gradient_steps, num_steps, shares=()):
  """The learning rate at each of some gradient steps, of a compiled function.

  Args:
    settings: the optimizer's; it does not decay weights.
    gradient_steps: see `OptimizerSettings.make`.
    num_steps: how many rates are returned.
    shares: the share of the run that is over before each step, if the rate follows it.
  """
  progress = tf.Variable(0.0) if shares else None
  optimizer = settings.make(gradient_steps, progress)
  variable = tf.Variable(0.0)
  # Adam's step on a gradient that does not change is as long as the learning rate.
  optimizer.apply_gradients([(tf.constant(0.0), variable)])  # Makes its variables.
  optimizer.iterations.assign(0)

  @tf.function
  def step():
    optimizer.apply_gradients([(tf.constant(1.0), variable)])

  rates = []
  for i in range(num_steps):
    if shares:
      progress.assign(shares[i])
    before = float(variable)
    step()
    rates.append(before - float(variable))
  return rates


class AdamTest(parameterized.TestCase):

  def test_the_learning_rate_is_constant_by_default(self):
    for gradient_steps in (4, None):
      rates = _learning_rates(optimizers.Adam(0.5), gradient_steps, 3)
      np.testing.assert_allclose(rates, 0.5, rtol=1e-5)
    self.assertIsNone(optimizers.Adam().clip_norm)

  def test_the_learning_rate_falls_linearly_to_its_last_share(self):
    settings = optimizers.Adam(0.5, final_learning_rate=0.2)
    rates = _learning_rates(settings, 4, 6)
    np.testing.assert_allclose(rates, [0.5, 0.4, 0.3, 0.2, 0.1, 0.1], rtol=1e-5)

  def test_it_falls_with_the_progress_of_a_run_however_many_steps_that_takes(self):
    settings = optimizers.Adam(0.5, final_learning_rate=0.2)
    rates = _learning_rates(settings, 2, 6, [0.0, 0.0, 0.25, 0.5, 1.0, 1.5])
    np.testing.assert_allclose(rates, [0.5, 0.5, 0.4, 0.3, 0.1, 0.1], rtol=1e-5)

  def test_a_falling_rate_needs_the_number_of_steps(self):
    with self.assertRaisesRegex(config.ConfigError, '^Adam.final_learning_rate = 0.0'):
      optimizers.Adam(final_learning_rate=0.).make(None)


class AdamWTest(parameterized.TestCase):

  def adamw(self, **settings):
    return optimizers.AdamW(
        0.5, weight_decay=0.0, beta_1=0.9, beta_2=0.9, warmup_steps=2,
        final_learning_rate=0.0, **settings)

  def test_it_warms_up_by_steps_and_falls_with_the_progress_of_a_run(self):
    rates = _learning_rates(self.adamw(), 4, 5, [0.0, 0.1, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(rates, [0.25, 0.5, 0.5, 0.25, 0.0], rtol=1e-5)

  def test_a_decay_of_some_steps_does_not_follow_the_run(self):
    rates = _learning_rates(self.adamw(decay_steps=4), 100, 5, [0.0] * 5)
    np.testing.assert_allclose(rates, [0.25, 0.5, 0.5, 0.25, 0.0], rtol=1e-5)

  def test_its_steps_are_those_of_the_paper_of_adamw(self):
    rate, decay, beta_1, beta_2 = 0.1, 0.2, 0.8, 0.9
    optimizer = optimizers.AdamW(
        rate, decay, beta_1, beta_2, warmup_steps=0, final_learning_rate=1.0).make(10)
    x = tf.Variable([1.0, -2.0])
    expected = x.numpy().astype(float)
    mean = square = np.zeros(2)
    for t in range(1, 6):
      gradient = np.array([0.5, -3.0]) * t
      optimizer.apply_gradients([(tf.constant(gradient, tf.float32), x)])
      mean = beta_1 * mean + (1 - beta_1) * gradient
      square = beta_2 * square + (1 - beta_2) * gradient**2
      step = (mean / (1 - beta_1**t)) / (np.sqrt(square / (1 - beta_2**t)) + 1e-8)
      expected = expected - rate * (step + decay * expected)
      np.testing.assert_allclose(x.numpy(), expected, rtol=1e-5)

  def test_an_average_follows_the_weights_and_does_not_change_them(self):
    def weights(**settings):
      optimizer = self.adamw(**settings).make(8)
      variable = tf.Variable(1.0)
      values = []
      for _ in range(4):
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
        values.append(float(variable))
      if settings:
        optimizer.finalize_variable_values([variable])
      return values, float(variable)

    values, _ = weights()
    averaged, average = weights(ema_momentum=0.75)
    np.testing.assert_allclose(averaged, values, rtol=1e-6)
    expected = 1.0
    for value in values:
      expected = 0.75 * expected + 0.25 * value
    self.assertAlmostEqual(average, expected, places=6)

  def test_a_decay_needs_an_end(self):
    with self.assertRaisesRegex(config.ConfigError, '^AdamW.decay_steps is not set'):
      self.adamw().make(None)

  @parameterized.parameters(
      (dict(beta_1=1.0), 'beta_1 = 1.0: expected less than 1'),
      (dict(beta_2=1.0), 'beta_2 = 1.0: expected less than 1'),
      (dict(ema_momentum=1.0), 'ema_momentum = 1.0: expected less than 1'),
      (dict(decay_steps=100, warmup_steps=100),
       'decay_steps = 100: expected more than AdamW.warmup_steps = 100'))
  def test_settings_that_never_train_are_refused(self, settings, message):
    with self.assertRaisesRegex(config.ConfigError, f'^AdamW.{message}'):
      optimizers.AdamW(**settings)


if __name__ == '__main__':
  absltest.main()
