"""Tests of initial_map.py."""

from absl.testing import absltest
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from tools import initial_map


class InitialMapTest(absltest.TestCase):

  def test_a_core_without_memory_shows_its_current_input_alone(self):
    tf.keras.utils.set_random_seed(0)
    found = initial_map.measure(cores.Memoryless(num_layers=1, hidden_dim=256), seed=0)
    self.assertAlmostEqual(found['same input'], 1, places=5)

  @pytest.mark.medium
  def test_gates_keep_the_input_that_norms_after_residuals_lose(self):
    found = {}
    for variant in ('gtrxl', 'trxl'):
      tf.keras.utils.set_random_seed(0)
      found[variant] = initial_map.measure(cores.TransformerXL(
          variant=variant, num_layers=6, model_dim=64, num_heads=2, head_dim=16,
          memory_length=24), seed=0)
    gap = {variant: x['same input'] - x['other input'] for variant, x in found.items()}
    self.assertGreater(gap['gtrxl'], 0.5)
    self.assertLess(gap['trxl'], 0.3)


if __name__ == '__main__':
  absltest.main()
