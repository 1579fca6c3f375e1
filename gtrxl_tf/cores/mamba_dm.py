"""MambaDM: Mamba that mixes steps at two scales, a baseline of RATE's Tables 3 and 4.

"Mamba as Decision Maker: Exploring Multi-scale Sequence Modeling in Offline
Reinforcement Learning" (Cao et al., 2024).
"""

import math
from typing import NamedTuple, Optional, Tuple

import tensorflow as tf

from gtrxl_tf.cores import core
from gtrxl_tf.cores import mamba
from gtrxl_tf.settings import config


class MambaDMState(NamedTuple):
  """State between steps, for L layers."""
  hidden: tf.Tensor  # As in `MambaState`: the global state spaces.
  window: tf.Tensor  # As in `MambaState`.
  local: tf.Tensor   # [B, L, N, E], the states of the local state spaces.
  count: tf.Tensor   # [B, L] int32: steps of the local window so far, the same in all
                     # layers.


class _LocalStateSpace(mamba.StateSpace):
  """The second state space of a mixer, with variables of its own."""

  def __init__(self, state_dim: int, rank: int, name=None):
    super().__init__(state_dim, name=name)
    self._rank = rank

  def build(self, input_shape) -> None:
    self.add_state_space(input_shape[-1], self._rank)
    super().build(input_shape)


class _Mixer(mamba.Mixer):
  """A mixer with a second state space that forgets everything after a short window."""

  def __init__(self, state_dim: int, conv_width: int, expand: int, local_length: int,
               name=None):
    super().__init__(state_dim, conv_width, expand, name=name)
    self._local_length = local_length

  def build(self, input_shape) -> None:
    width = input_shape[-1]
    self.local = _LocalStateSpace(
        self._state_dim, math.ceil(width / 16), name='local')
    core.build_layer(
        self.local, tf.TensorShape([None, None, self._expand * width]))
    super().build(input_shape)

  def mix(self, x: tf.Tensor, is_first: tf.Tensor, state: MambaDMState
          ) -> Tuple[tf.Tensor, MambaDMState]:
    y, hidden = self.scan(x, is_first, state.hidden)
    step = _steps_since_first(is_first, state.count) % self._local_length
    local_y, local = self.local.scan(x, tf.equal(step, 0), state.local)
    return y + local_y, state._replace(
        hidden=hidden, local=local, count=(step[:, -1] + 1) % self._local_length)


def _steps_since_first(is_first: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
  """Returns the number `[B, T]` of each step in its episode, int32.

  Args:
    is_first: `[B, T]`.
    count: `[B]` int32, the number of the first step if no episode begins there.
  """
  steps = tf.range(is_first.shape[1])
  begins = is_first[:, tf.newaxis] & (steps <= steps[:, tf.newaxis])  # [B, T, T]
  latest = tf.reduce_max(tf.where(begins, steps, -1), axis=2)
  return steps + tf.where(latest < 0, count[:, tf.newaxis], -latest)


@config.configurable
class MambaDM(mamba.Mamba):
  """A stack of Mamba blocks that mix steps at two scales, and a layer norm.

  The mixer of each block has two state spaces over the same inputs. The global one is
  Mamba's. The local one sees windows of a few steps: it restarts at the first step of
  each episode and every `local_length` steps after it. The sum of their outputs is
  gated and projected as Mamba's output is.

  The authors have published no code. We read their fusion of global and local features
  as follows: windows do not overlap (sliding ones would take `local_length` scans), the
  two state spaces share convolution, gate and projections, and their outputs are added.

    >>> mamba = MambaDM(num_layers=1, model_dim=8, state_dim=2, local_length=3)
    >>> inputs, is_first = tf.zeros([1, 5, 8]), tf.zeros([1, 5], tf.bool)
    >>> outputs, state = mamba(inputs, is_first, mamba.initial_state(1))
    >>> outputs.shape, state.count.numpy()
    (TensorShape([1, 5, 8]), array([[2]], dtype=int32))

  Args:
    num_layers: blocks.
    model_dim: D.
    state_dim: N, states of each channel of each state space.
    conv_width: W, steps that the convolution sees.
    expand: each state space has `E = expand * D` channels.
    mlp_dim: hidden units of the position-wise MLP.
    local_length: steps of a local window. The default is ours: six tokens are two steps
      of a decision agent. The second step follows from the first; this is the paper's
      local correlation.
  """

  def __init__(self, num_layers: config.NumLayers = 1,
               model_dim: config.PositiveInt = 128,
               state_dim: config.PositiveInt = 16,
               conv_width: config.PositiveInt = 4,
               expand: config.PositiveInt = 2,
               mlp_dim: Optional[config.NonNegativeInt] = None,
               local_length: config.PositiveInt = 6,
               name: Optional[str] = None):
    self._local_length = local_length
    super().__init__(
        num_layers, model_dim, state_dim, conv_width, expand, mlp_dim, name)

  def make_mixer(self, *sizes: int) -> mamba.Mixer:
    return _Mixer(*sizes, self._local_length, name='mixer')

  def initial_state(self, batch_size) -> MambaDMState:
    return MambaDMState(
        *super().initial_state(batch_size),
        local=tf.zeros((batch_size, *self._state_shape)),
        count=tf.zeros((batch_size, self._state_shape[0]), tf.int32))
