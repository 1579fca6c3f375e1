"""Tests for sampling."""


from absl.testing import absltest
from absl.testing import parameterized
import gin
import numpy as np

from gtrxl_tf.settings import config
from gtrxl_tf.settings import sampling
from gtrxl_tf.training.online import experiment  # noqa: F401


@config.configurable
class Sampled:
  """Has two settings to sample."""

  def __init__(self, first: config.PositiveFloat = 1.0,
               second: config.PositiveFloat = 1.0):
    self.first = first
    self.second = second


_SETTINGS = """
Sampled.first = @first/log_uniform()
first/log_uniform.low = 1e-3
first/log_uniform.high = 0.1
Sampled.second = @second/log_uniform()
second/log_uniform.low = 5e-6
second/log_uniform.high = 4e-4
"""


class SamplingTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    gin.clear_config()
    self.addCleanup(gin.clear_config)

  def _drawn(self, *bindings):
    """The numbers that a process with these settings samples."""
    gin.clear_config()
    config.parse([], [_SETTINGS, *bindings])
    sampled = Sampled()
    return sampled.first, sampled.second

  def _of_seeds(self, num):
    return np.array([self._drawn(f'Experiment.seed = {i}') for i in range(num)])

  def test_samples_never_change(self):
    np.testing.assert_allclose(self._drawn('Experiment.seed = 3'),
                               [1.3063490167e-3, 6.2412456062e-6])

  def test_logarithms_are_uniform_and_independent(self):
    ranges = np.log([[1e-3, 0.1], [5e-6, 4e-4]])
    fractions = ((np.log(self._of_seeds(400)) - ranges[:, 0])
                 / (ranges[:, 1] - ranges[:, 0]))
    self.assertBetween(fractions.min(), 0, 0.02)
    self.assertBetween(fractions.max(), 0.98, 1)
    # Kolmogorov-Smirnov: 1 % of uniform samples exceed 1.63 / sqrt(n).
    grid = (np.arange(400) + 0.5) / 400
    for column in fractions.T:
      self.assertLess(np.abs(np.sort(column) - grid).max(), 1.63 / 20)
    self.assertLess(abs(np.corrcoef(fractions.T)[0, 1]), 0.15)
    # Consecutive seeds also give independent samples.
    self.assertLess(abs(np.corrcoef(fractions[1:, 0], fractions[:-1, 0])[0, 1]), 0.15)

  def test_the_seed_may_be_a_macro_and_is_0_if_it_is_not_bound(self):
    self.assertEqual(self._drawn('Experiment.seed = %number', 'number = 7'),
                     self._drawn('Experiment.seed = 7'))
    self.assertEqual(self._drawn(), self._drawn('Experiment.seed = 0'))
    self.assertNotEqual(self._drawn(), self._drawn('Experiment.seed = 7'))

  @parameterized.parameters(
      (['first/log_uniform.high = 1e-3'], r'first/log_uniform.high = 0.001: expected a '
       r'number > first/log_uniform.low = 0.001'),
      (['first/log_uniform.low = 0.2'], r'first/log_uniform.high = 0.1: expected'),
      (['first/log_uniform.low = 0'], r'log_uniform.low = 0: expected a number > 0'),
      (['first/log_uniform.high = "1"'], r"log_uniform.high = '1': expected a number"),
      (['Sampled.first = @other/log_uniform()'], r'log_uniform.low is not set'),
      (['Sampled.first = @log_uniform()', 'log_uniform.low = 1',
        'log_uniform.high = 2'],
       r'@log_uniform\(\) has no scope: expected @NAME/log_uniform\(\)'),
      (['Sampled.first = @first/log_uniform'],
       r'Sampled.first = .*: expected a number'))
  def test_refuses(self, bindings, message):
    with self.assertRaisesRegex(config.ConfigError, '^' + message):
      self._drawn(*bindings)

  def test_samples_of_a_run_are_read_from_its_settings(self):
    first, second = self._drawn('Experiment.seed = 7', 'Sampled.first = %drawn',
                                'drawn = @first/log_uniform()')
    settings = gin.operative_config_str() + '\nExperiment.seed = 7'
    self._drawn('Experiment.seed = 8')
    self.assertEqual(sampling.samples(settings), {'first': first, 'second': second})

  def test_a_run_may_have_no_samples(self):
    self.assertEqual(sampling.samples('Sampled.first = 2.0'), {})


if __name__ == '__main__':
  absltest.main()
