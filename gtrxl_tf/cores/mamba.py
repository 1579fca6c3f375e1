"""Mamba: a selective state space as memory, as in RATE's baseline Decision Mamba.

"Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (Gu & Dao, 2023),
section 3, in the blocks of "Decision Mamba" (Ota, 2024).
"""

import math
from typing import NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf

from gtrxl_tf.cores import core
from gtrxl_tf.cores import keras
from gtrxl_tf.settings import config

# Steps per iteration of the scan's loop. More are not faster and compile more slowly.
_CHUNK = 4


class MambaState(NamedTuple):
  """State between steps, for L layers."""
  hidden: tf.Tensor  # [B, L, N, E], the states of the state spaces.
  window: tf.Tensor  # [B, L, W-1, E], the last inputs of the convolutions, oldest
                     # first; 0 in place of inputs from earlier episodes.


def _scan_steps(hidden, a, x, dt, b, c, resets):
  """Scans a few steps in an unrolled loop; see `selective_scan`. Time is axis 0."""
  outputs = []
  # Gradients of slices and of `tf.newaxis` would take a sixth of a learner step.
  for reset, x, dt, b, c in zip(*map(tf.unstack, (resets > 0, x, dt, b, c))):
    hidden = tf.where(tf.reshape(reset, [-1, 1, 1]), 0., hidden)
    hidden = (tf.exp(tf.expand_dims(dt, 1) * a) * hidden
              + tf.expand_dims(b, 2) * tf.expand_dims(dt * x, 1))
    outputs.append(tf.reduce_sum(tf.expand_dims(c, 2) * hidden, axis=1))
  return tf.stack(outputs), hidden


def selective_scan(x: tf.Tensor, dt: tf.Tensor, a: tf.Tensor, b: tf.Tensor,
                   c: tf.Tensor, resets: tf.Tensor, hidden: tf.Tensor
                   ) -> Tuple[tf.Tensor, tf.Tensor]:
  """Scans a state space whose parameters change from step to step, in float32.

    h_t = exp(dt_t a) h_{t-1} + dt_t b_t x_t
    y_t = c_t h_t

  The states of all steps, N times as large as the inputs, are never held at once: the
  gradient stores every fourth and recomputes the others. An associative scan makes
  several passes over all states and takes at least three times as long on a CPU.

  Args:
    x: inputs `[B, T, E]`.
    dt: step sizes `[B, T, E]`.
    a: `[N, E]`, negative.
    b: `[B, T, N]`.
    c: `[B, T, N]`.
    resets: `[B, T]`, 1 where h_{t-1} is taken as 0, else 0.
    hidden: h_{-1}, `[B, N, E]`.

  Returns:
    y `[B, T, E]` and the last h.
  """
  steps = [core.swap_time_and_batch(x) for x in (x, dt, b, c, resets)]
  length = x.shape[1]
  if length <= _CHUNK:
    outputs, hidden = _scan_steps(hidden, a, *steps)
    return core.swap_time_and_batch(outputs), hidden

  def chunks(x):
    # Zero steps, for which dt = 0, do not change h.
    x = tf.pad(x, [[0, -length % _CHUNK]] + [[0, 0]] * (x.shape.rank - 1))
    return tf.reshape(x, [-1, _CHUNK, tf.shape(x)[1], *x.shape[2:]])

  scan_chunk = tf.recompute_grad(_scan_steps)
  steps = [chunks(x) for x in steps]
  outputs, hidden = tf.scan(
      lambda carry, chunk: scan_chunk(carry[1], a, *chunk), steps,
      (tf.zeros_like(steps[0][0]), hidden), parallel_iterations=1)
  batch_size = outputs.shape[2] or tf.shape(outputs)[2]
  outputs = tf.reshape(outputs, [-1, batch_size, outputs.shape[3]])[:length]
  return core.swap_time_and_batch(outputs), hidden[-1]


def _initial_dt_bias(shape, dtype=None, **kwargs):
  """Draws a bias whose softplus is log-uniform in [0.001, 0.1], as the authors do."""
  uniform = tf.keras.initializers.RandomUniform(math.log(1e-3), math.log(1e-1))
  dt = tf.exp(uniform(shape, dtype, **kwargs))
  return dt + tf.math.log(-tf.math.expm1(-dt))


