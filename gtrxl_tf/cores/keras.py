"""The base class of layers on Keras 2 and 3; no other core module reads the version.

Since TensorFlow 2.16 `tf.keras` is Keras 3, unless TF_USE_LEGACY_KERAS=1 selects the
package tf_keras, which is Keras 2.
"""

from typing import Any, Tuple

import numpy as np
import tensorflow as tf

# Keras 2 of the package tf_keras has no version in `tf.keras`.
IS_3 = getattr(tf.keras, '__version__', '2').startswith('3.')


class _Layer3(tf.keras.layers.Layer):
  """A Keras 3 layer that takes arguments and keeps sub-layers as a Keras 2 layer does.

  Arguments need not be tensors, and keep their types: states stay float32. TensorFlow's
  checkpoints hold the layers of a list, which Keras 3 leaves out, and `submodules`
  names all layers.
  """

  def __init__(self, **kwargs):
    super().__init__(**kwargs)
    self._convert_input_args = False
    self._allow_non_tensor_positional_args = True

  def __call__(self, *args, **kwargs):
    args, kwargs = tf.nest.map_structure(
        lambda x: tf.constant(x) if isinstance(x, np.ndarray) else x, (args, kwargs))
    return super().__call__(*args, **kwargs)

  def __setattr__(self, name: str, value: Any) -> None:
    super().__setattr__(name, value)
    if (isinstance(value, list) and value
        and all(isinstance(x, tf.keras.layers.Layer) for x in value)):
      wrapped = tf.__internal__.tracking.wrap(list(value))
      self._track_trackable(wrapped, name, overwrite=True)

  def add_weight(self, name, shape, dtype=None, initializer=None,
                 experimental_autocast=True, **kwargs):
    return super().add_weight(
        name=name, shape=shape, dtype=dtype, initializer=initializer,
        autocast=experimental_autocast, **kwargs)

  @property
  def submodules(self) -> Tuple[tf.keras.layers.Layer, ...]:
    return tuple(self._flatten_layers(include_self=False))


Layer = _Layer3 if IS_3 else tf.keras.layers.Layer


def variable_name(variable: Any) -> str:
  """Returns a variable's name with the names of the layers that it belongs to."""
  return variable.path if IS_3 else variable.name
