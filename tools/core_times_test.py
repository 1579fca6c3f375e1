"""Tests of core_times.py."""

import time

from absl.testing import absltest
from absl.testing import parameterized
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from tools import core_times


class CoreTimesTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(core_times.training_step, core_times.acting_step)
  @pytest.mark.medium
  def test_steps_can_be_called_repeatedly(self, make_step):
    sizes = core_times.SIZES['tiny']
    step = make_step(core_times.make_core(sizes), sizes, xla=False)
    self.assertGreater(core_times.cpu_milliseconds(step, count=3, warmup=1), 0)

  @parameterized.parameters(*core_times.ALIKE)
  @pytest.mark.long
  def test_every_core_can_be_timed(self, name):
    core = core_times.ALIKE[name]()
    sizes = core_times.ALIKE_SIZES._replace(batch_size=1)
    core.build(tf.TensorShape([None, None, sizes.model_dim]))
    for make_step in (core_times.training_step, core_times.acting_step):
      step = make_step(core, sizes, xla=False)
      self.assertGreater(core_times.cpu_milliseconds(step, count=1, warmup=0), 0)

  def test_no_core_is_left_out(self):
    self.assertEqual({type(make()) for make in core_times.ALIKE.values()},
                     set(cores.CORES))

  def test_memory_is_full(self):
    sizes = core_times.SIZES['tiny']
    state = core_times.full_state(core_times.make_core(sizes), batch_size=2)
    self.assertAllEqual(state.valid, tf.ones([2, sizes.memory_length], tf.bool))
    self.assertAllGreater(tf.math.reduce_std(state.memory, axis=[0, 1, 3]), 0.5)

  def test_sleep_takes_no_cpu_time(self):
    self.assertLess(core_times.cpu_milliseconds(
        lambda: time.sleep(0.02), count=3, warmup=0), 10)


if __name__ == '__main__':
  absltest.main()
