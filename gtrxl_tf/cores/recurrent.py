"""Deep LSTM with skip connections in depth: the paper's baseline memory."""

from typing import Literal, Optional

import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf.cores import core


class _LSTMLayer(tf.keras.layers.Layer):
  """One LSTM layer; its state is `[B, 2, H]`, output and cell."""

  def __init__(self, hidden_dim: int, name=None):
    super().__init__(name=name)
    self._hidden_dim = hidden_dim

  def build(self, input_shape):
    gates = 4 * self._hidden_dim
    self.kernel = self.add_weight('kernel', (input_shape[-1], gates))
    self.recurrent_kernel = self.add_weight(
        'recurrent_kernel', (self._hidden_dim, gates), initializer='orthogonal')
    # A forget gate that starts open (Jozefowicz et al., 2015).
    self.bias = self.add_weight('bias', (gates,), initializer=lambda shape, **kwargs: (
        tf.repeat(tf.constant([0., 1., 0., 0.]), self._hidden_dim)))
    super().build(input_shape)

  def project(self, inputs):
    """The inputs' part of the gates, which needs no recurrence: `[..., 4H]`."""
    return (tf.tensordot(inputs, tf.cast(self.kernel, inputs.dtype), axes=1)
            + tf.cast(self.bias, inputs.dtype))

  def step(self, projected, is_first, state):
    """`[B, 4H]`, `[B]`, `[B, 2, H]` to the next state."""
    state = tf.where(is_first[:, tf.newaxis, tf.newaxis], 0., state)
    output, cell = tf.unstack(state, axis=1)
    gates = projected + tf.matmul(
        tf.cast(output, projected.dtype),
        tf.cast(self.recurrent_kernel, projected.dtype))
    i, f, g, o = tf.split(tf.cast(gates, cell.dtype), 4, axis=-1)
    cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(g)
    return tf.stack([tf.sigmoid(o) * tf.tanh(cell), cell], axis=1)

  def call(self, inputs, is_first, state):
    """`[B, T, D]`, `[B, T]`, `[B, 2, H]` to states `[B, T, 2, H]`."""
    time_major = lambda x: tf.transpose(x, [1, 0, *range(2, x.shape.rank)])
    states = tf.scan(
        lambda state, step: self.step(*step, state),
        (time_major(self.project(inputs)), time_major(is_first)), state,
        parallel_iterations=1)
    return time_major(states)


@config.configurable
class DeepLSTM(core.Core):
  """A stack of LSTM layers with skip connections.

  Args:
    num_layers: L.
    hidden_dim: H, units of each layer.
    skip: `concat`: every layer sees the core's inputs beside the output of the layer
      below, and the core's output is all layers' outputs side by side, `L * H` wide;
      this is what the paper's parameter counts (Table 2) fit. `residual`: from the
      second layer on a layer's output is added to its input; `H` wide.

  The defaults are those of the paper's tables 9 to 11. The state is `[B, L, 2, H]`.
  """

  def __init__(self, num_layers: config.PositiveInt = 3,
               hidden_dim: config.PositiveInt = 256,
               skip: Literal['concat', 'residual'] = 'concat',
               name: Optional[str] = None):
    super().__init__(name=name)
    self._hidden_dim = hidden_dim
    self._skip = skip
    self.layers = [_LSTMLayer(hidden_dim, name=f'lstm_{i}') for i in range(num_layers)]

  def build(self, input_shape):
    widths = [input_shape[-1]] + [
        self._hidden_dim + (input_shape[-1] if self._skip == 'concat' else 0)
    ] * (len(self.layers) - 1)
    for layer, width in zip(self.layers, widths):
      core.build_layer(layer, tf.TensorShape([None, None, width]))
    super().build(input_shape)

  @property
  def output_size(self):
    layers = len(self.layers) if self._skip == 'concat' else 1
    return layers * self._hidden_dim

  @property
  def memory_length(self):
    return 1

  def initial_state(self, batch_size):
    return tf.zeros((batch_size, len(self.layers), 2, self._hidden_dim))

  def _apply(self, inputs, state, run_layer):
    """Wires the layers up; `run_layer(layer, inputs, state)` gives a layer's states.

    Returns the core's outputs and the layers' states, stacked on axis -3.
    """
    stream, outputs, states = inputs, [], []
    for i, layer in enumerate(self.layers):
      if i and self._skip == 'concat':
        stream = tf.concat([stream, inputs], axis=-1)
      states.append(run_layer(layer, stream, state[:, i]))
      output = tf.cast(states[-1][..., 0, :], inputs.dtype)
      stream = stream + output if i and self._skip == 'residual' else output
      outputs.append(stream)
    if self._skip == 'concat':
      stream = tf.concat(outputs, axis=-1)
    return stream, tf.stack(states, axis=-3)

  def call(self, inputs, is_first, state):
    outputs, states = self._apply(
        inputs, state, lambda layer, x, state: layer(x, is_first, state))
    return outputs, states[:, -1]

  def _step(self, inputs, is_first, cache):
    return self._apply(
        inputs, cache,
        lambda layer, x, state: layer.step(layer.project(x), is_first, state))

  def cache(self, state):
    return state

  def record(self, cache):
    return cache

  def restore(self, records, is_first):
    return records[:, -1]
