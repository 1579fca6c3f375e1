"""A core without memory: the control in every experiment about memory."""

from typing import Optional, Tuple

import tensorflow as tf

from gtrxl_tf.cores import core
from gtrxl_tf.settings import config


@config.configurable
class Memoryless(core.Core):
  """ReLU layers applied to each step separately. Its state and records are empty.

    >>> memoryless = Memoryless(num_layers=1, hidden_dim=4)
    >>> output, _ = memoryless.step(tf.zeros([2, 3]), [True, True], ())
    >>> output.shape
    TensorShape([2, 4])

  Args:
    num_layers: number of layers.
    hidden_dim: units of each layer. Both defaults match the GTrXL paper's LSTM.
  """

  _unknown_length = True

  def __init__(self, num_layers: config.NumLayers = 3,
               hidden_dim: config.PositiveInt = 256, name: Optional[str] = None):
    super().__init__(name=name)
    self.layers = [tf.keras.layers.Dense(hidden_dim, 'relu', name=f'dense_{i}')
                   for i in range(num_layers)]

  def build(self, input_shape) -> None:
    shape = input_shape
    for layer in self.layers:
      core.build_layer(layer, shape)
      shape = layer.compute_output_shape(shape)
    super().build(input_shape)

  @property
  def output_size(self) -> int:
    return self.layers[-1].units

  @property
  def memory_length(self) -> int:
    return 0

  def initial_state(self, batch_size) -> Tuple[()]:
    return ()

  def _unroll(self, inputs, is_first, state, training=None
              ) -> Tuple[tf.Tensor, Tuple[()]]:
    for layer in self.layers:
      inputs = layer(inputs)
    return inputs, state

  def _step(self, inputs, is_first, cache):
    return self._unroll(inputs, is_first, cache)
