"""Mamba: a selective state space as memory, of RATE's baseline Decision Mamba.

"Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (Gu & Dao, 2023),
section 3, in the blocks of "Decision Mamba" (Ota, 2024).
"""

import math
from typing import NamedTuple, Optional

import numpy as np
import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf.cores import core

# Steps of a scan in one iteration of its loop. More are not faster, and take XLA longer
# to compile.
_CHUNK = 4


class MambaState(NamedTuple):
  """What a step leaves to the next one, of each of L layers."""
  hidden: tf.Tensor  # [B, L, N, E], of the state spaces.
  window: tf.Tensor  # [B, L, W-1, E], what the convolutions saw last, oldest first; 0
                     # in place of what an episode before the present one left.


def _scan_steps(hidden, a, x, dt, b, c, resets):
  """`selective_scan` of few steps: a loop unrolled, with time as the first axis."""
  outputs = []
  for t in range(x.shape[0]):
    keep = (1 - resets[t])[:, tf.newaxis, tf.newaxis]
    hidden = (keep * tf.exp(dt[t, :, tf.newaxis] * a) * hidden
              + b[t, :, :, tf.newaxis] * (dt[t] * x[t])[:, tf.newaxis])
    outputs.append(tf.reduce_sum(c[t, :, :, tf.newaxis] * hidden, axis=1))
  return tf.stack(outputs), hidden


def selective_scan(x, dt, a, b, c, resets, hidden):
  """A state space whose parameters change from step to step, in float32:

    h_t = exp(dt_t a) h_{t-1} + dt_t b_t x_t
    y_t = c_t h_t

  The states of all steps are N times as large as the inputs, and never held at once:
  the gradient has every fourth and computes the others again. An associative scan makes
  several passes over all of them, and on a CPU takes three times as long or more.

  Args:
    x: inputs `[B, T, E]`.
    dt: step sizes `[B, T, E]`.
    a: `[N, E]`, negative.
    b: `[B, T, N]`.
    c: `[B, T, N]`.
    resets: `[B, T]`, 1 where h_{t-1} counts as 0, else 0.
    hidden: h_{-1}, `[B, N, E]`.

  Returns:
    y `[B, T, E]` and the last h.
  """
  time_major = lambda x: tf.transpose(x, [1, 0, *range(2, x.shape.rank)])
  steps = [time_major(x) for x in (x, dt, b, c, resets)]
  length = x.shape[1]
  if length <= _CHUNK:
    outputs, hidden = _scan_steps(hidden, a, *steps)
    return time_major(outputs), hidden

  def chunks(x):
    # Steps of zeros, with dt = 0 among them, leave h as it is.
    x = tf.pad(x, [[0, -length % _CHUNK]] + [[0, 0]] * (x.shape.rank - 1))
    return tf.reshape(x, [-1, _CHUNK, tf.shape(x)[1], *x.shape[2:]])

  scan_chunk = tf.recompute_grad(_scan_steps)
  steps = [chunks(x) for x in steps]
  outputs, hidden = tf.scan(
      lambda carry, chunk: scan_chunk(carry[1], a, *chunk), steps,
      (tf.zeros_like(steps[0][0]), hidden), parallel_iterations=1)
  outputs = tf.reshape(outputs, [-1, *outputs.shape[2:]])[:length]
  return time_major(outputs), hidden[-1]


def _uniform():
  """Uniform within 1 / sqrt(rows), where all kernels of the authors' code start."""
  return tf.keras.initializers.VarianceScaling(1 / 3, 'fan_in', 'uniform')


def _initial_dt_bias(shape, dtype=None, **kwargs):
  """Softplus of it is log-uniform in [0.001, 0.1], as in the authors' code."""
  uniform = tf.keras.initializers.RandomUniform(math.log(1e-3), math.log(1e-1))
  dt = tf.exp(uniform(shape, dtype, **kwargs))
  return dt + tf.math.log(-tf.math.expm1(-dt))


