"""Several devices on one CPU, for tests."""

import tensorflow as tf


def split_cpu(num_devices: int) -> None:
  """Splits the CPU into logical devices, unless TensorFlow has already started.

  Call it where a test file is imported. Its tests should skip if it was too late.
  """
  cpu = tf.config.list_physical_devices('CPU')[0]
  if len(tf.config.get_logical_device_configuration(cpu) or []) >= num_devices:
    return
  try:
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * num_devices)
  except RuntimeError:
    pass
