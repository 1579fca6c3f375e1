"""Deep LSTM and GRU with skip connections across layers: the papers' baselines.

Keras' own layers neither reset a state within a sequence nor keep it in float32 under
mixed precision. `retention` has no sequences and uses Keras' cells. Its LSTM has the
same formula but sums in another order: sharing one cell would change the last bits of
results.
"""

from typing import Any, Callable, Literal, Optional, Sequence, Tuple

import tensorflow as tf

from gtrxl_tf import nests
from gtrxl_tf.cores import core
from gtrxl_tf.cores import keras
from gtrxl_tf.settings import config


class _Layer(keras.Layer):
  """One recurrent layer. Row 0 of its state `[B, S, H]` is its output."""

  kind: str       # The cell's name, used in layer names.
  num_gates: int  # G
  num_rows: int   # S

  def __init__(self, hidden_dim: int, name=None):
    super().__init__(name=name)
    self.hidden_dim = hidden_dim

  def build(self, input_shape) -> None:
    gates = self.num_gates * self.hidden_dim
    self.kernel = self.add_weight('kernel', (input_shape[-1], gates))
    self.recurrent_kernel = self.add_weight(
        'recurrent_kernel', (self.hidden_dim, gates), initializer='orthogonal')
    self.bias = self.add_weight('bias', (gates,), initializer=self.initial_bias)
    super().build(input_shape)

  def initial_bias(self, shape, dtype=None, **unused) -> tf.Tensor:
    return tf.zeros(shape, dtype)

  def project(self, inputs: tf.Tensor) -> tf.Tensor:
    """Returns the inputs' share of the gates, `[..., G * H]`, for all steps at once."""
    kernel = tf.cast(self.kernel, inputs.dtype)
    # In a loop XLA cannot compile the gradient of `tensordot` with an unknown batch.
    product = (tf.matmul(inputs, kernel) if inputs.shape.rank == 2
               else tf.tensordot(inputs, kernel, axes=1))
    return product + tf.cast(self.bias, inputs.dtype)

  def step(self, projected: tf.Tensor, is_first: tf.Tensor, state: tf.Tensor
           ) -> tf.Tensor:
    """Computes the next state, from `[B, G * H]`, `[B]` and `[B, S, H]`."""
    state = nests.where(is_first, tf.zeros_like(state), state)
    rows = tf.unstack(state, axis=1)  # The gradient of an index takes longer.
    recurrent = tf.matmul(
        tf.cast(rows[0], projected.dtype),
        tf.cast(self.recurrent_kernel, projected.dtype))
    return tf.stack(self.cell(projected, recurrent, *rows), axis=1)

  def cell(self, projected: tf.Tensor, recurrent: tf.Tensor, *rows: tf.Tensor
           ) -> Sequence[tf.Tensor]:
    """Computes the rows of the next state.

    Args:
      projected: the inputs' share of the gates, `[B, G * H]`.
      recurrent: the last output's share, `[B, G * H]`.
      *rows: the rows of the state, each `[B, H]`.
    """
    raise NotImplementedError

  def call(self, inputs: tf.Tensor, is_first: tf.Tensor, state: tf.Tensor
           ) -> tf.Tensor:
    """Computes all states `[B, T, S, H]` from `[B, T, D]`, `[B, T]` and `[B, S, H]`."""
    steps = (core.swap_time_and_batch(self.project(inputs)),
             core.swap_time_and_batch(is_first))
    states = tf.scan(lambda state, step: self.step(*step, state), steps, state,
                     parallel_iterations=1)
    return core.swap_time_and_batch(states)


class _LSTMLayer(_Layer):
  """A long short-term memory layer. The state's rows are output and cell."""

  kind, num_gates, num_rows = 'lstm', 4, 2

  def initial_bias(self, shape, dtype=None, **unused) -> tf.Tensor:
    # The forget gate starts open (Jozefowicz et al., 2015).
    return tf.repeat(tf.constant([0., 1., 0., 0.], dtype), self.hidden_dim)

  def cell(self, projected, recurrent, _, cell) -> Sequence[tf.Tensor]:
    i, f, g, o = tf.split(tf.cast(projected + recurrent, cell.dtype), 4, axis=-1)
    cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(cell), cell


class _GRULayer(_Layer):
  """A layer of gated recurrent units. The state's only row is the output.

  This is the variant of cuDNN, Keras and PyTorch: the reset gate acts after the product
  with the recurrent kernel, so the candidate has two biases, one of which the gate
  multiplies.
  """

  kind, num_gates, num_rows = 'gru', 3, 1

  def build(self, input_shape) -> None:
    self.candidate_bias = self.add_weight(
        'candidate_bias', (self.hidden_dim,), initializer='zeros')
    super().build(input_shape)

  def cell(self, projected, recurrent, output) -> Sequence[tf.Tensor]:
    sizes = [2 * self.hidden_dim, self.hidden_dim]
    gates, candidate = tf.split(tf.cast(projected, output.dtype), sizes, axis=-1)
    recurrent_gates, recalled = tf.split(
        tf.cast(recurrent, output.dtype), sizes, axis=-1)
    r, z = tf.split(tf.sigmoid(gates + recurrent_gates), 2, axis=-1)
    recalled += tf.cast(self.candidate_bias, recalled.dtype)
    return [z * output + (1 - z) * tf.tanh(candidate + r * recalled)]