class StateSpace(keras.Layer):
  """A state space whose step sizes, B and C are linear functions of its inputs."""

  def __init__(self, state_dim: int, name=None):
    super().__init__(name=name)
    self._state_dim = state_dim

  def add_kernel(self, name: str, *shape: int) -> tf.Variable:
    """Makes a kernel, initially uniform within 1 / sqrt(rows) as the authors' are."""
    return self.add_weight(
        name, shape,
        initializer=tf.keras.initializers.VarianceScaling(1 / 3, 'fan_in', 'uniform'))

  def add_state_space(self, inner: int, rank: int) -> None:
    """Makes the variables for `inner` channels, with step sizes of rank `rank`."""
    states = self._state_dim
    self._sizes = [rank, states, states]  # Widths that dt, B and C are computed from.

    def exact(name, shape, initializer):
      # Float32 under any policy: errors in these variables grow with time.
      return self.add_weight(
          name, shape, tf.float32, initializer, experimental_autocast=False)

    self.selection_kernel = self.add_kernel(
        'selection_kernel', inner, sum(self._sizes))
    self.dt_kernel = self.add_kernel('dt_kernel', rank, inner)
    self.dt_bias = exact('dt_bias', (inner,), _initial_dt_bias)
    logs = np.log(np.arange(1, states + 1))[:, np.newaxis]
    self.a_log = exact('a_log', (states, inner), lambda shape, dtype=None, **kwargs: (
        tf.broadcast_to(tf.constant(logs, dtype), shape)))
    self.skip = self.add_weight('skip', (inner,), initializer='ones')  # D

  def scan(self, x: tf.Tensor, resets: tf.Tensor, hidden: tf.Tensor
           ) -> Tuple[tf.Tensor, tf.Tensor]:
    """Scans a sequence.

    Args:
      x: `[B, T, E]`.
      resets: bool `[B, T]`; where true, the state is cleared before the step.
      hidden: the state before the first step, `[B, N, E]`.

    Returns:
      Outputs `[B, T, E]`, and the state after the last step.
    """
    dt, b, c = tf.split(
        tf.tensordot(x, self.selection_kernel, axes=1), self._sizes, axis=-1)
    dt = tf.cast(tf.tensordot(dt, self.dt_kernel, axes=1), tf.float32)
    dt = tf.nn.softplus(dt + self.dt_bias)
    x_32, b, c, resets = (tf.cast(x, tf.float32) for x in (x, b, c, resets))
    y, hidden = selective_scan(
        x_32, dt, -tf.exp(self.a_log), b, c, resets, hidden)
    return tf.cast(y, x.dtype) + self.skip * x, hidden


class Mixer(StateSpace):
  """The layer that mixes steps: convolution, state space and gate (Figure 3)."""

  def __init__(self, state_dim: int, conv_width: int, expand: int, name=None):
    super().__init__(state_dim, name=name)
    self._conv_width = conv_width
    self._expand = expand

  def build(self, input_shape) -> None:
    width = input_shape[-1]
    inner = self._expand * width
    self.in_kernel = self.add_kernel('in_kernel', width, 2 * inner)
    self.conv_kernel = self.add_kernel('conv_kernel', self._conv_width, inner)
    self.conv_bias = self.add_weight('conv_bias', (inner,), initializer='zeros')
    self.add_state_space(inner, math.ceil(width / 16))
    self.out_kernel = self.add_kernel('out_kernel', inner, width)
    super().build(input_shape)

  def call(self, inputs: tf.Tensor, is_first: tf.Tensor, state: MambaState
           ) -> Tuple[tf.Tensor, MambaState]:
    """Mixes `[B, T, D]`; returns the outputs `[B, T, D]` and the layer's new state."""
    x, z = tf.split(tf.tensordot(inputs, self.in_kernel, axes=1), 2, axis=-1)
    convolved, window = self._convolve(x, is_first, state.window)
    y, state = self.mix(
        tf.nn.silu(convolved), is_first, state._replace(window=window))
    return tf.tensordot(y * tf.nn.silu(z), self.out_kernel, axes=1), state

  def mix(self, x: tf.Tensor, is_first: tf.Tensor, state: MambaState
          ) -> Tuple[tf.Tensor, MambaState]:
    """Scans `[B, T, E]`; returns `[B, T, E]` and the new state."""
    y, hidden = self.scan(x, is_first, state.hidden)
    return y, state._replace(hidden=hidden)

  def _convolve(self, x, is_first, window):
    """Convolves `x` `[B, T, E]` causally over time; also returns the next window."""
    length, past = x.shape[1], self._conv_width - 1
    rows = tf.concat([tf.cast(window, x.dtype), x], axis=1)
    # Episodes are counted from 0, the one that the window belongs to.
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


