"""The checks of conformance_test.py for the cores that it leaves out."""

from absl.testing import parameterized
import tensorflow as tf

from gtrxl_tf.cores import conformance_test


class ConformanceSlowTest(conformance_test.Checks):

  @parameterized.named_parameters(conformance_test.SIMILAR)
  def test_records_restore_the_state(self, name):
    self.check_records_restore_the_state(name)

  @parameterized.named_parameters(conformance_test.SIMILAR)
  def test_xla_computes_the_same(self, name):
    self.check_xla_computes_the_same(name)

  @parameterized.named_parameters(conformance_test.SIMILAR)
  def test_saved_model_round_trip(self, name):
    self.check_saved_model_round_trip(name)

  @parameterized.named_parameters(conformance_test.SIMILAR)
  def test_keras_round_trip(self, name):
    self.check_keras_round_trip(name)

  @parameterized.named_parameters(conformance_test.SIMILAR)
  def test_checkpoint_round_trip(self, name):
    self.check_checkpoint_round_trip(name)

  @parameterized.named_parameters(conformance_test.SIMILAR)
  def test_mixed_precision(self, name):
    self.check_mixed_precision(name)


if __name__ == '__main__':
  tf.test.main()
