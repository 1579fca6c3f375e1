"""Gating layers `g(x, y)`: how a sub-module's output `y` joins the stream `x`.

Section 3.2 of "Stabilizing Transformers for Reinforcement Learning". All matrices are
`[D, D]` without bias. `b_g` is a trainable vector `[D]` that starts at `bias`: with
`bias > 0` a gate starts close to the identity in `x` ("gated identity
initialization"). The paper does not give the value. 2.0 is the common choice (a GRU
gate then opens to sigmoid(-2) = 0.12); 0 turns the initialization off.

  >>> gate = GRU(bias=50.0)
  >>> gate(tf.ones([1, 3]), tf.zeros([1, 3])).numpy()
  array([[1., 1., 1.]], dtype=float32)
"""

from typing import Literal

import tensorflow as tf

from gtrxl_tf.cores import saving


def _glorot(num_kernels: int):
  """Returns a Glorot-uniform initializer of `num_kernels` square kernels in a row."""
  single = tf.keras.initializers.GlorotUniform

  def initializer(shape, dtype=None, **kwargs):
    rows, columns = shape
    block = (rows, columns // num_kernels)
    return tf.concat(
        [single()(block, dtype, **kwargs) for _ in range(num_kernels)], axis=1)

  return initializer


class _Gate(saving.SavableLayer):
  """Base of all gates, which define `_join`. `call(x, y)` takes and returns `[..., D]`."""

  def __init__(self, bias: float = 2.0, name=None):
    super().__init__(name=name)
    self._initial_bias = bias

  def _kernel(self, name: str, width: int, num_kernels: int = 1):
    return self.add_weight(
        name, (width, num_kernels * width), initializer=_glorot(num_kernels))

  def _gate_bias(self, width: int):
    return self.add_weight(
        'gate_bias', (width,),
        initializer=tf.keras.initializers.Constant(self._initial_bias))

  def call(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return self._join(x, tf.cast(y, x.dtype))  # Keras casts the first argument only.


class Residual(_Gate):
  """`x + y`: no gate, as in TrXL and TrXL-I."""

  def _join(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return x + y


class Input(_Gate):
  """`sigmoid(W x) * x + y`. Without `b_g` it does not start as the identity."""

  def build(self, input_shape) -> None:
    self.kernel = self._kernel('kernel', input_shape[-1])
    super().build(input_shape)

  def _join(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.sigmoid(tf.tensordot(x, self.kernel, axes=1)) * x + y


class Output(_Gate):
  """`x + sigmoid(W x - b_g) * y`."""

  def build(self, input_shape) -> None:
    self.kernel = self._kernel('kernel', input_shape[-1])
    self.bias = self._gate_bias(input_shape[-1])
    super().build(input_shape)

  def _join(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return x + tf.sigmoid(tf.tensordot(x, self.kernel, axes=1) - self.bias) * y


class Highway(_Gate):
  """`s * x + (1 - s) * y` with `s = sigmoid(W x + b_g)`."""

  def build(self, input_shape) -> None:
    self.kernel = self._kernel('kernel', input_shape[-1])
    self.bias = self._gate_bias(input_shape[-1])
    super().build(input_shape)

  def _join(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    carry = tf.sigmoid(tf.tensordot(x, self.kernel, axes=1) + self.bias)
    return carry * x + (1 - carry) * y


class SigTanh(_Gate):
  """`x + sigmoid(W y - b_g) * tanh(U y)`."""

  def build(self, input_shape) -> None:
    self.kernel = self._kernel('kernel', input_shape[-1], 2)  # W, U
    self.bias = self._gate_bias(input_shape[-1])
    super().build(input_shape)

  def _join(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    gate, value = tf.split(tf.tensordot(y, self.kernel, axes=1), 2, axis=-1)
    return x + tf.sigmoid(gate - self.bias) * tf.tanh(value)


class GRU(_Gate):
  """`(1 - z) * x + z * h`, a gated recurrent unit in depth:

    r = sigmoid(W_r y + U_r x)
    z = sigmoid(W_z y + U_z x - b_g)
    h = tanh(W_g y + U_g (r * x))
  """

  def build(self, input_shape) -> None:
    width = input_shape[-1]
    self.kernel = self._kernel('kernel', width, 3)  # W_r, W_z, W_g
    self.recurrent_kernel = self._kernel('recurrent_kernel', width, 2)  # U_r, U_z
    self.candidate_kernel = self._kernel('candidate_kernel', width)  # U_g
    self.bias = self._gate_bias(width)
    super().build(input_shape)

  def _join(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    y_r, y_z, y_g = tf.split(tf.tensordot(y, self.kernel, axes=1), 3, axis=-1)
    x_r, x_z = tf.split(tf.tensordot(x, self.recurrent_kernel, axes=1), 2, axis=-1)
    r = tf.sigmoid(y_r + x_r)
    z = tf.sigmoid(y_z + x_z - self.bias)
    h = tf.tanh(y_g + tf.tensordot(r * x, self.candidate_kernel, axes=1))
    return (1 - z) * x + z * h


GATES = {
    'residual': Residual,
    'input': Input,
    'output': Output,
    'highway': Highway,
    'sigtanh': SigTanh,
    'gru': GRU,
}

# The gates of GTrXL; TrXL and TrXL-I have the residual.
GateName = Literal[tuple(name for name in GATES if name != 'residual')]
