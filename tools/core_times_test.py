"""Tests of core_times.py."""

from absl.testing import absltest
from absl.testing import parameterized
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from tools import core_times


class CoreTimesTest(parameterized.TestCase):

  @parameterized.parameters(*core_times.ALIKE)
  @pytest.mark.long
  def test_every_core_can_be_timed(self, name):
    setting = core_times.Setting(core_times.ALIKE[name], batch_size=1)
    core = setting.make()
    core.build(tf.TensorShape([None, None, setting.width]))
    for step in (core_times.training_step(core, setting),
                 core_times.acting_step(core, setting, batch_size=2)):
      self.assertGreater(core_times.cpu_milliseconds(step, count=1), 0)

  def test_no_core_is_left_out(self):
    self.assertEqual({type(make()) for make in core_times.ALIKE.values()},
                     set(cores.CORES))


if __name__ == '__main__':
  absltest.main()