class _Mixer(tf.keras.layers.Layer):
  """What mixes steps: a convolution and a state space, and a gate (Figure 3)."""

  def __init__(self, state_dim: int, conv_width: int, expand: int, name=None):
    super().__init__(name=name)
    self._state_dim = state_dim
    self._conv_width = conv_width
    self._expand = expand

  def build(self, input_shape):
    width = input_shape[-1]
    inner, states, rank = self._expand * width, self._state_dim, math.ceil(width / 16)
    self._sizes = [rank, states, states]  # Of what dt, B and C come from.
    kernel = lambda name, *shape: self.add_weight(name, shape, initializer=_uniform())
    # Float32 whatever the policy: an error in them grows with time.
    exact = lambda name, shape, initializer: self.add_weight(
        name, shape, tf.float32, initializer, experimental_autocast=False)
    self.in_kernel = kernel('in_kernel', width, 2 * inner)
    self.conv_kernel = kernel('conv_kernel', self._conv_width, inner)
    self.conv_bias = self.add_weight('conv_bias', (inner,), initializer='zeros')
    self.selection_kernel = kernel('selection_kernel', inner, sum(self._sizes))
    self.dt_kernel = kernel('dt_kernel', rank, inner)
    self.dt_bias = exact('dt_bias', (inner,), _initial_dt_bias)
    logs = np.log(np.arange(1, states + 1))[:, np.newaxis]
    self.a_log = exact('a_log', (states, inner), lambda shape, dtype=None, **kwargs: (
        tf.broadcast_to(tf.constant(logs, dtype), shape)))
    self.skip = self.add_weight('skip', (inner,), initializer='ones')  # D
    self.out_kernel = kernel('out_kernel', inner, width)
    super().build(input_shape)

  def call(self, inputs, is_first, hidden, window):
    """`[B, T, D]`, `[B, T]`, `[B, N, E]`, `[B, W-1, E]` to outputs and new states."""
    x, z = tf.split(tf.tensordot(inputs, self.in_kernel, axes=1), 2, axis=-1)
    convolved, window = self._convolve(x, is_first, window)
    x = tf.nn.silu(convolved)
    dt, b, c = tf.split(
        tf.tensordot(x, self.selection_kernel, axes=1), self._sizes, axis=-1)
    exact = lambda x: tf.cast(x, tf.float32)
    dt = tf.nn.softplus(
        exact(tf.tensordot(dt, self.dt_kernel, axes=1)) + self.dt_bias)
    y, hidden = selective_scan(
        exact(x), dt, -tf.exp(self.a_log), exact(b), exact(c), exact(is_first), hidden)
    y = tf.cast(y, x.dtype) + self.skip * x
    return tf.tensordot(y * tf.nn.silu(z), self.out_kernel, axes=1), hidden, window

  def _convolve(self, x, is_first, window):
    """Convolves `x` `[B, T, E]` in time, causally; also gives the next window."""
    length, past = x.shape[1], self._conv_width - 1
    rows = tf.concat([tf.cast(window, x.dtype), x], axis=1)
    # Episodes counted; the window belongs to that which `x` goes on with, if it does.
    episode = tf.cumsum(tf.cast(is_first, tf.int32), axis=1)
    row_episode = tf.pad(episode, [[0, 0], [past, 0]])

    def seen(start, stop, by):
      same = row_episode[:, start:stop] == by
      return tf.where(same[..., tf.newaxis], rows[:, start:stop], 0.)

    convolved = self.conv_bias + tf.add_n([
        self.conv_kernel[i] * seen(i, i + length, episode)
        for i in range(self._conv_width)])
    window = seen(length, length + past, episode[:, -1:])
    return convolved, tf.cast(window, tf.float32)