class _DeepRecurrent(core.Core):
  """A stack of recurrent layers. Its state is `[B, L, S, H]`."""

  layer: type  # A subclass of `_Layer`.
  _unknown_length = True

  def __init__(self, num_layers: config.NumLayers = 3,
               hidden_dim: config.PositiveInt = 256,
               skip: Literal['concat', 'residual'] = 'concat',
               name: Optional[str] = None):
    super().__init__(name=name)
    self._hidden_dim = hidden_dim
    self._skip = skip
    kind = self.layer.kind
    self.layers = [
        self.layer(hidden_dim, name=f'{kind}_{i}') for i in range(num_layers)]

  def build(self, input_shape) -> None:
    widths = [input_shape[-1]] + [
        self._hidden_dim + (input_shape[-1] if self._skip == 'concat' else 0)
    ] * (len(self.layers) - 1)
    for layer, width in zip(self.layers, widths):
      core.build_layer(layer, tf.TensorShape([None, None, width]))
    super().build(input_shape)

  @property
  def output_size(self) -> int:
    layers = len(self.layers) if self._skip == 'concat' else 1
    return layers * self._hidden_dim

  def initial_state(self, batch_size) -> tf.Tensor:
    return tf.zeros(
        (batch_size, len(self.layers), self.layer.num_rows, self._hidden_dim))

  def _apply(self, inputs: tf.Tensor, state: tf.Tensor,
             run_layer: Callable[[Any, tf.Tensor, tf.Tensor], tf.Tensor]
             ) -> Tuple[tf.Tensor, tf.Tensor]:
    """Runs the layers in sequence.

    Args:
      inputs: `[..., D]`.
      state: `[B, L, S, H]`.
      run_layer: called with a layer, its inputs and state; returns its new states.

    Returns:
      The core's outputs, and the layers' states stacked on axis -3.
    """
    stream, outputs, states = inputs, [], []
    for i, (layer, layer_state) in enumerate(
        zip(self.layers, tf.unstack(state, axis=1))):
      if i and self._skip == 'concat':
        stream = tf.concat([stream, inputs], axis=-1)
      states.append(run_layer(layer, stream, layer_state))
      output = tf.cast(tf.unstack(states[-1], axis=-2)[0], inputs.dtype)
      stream = stream + output if i and self._skip == 'residual' else output
      outputs.append(stream)
    if self._skip == 'concat':
      stream = tf.concat(outputs, axis=-1)
    return stream, tf.stack(states, axis=-3)

  def _unroll(self, inputs, is_first, state, training
              ) -> Tuple[tf.Tensor, tf.Tensor]:
    outputs, states = self._apply(
        inputs, state, lambda layer, x, state: layer(x, is_first, state))
    return outputs, states[:, -1]

  def _step(self, inputs, is_first, cache):
    return self._apply(
        inputs, cache,
        lambda layer, x, state: layer.step(layer.project(x), is_first, state))


@config.configurable
class DeepLSTM(_DeepRecurrent):
  """A stack of LSTM layers with skip connections. The state is `[B, L, 2, H]`.

    >>> lstm = DeepLSTM(num_layers=2, hidden_dim=4)
    >>> inputs, is_first = tf.zeros([1, 5, 3]), tf.zeros([1, 5], tf.bool)
    >>> outputs, state = lstm(inputs, is_first, lstm.initial_state(1))
    >>> outputs.shape, state.shape
    (TensorShape([1, 5, 8]), TensorShape([1, 2, 2, 4]))

  Args:
    num_layers: L.
    hidden_dim: H, units of each layer.
    skip: `concat`: each layer's input is the output of the layer below concatenated
      with the core's input, and the core's output, `L * H` wide, is the concatenation
      of all layers' outputs; the parameter counts of the GTrXL paper (Table 2) fit it.
      `residual`: from the second layer on, each layer's output is added to its input;
      the core's output is `H` wide.

  The defaults are those of the GTrXL paper's tables 9 to 11.
  """

  layer = _LSTMLayer


@config.configurable
class DeepGRU(_DeepRecurrent):
  """A stack of GRU layers with skip connections. The state is `[B, L, 1, H]`.

    >>> gru = DeepGRU(num_layers=1, hidden_dim=4)
    >>> gru.initial_state(2).shape
    TensorShape([2, 1, 1, 4])

  This is the memory of RATE's baseline DGRU. RATE's code has one layer of 128 units for
  T-Maze and three for ViZDoom. Arguments and defaults are those of `DeepLSTM`, so that
  the two can be compared.
  """

  layer = _GRULayer
