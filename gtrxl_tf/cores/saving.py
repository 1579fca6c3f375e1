"""A base class for layers that Keras can save and load."""

import contextlib
import functools
import inspect
from typing import Any, Callable, Dict, Iterator, Union

import tensorflow as tf

from gtrxl_tf.cores import keras


class SavableLayer(keras.Layer):
  """A layer that Keras saves as the arguments of its constructor.

  Keras records the arguments that the caller passes. This class records all of them,
  with the defaults and what gin sets, so that a loaded layer does not depend on gin. A
  subclass needs no code for this; its constructor takes `name`, and all its arguments
  are numbers, strings or None.

    >>> from gtrxl_tf import cores
    >>> cores.GATES['highway'](bias=1.0, name='gate').get_config()
    {'name': 'gate', 'trainable': True, 'dtype': 'float32', 'bias': 1.0}
  """

  _arguments: Dict[str, Any] = {}

  def __init_subclass__(cls, **kwargs):
    super().__init_subclass__(**kwargs)
    if '__init__' in vars(cls):
      cls.__init__ = _recording(cls.__init__)
    if 'build' in vars(cls):
      cls.build = _under_own_policy(cls.build)

  def get_config(self) -> Dict[str, Any]:
    """Returns what `from_config` needs to make an equal layer, without weights."""
    return {**super().get_config(), **self._arguments}

  @classmethod
  def from_config(cls, config: Dict[str, Any]) -> 'SavableLayer':
    """Makes a layer from what `get_config` returned."""
    arguments = dict(config)
    trainable, dtype = arguments.pop('trainable', True), arguments.pop('dtype', None)
    with global_policy(tf.keras.layers.Layer(dtype=dtype).dtype_policy):
      layer = cls(**arguments)
    layer.trainable = trainable
    return layer

  def build_from_config(self, config: Dict[str, Any]) -> None:
    """Creates the variables, with the names and types that a call gives them."""
    with tf.name_scope(self.name):
      self.build(tf.TensorShape(config['input_shape']))


def _recording(init: Callable[..., None]) -> Callable[..., None]:
  """Returns a constructor that keeps its arguments in `_arguments`."""
  signature = inspect.signature(init)

  @functools.wraps(init)
  def wrapper(self, *args, **kwargs):
    init(self, *args, **kwargs)
    bound = signature.bind(self, *args, **kwargs)
    bound.apply_defaults()
    arguments = {}
    for parameter in list(signature.parameters.values())[1:]:
      value = bound.arguments[parameter.name]
      arguments.update(value if parameter.kind is parameter.VAR_KEYWORD
                       else {parameter.name: value})
    arguments.pop('name', None)
    # Not by an assignment, with which TensorFlow would track the dictionary.
    object.__setattr__(self, '_arguments', arguments)

  wrapper.__signature__ = signature
  return wrapper


def _under_own_policy(build: Callable[..., None]) -> Callable[..., None]:
  """Returns a `build` whose sub-layers get the layer's policy of data types.

  The global policy may be another by then: a layer is also built when it is loaded.
  """
  @functools.wraps(build)
  def wrapper(self, *args, **kwargs):
    with global_policy(self.dtype_policy):
      build(self, *args, **kwargs)

  return wrapper


@contextlib.contextmanager
def global_policy(policy: Union[str, tf.keras.mixed_precision.Policy]
                  ) -> Iterator[None]:
  """Makes `policy` Keras' global policy, which new layers take, within the context."""
  before = tf.keras.mixed_precision.global_policy()
  tf.keras.mixed_precision.set_global_policy(policy)
  try:
    yield
  finally:
    tf.keras.mixed_precision.set_global_policy(before)
