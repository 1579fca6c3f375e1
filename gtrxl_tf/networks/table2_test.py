from absl.testing import absltest
from absl.testing import parameterized
import pytest

from gtrxl_tf.networks import table2


class Table2Test(parameterized.TestCase):

  @parameterized.named_parameters((row.model, row) for row in table2.ROWS)
  @pytest.mark.medium
  def test_parameter_count_equals_the_papers(self, row):
    self.assertAlmostEqual(table2.parameter_count(row) / 1e6, float(row.millions),
                           delta=row.rounding)

  def test_rounding_is_half_a_unit_of_the_last_printed_digit(self):
    rounding = {row.millions: row.rounding for row in table2.ROWS}
    self.assertAlmostEqual(rounding['9.25'], 0.005)
    self.assertAlmostEqual(rounding['28.6'], 0.05)


if __name__ == '__main__':
  absltest.main()
