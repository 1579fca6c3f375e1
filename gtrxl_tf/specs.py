"""From dm_env's array specs to TensorFlow's."""

from typing import Any

import gtrxl_tf.before_tf_agents  # pylint: disable=unused-import
# isort: split
from dm_env import specs
import numpy as np
import tensorflow as tf
from tf_agents.specs import tensor_spec


def tensor_specs(nest: Any) -> Any:
  """`dm_env.specs` to tensor specs, with bounds where there are any."""
  def convert(spec):
    dtype = tf.as_dtype(spec.dtype)
    if isinstance(spec, specs.BoundedArray):
      return tensor_spec.BoundedTensorSpec(
          spec.shape, dtype, np.asarray(spec.minimum, spec.dtype),
          np.asarray(spec.maximum, spec.dtype), name=spec.name)
    return tf.TensorSpec(spec.shape, dtype, name=spec.name)
  return tf.nest.map_structure(convert, nest)
