"""Tests of curves.py."""

from absl.testing import absltest
import numpy as np

from gtrxl_tf.training import curves


class MeanCurveTest(absltest.TestCase):

  def _assert_mean(self, given, x, y):
    curve = curves.mean_curve([tuple(map(np.array, xy)) for xy in given])
    np.testing.assert_allclose(curve, [x, y])

  def test_joins_points_by_straight_lines(self):
    self._assert_mean([([0., 4.], [0., 8.]), ([0., 1., 4.], [2., 2., 2.])],
                      [0, 1, 4], [1, 2, 5])

  def test_is_where_every_curve_has_values(self):
    self._assert_mean([([0., 1., 2.], [1., 1., 1.]), ([1., 3.], [3., 3.])],
                      [1, 2], [2, 2])

  def test_is_empty_where_a_curve_has_no_values(self):
    self._assert_mean([([0., 1.], [np.nan, np.nan]), ([0., 1.], [3., 3.])], [], [])


if __name__ == '__main__':
  absltest.main()
