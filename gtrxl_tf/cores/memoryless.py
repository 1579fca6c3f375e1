"""A core that remembers nothing: the control in every experiment about memory."""

from typing import Optional

import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf.cores import core


@config.configurable
class Memoryless(core.Core):
  """ReLU layers applied to each step alone. Its state and records are empty.

  Args:
    num_layers: how many layers.
    hidden_dim: units of each. The default for both is the paper's LSTM's size.
  """

  def __init__(self, num_layers: config.PositiveInt = 3,
               hidden_dim: config.PositiveInt = 256, name: Optional[str] = None):
    super().__init__(name=name)
    self.layers = [tf.keras.layers.Dense(hidden_dim, 'relu', name=f'dense_{i}')
                   for i in range(num_layers)]

  def build(self, input_shape):
    for layer in self.layers:
      core.build_layer(layer, input_shape)
      input_shape = layer.compute_output_shape(input_shape)
    super().build(input_shape)

  @property
  def output_size(self):
    return self.layers[-1].units

  @property
  def memory_length(self):
    return 0

  def initial_state(self, batch_size):
    return ()

  def call(self, inputs, is_first, state):
    for layer in self.layers:
      inputs = layer(inputs)
    return inputs, state

  def _step(self, inputs, is_first, cache):
    return self.call(inputs, is_first, cache)

  def cache(self, state):
    return state

  def record(self, cache):
    return ()

  def restore(self, records, is_first):
    return ()
