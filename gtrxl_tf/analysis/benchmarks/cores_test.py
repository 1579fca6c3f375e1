"""Tests for benchmark."""

import time

from absl.testing import absltest
from absl.testing import parameterized
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.analysis.benchmarks import cores as cores_lib


class BenchmarkTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(cores_lib.training_step, cores_lib.acting_step)
  @pytest.mark.medium
  def test_steps_can_be_called_repeatedly(self, make_step):
    sizes = cores_lib.SIZES['tiny']
    step = make_step(cores_lib.make_core(sizes), sizes, xla=False)
    self.assertGreater(cores_lib.cpu_milliseconds(step, count=3, warmup=1), 0)

  @parameterized.parameters(*cores_lib.ALIKE)
  @pytest.mark.long
  def test_every_core_can_be_timed(self, name):
    core = cores_lib.ALIKE[name]()
    sizes = cores_lib.ALIKE_SIZES._replace(batch_size=1)
    core.build(tf.TensorShape([None, None, sizes.model_dim]))
    for make_step in (cores_lib.training_step, cores_lib.acting_step):
      step = make_step(core, sizes, xla=False)
      self.assertGreater(cores_lib.cpu_milliseconds(step, count=1, warmup=0), 0)

  def test_no_core_is_left_out(self):
    self.assertEqual({type(make()) for make in cores_lib.ALIKE.values()},
                     set(cores.CORES))

  def test_memory_is_full(self):
    sizes = cores_lib.SIZES['tiny']
    state = cores_lib.full_state(cores_lib.make_core(sizes), batch_size=2)
    self.assertAllEqual(state.valid, tf.ones([2, sizes.memory_length], tf.bool))
    self.assertAllGreater(tf.math.reduce_std(state.memory, axis=[0, 1, 3]), 0.5)

  def test_sleep_takes_no_cpu_time(self):
    self.assertLess(cores_lib.cpu_milliseconds(
        lambda: time.sleep(0.02), count=3, warmup=0), 10)


if __name__ == '__main__':
  absltest.main()
