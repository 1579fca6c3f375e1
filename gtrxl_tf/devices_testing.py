"""Several devices on one CPU, for tests."""

from absl.testing import absltest
import tensorflow as tf


def split_cpu(num_devices: int) -> None:
  """Splits the CPU into logical devices, unless TensorFlow has already started.

  Call it where a test file is imported. `mirrored` skips a test if it was too late.
  """
  cpu = tf.config.list_physical_devices('CPU')[0]
  if len(tf.config.get_logical_device_configuration(cpu) or []) >= num_devices:
    return
  try:
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * num_devices)
  except RuntimeError:
    pass


def mirrored(test: absltest.TestCase, num_replicas: int) -> tf.distribute.Strategy:
  """Makes a strategy of replicas on the first devices.

  Not with the default collectives: in one process TensorFlow gives strategies of
  different sizes the same group key, and they abort each other.
  """
  if len(tf.config.list_logical_devices('CPU')) < num_replicas:
    test.skipTest('TensorFlow had started before the CPU could be split.')
  return tf.distribute.MirroredStrategy(
      [f'CPU:{i}' for i in range(num_replicas)],
      cross_device_ops=tf.distribute.ReductionToOneDevice())