class _Block(tf.keras.layers.Layer):
  """`x + Mixer(LN(x))`, then `x + MLP(LN(x))` if there is an MLP."""

  def __init__(self, mixer: _Mixer, mlp_dim: int, name=None):
    super().__init__(name=name)
    norm = lambda name: tf.keras.layers.LayerNormalization(epsilon=1e-5, name=name)
    self._mlp_dim = mlp_dim
    self.mixer_norm = norm('mixer_norm')
    self.mixer = mixer
    if mlp_dim:
      self.mlp_norm = norm('mlp_norm')
      self.mlp_hidden = tf.keras.layers.Dense(mlp_dim, 'gelu', name='mlp_hidden')

  def build(self, input_shape):
    core.build_layer(self.mixer_norm, input_shape)
    core.build_layer(self.mixer, input_shape)
    if self._mlp_dim:
      core.build_layer(self.mlp_norm, input_shape)
      core.build_layer(self.mlp_hidden, input_shape)
      self.mlp_outputs = tf.keras.layers.Dense(input_shape[-1], name='mlp_outputs')
      core.build_layer(
          self.mlp_outputs, self.mlp_hidden.compute_output_shape(input_shape))
    super().build(input_shape)

  def call(self, inputs, is_first, hidden, window):
    mixed, hidden, window = self.mixer(
        self.mixer_norm(inputs), is_first, hidden, window)
    stream = inputs + mixed
    if self._mlp_dim:
      stream += self.mlp_outputs(self.mlp_hidden(self.mlp_norm(stream)))
    return stream, hidden, window


@config.configurable
class Mamba(core.Core):
  """A stack of Mamba blocks and a layer norm.

  A step is an unroll of one step. The state is its own record: replay keeps
  `L * (N + W - 1) * E` floats a step.

  Args:
    num_layers: L; RATE's Decision Mamba has 1 for T-Maze and 3 for ViZDoom.
    model_dim: D. Inputs that are D wide are taken as they are, others pass a linear
      embedding first.
    state_dim: N, states of each channel (`d_state`).
    conv_width: W, steps that the convolution sees, the present one too (`d_conv`).
    expand: channels E of the state space are so many times D.
    mlp_dim: hidden units of the position-wise MLP; 4 D if None, and 0 for none, which
      gives the block of the Mamba paper.

  The step size dt has a rank of D / 16, rounded up, as in the authors' code. The
  defaults are those of RATE's code for T-Maze; the paper has no table of its baseline.
  """

  def __init__(self, num_layers: config.PositiveInt = 1,
               model_dim: config.PositiveInt = 128,
               state_dim: config.PositiveInt = 16,
               conv_width: config.PositiveInt = 4,
               expand: config.PositiveInt = 2,
               mlp_dim: Optional[config.NonNegativeInt] = None,
               name: Optional[str] = None):
    super().__init__(name=name)
    self._model_dim = model_dim
    self._state_shape = (num_layers, state_dim, expand * model_dim)
    self._window_shape = (num_layers, conv_width - 1, expand * model_dim)
    self.blocks = [
        _Block(_Mixer(state_dim, conv_width, expand, name='mixer'),
               4 * model_dim if mlp_dim is None else mlp_dim, name=f'block_{i}')
        for i in range(num_layers)]
    self.norm = tf.keras.layers.LayerNormalization(epsilon=1e-5, name='norm')

  def build(self, input_shape):
    self.embedding = None
    if input_shape[-1] != self._model_dim:
      self.embedding = tf.keras.layers.Dense(self._model_dim, name='embedding')
      core.build_layer(self.embedding, input_shape)
    for layer in (*self.blocks, self.norm):
      core.build_layer(layer, tf.TensorShape([None, None, self._model_dim]))
    super().build(input_shape)

  @property
  def output_size(self):
    return self._model_dim

  @property
  def memory_length(self):
    return 1

  def initial_state(self, batch_size):
    return MambaState(hidden=tf.zeros((batch_size, *self._state_shape)),
                      window=tf.zeros((batch_size, *self._window_shape)))

  def call(self, inputs, is_first, state):
    stream = inputs if self.embedding is None else self.embedding(inputs)
    hidden, window = [], []
    for i, block in enumerate(self.blocks):
      stream, layer_hidden, layer_window = block(
          stream, is_first, state.hidden[:, i], state.window[:, i])
      hidden.append(layer_hidden)
      window.append(layer_window)
    return self.norm(stream), MambaState(
        tf.stack(hidden, axis=1), tf.stack(window, axis=1))

  def _step(self, inputs, is_first, cache):
    outputs, cache = self(inputs[:, tf.newaxis], is_first[:, tf.newaxis], cache)
    return outputs[:, 0], cache

  def cache(self, state):
    return state

  def record(self, cache):
    return cache

  def restore(self, records, is_first):
    return tf.nest.map_structure(lambda x: x[:, -1], records)