class _Block(keras.Layer):
  """`x + Mixer(LN(x))`, then `x + MLP(LN(x))` if there is an MLP."""

  def __init__(self, mixer: Mixer, mlp_dim: int, name=None):
    super().__init__(name=name)
    self._mlp_dim = mlp_dim
    self.mixer_norm = core.layer_norm('mixer_norm')
    self.mixer = mixer
    if mlp_dim:
      self.mlp_norm = core.layer_norm('mlp_norm')
      self.mlp_hidden = tf.keras.layers.Dense(mlp_dim, 'gelu', name='mlp_hidden')

  def build(self, input_shape) -> None:
    core.build_layer(self.mixer_norm, input_shape)
    core.build_layer(self.mixer, input_shape)
    if self._mlp_dim:
      core.build_layer(self.mlp_norm, input_shape)
      core.build_layer(self.mlp_hidden, input_shape)
      self.mlp_outputs = tf.keras.layers.Dense(input_shape[-1], name='mlp_outputs')
      core.build_layer(
          self.mlp_outputs, self.mlp_hidden.compute_output_shape(input_shape))
    super().build(input_shape)

  def call(self, inputs: tf.Tensor, is_first: tf.Tensor, state: MambaState
           ) -> Tuple[tf.Tensor, MambaState]:
    mixed, state = self.mixer(self.mixer_norm(inputs), is_first, state)
    stream = inputs + mixed
    if self._mlp_dim:
      stream += self.mlp_outputs(self.mlp_hidden(self.mlp_norm(stream)))
    return stream, state


@config.configurable
class Mamba(core.Core):
  """A stack of Mamba blocks and a layer norm.

  A step is an unroll of one step. The record of a step is the complete state: replay
  keeps `L * (N + W - 1) * E` floats per step.

    >>> mamba = Mamba(num_layers=1, model_dim=8, state_dim=2)
    >>> inputs, is_first = tf.zeros([1, 5, 8]), tf.zeros([1, 5], tf.bool)
    >>> outputs, state = mamba(inputs, is_first, mamba.initial_state(1))
    >>> outputs.shape, state.hidden.shape
    (TensorShape([1, 5, 8]), TensorShape([1, 1, 2, 16]))

  Args:
    num_layers: L; RATE's Decision Mamba has 1 for T-Maze and 3 for ViZDoom.
    model_dim: D. A linear embedding first maps inputs of another width.
    state_dim: N, states of each channel (`d_state`).
    conv_width: W, steps that the convolution sees, including the current one
      (`d_conv`).
    expand: the state space has `E = expand * D` channels.
    mlp_dim: hidden units of the position-wise MLP; 4 D if None. With 0 there is no MLP,
      as in the Mamba paper.

  The step size dt has a rank of D / 16, rounded up, as in the authors' code. The
  defaults are those of RATE's code for T-Maze; its paper does not list them.
  """

  def __init__(self, num_layers: config.NumLayers = 1,
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
        _Block(self.make_mixer(state_dim, conv_width, expand),
               4 * model_dim if mlp_dim is None else mlp_dim, name=f'block_{i}')
        for i in range(num_layers)]
    self.norm = core.layer_norm('norm')

  def make_mixer(self, *sizes: int) -> Mixer:
    """Makes a block's mixer; a subclass may have another one."""
    return Mixer(*sizes, name='mixer')

  def build(self, input_shape) -> None:
    self.embedding = core.make_embedding(input_shape, self._model_dim)
    for layer in (*self.blocks, self.norm):
      core.build_layer(layer, tf.TensorShape([None, None, self._model_dim]))
    super().build(input_shape)

  @property
  def output_size(self) -> int:
    return self._model_dim

  def initial_state(self, batch_size) -> MambaState:
    return MambaState(hidden=tf.zeros((batch_size, *self._state_shape)),
                      window=tf.zeros((batch_size, *self._window_shape)))

  def _unroll(self, inputs, is_first, state, training=None
              ) -> Tuple[tf.Tensor, MambaState]:
    stream = self.embedding(inputs)
    states = []
    for i, block in enumerate(self.blocks):
      before = tf.nest.map_structure(lambda x: x[:, i], state)  # pylint: disable=cell-var-from-loop
      stream, after = block(stream, is_first, before)
      states.append(after)
    return self.norm(stream), tf.nest.map_structure(
        lambda *layers: tf.stack(layers, axis=1), *states)

  def _step(self, inputs, is_first, cache):
    outputs, cache = self._unroll(inputs[:, tf.newaxis], is_first[:, tf.newaxis], cache)
    return outputs[:, 0], cache
