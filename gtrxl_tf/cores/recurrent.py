"""Deep LSTM and GRU with skip connections in depth: the papers' baseline memories."""

from typing import Literal, Optional

import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf.cores import core


class _Layer(tf.keras.layers.Layer):
  """One recurrent layer; its state is `[B, S, H]`, of which row 0 is the output."""

  kind: str       # Of cell, in names.
  num_gates: int  # G
  num_rows: int   # S

  def __init__(self, hidden_dim: int, name=None):
    super().__init__(name=name)
    self.hidden_dim = hidden_dim

  def build(self, input_shape):
    gates = self.num_gates * self.hidden_dim
    self.kernel = self.add_weight('kernel', (input_shape[-1], gates))
    self.recurrent_kernel = self.add_weight(
        'recurrent_kernel', (self.hidden_dim, gates), initializer='orthogonal')
    self.bias = self.add_weight('bias', (gates,), initializer=self.initial_bias)
    super().build(input_shape)

  def initial_bias(self, shape, **kwargs):
    del kwargs
    return tf.zeros(shape)

  def project(self, inputs):
    """The inputs' part of the gates, which needs no recurrence: `[..., G * H]`."""
    return (tf.tensordot(inputs, tf.cast(self.kernel, inputs.dtype), axes=1)
            + tf.cast(self.bias, inputs.dtype))

  def step(self, projected, is_first, state):
    """`[B, G * H]`, `[B]`, `[B, S, H]` to the next state."""
    state = tf.where(is_first[:, tf.newaxis, tf.newaxis], 0., state)
    recurrent = tf.matmul(
        tf.cast(state[:, 0], projected.dtype),
        tf.cast(self.recurrent_kernel, projected.dtype))
    return tf.stack(self.cell(projected, recurrent, state), axis=1)

  def cell(self, projected, recurrent, state):
    """The rows of the next state, from the inputs' and the output's parts of gates."""
    raise NotImplementedError

  def call(self, inputs, is_first, state):
    """`[B, T, D]`, `[B, T]`, `[B, S, H]` to states `[B, T, S, H]`."""
    time_major = lambda x: tf.transpose(x, [1, 0, *range(2, x.shape.rank)])
    states = tf.scan(
        lambda state, step: self.step(*step, state),
        (time_major(self.project(inputs)), time_major(is_first)), state,
        parallel_iterations=1)
    return time_major(states)


class _LSTMLayer(_Layer):
  """Long short-term memory: output and cell."""

  kind, num_gates, num_rows = 'lstm', 4, 2

  def initial_bias(self, shape, **kwargs):
    # A forget gate that starts open (Jozefowicz et al., 2015).
    return tf.repeat(tf.constant([0., 1., 0., 0.]), self.hidden_dim)

  def cell(self, projected, recurrent, state):
    cell = state[:, 1]
    i, f, g, o = tf.split(tf.cast(projected + recurrent, cell.dtype), 4, axis=-1)
    cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(cell), cell


class _GRULayer(_Layer):
  """A gated recurrent unit: output alone.

  The variant of cuDNN, Keras and PyTorch, in which the reset gate comes after the
  product with the recurrent kernel; the candidate then has a bias on either side.
  """

  kind, num_gates, num_rows = 'gru', 3, 1

  def build(self, input_shape):
    self.candidate_bias = self.add_weight(
        'candidate_bias', (self.hidden_dim,), initializer='zeros')
    super().build(input_shape)

  def cell(self, projected, recurrent, state):
    output = state[:, 0]
    sizes = [2 * self.hidden_dim, self.hidden_dim]
    split = lambda x: tf.split(tf.cast(x, output.dtype), sizes, axis=-1)
    (gates, candidate), (recurrent_gates, recalled) = split(projected), split(recurrent)
    r, z = tf.split(tf.sigmoid(gates + recurrent_gates), 2, axis=-1)
    recalled += tf.cast(self.candidate_bias, recalled.dtype)
    return [z * output + (1 - z) * tf.tanh(candidate + r * recalled)]


class _DeepRecurrent(core.Core):
  """What the cores of this file share: all but the cell. State: `[B, L, S, H]`."""

  layer: type  # A `_Layer`.

  def __init__(self, num_layers: config.PositiveInt = 3,
               hidden_dim: config.PositiveInt = 256,
               skip: Literal['concat', 'residual'] = 'concat',
               name: Optional[str] = None):
    super().__init__(name=name)
    self._hidden_dim = hidden_dim
    self._skip = skip
    kind = self.layer.kind
    self.layers = [
        self.layer(hidden_dim, name=f'{kind}_{i}') for i in range(num_layers)]

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
    return tf.zeros(
        (batch_size, len(self.layers), self.layer.num_rows, self._hidden_dim))

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


@config.configurable
class DeepLSTM(_DeepRecurrent):
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

  layer = _LSTMLayer


@config.configurable
class DeepGRU(_DeepRecurrent):
  """The same with GRU layers: the memory of RATE's baseline DGRU.

  RATE's code has one layer of 128 units for T-Maze and three for ViZDoom. Arguments
  and defaults are those of `DeepLSTM`, so that the two compare. The state is
  `[B, L, 1, H]`.
  """

  layer = _GRULayer
