"""Acting on the last steps of a history alone."""

from typing import Any, NamedTuple, Tuple

import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf.agents import windows
from gtrxl_tf.agents.distillation import network as network_lib
from gtrxl_tf.networks import action_space


class WindowCache(NamedTuple):
  """The last C steps of every row, oldest first; what lies behind is of no meaning."""
  tokens: tf.Tensor    # [B, C, n, D], without positions.
  position: tf.Tensor  # [B, C] int32, in the history.
  count: tf.Tensor     # [B] int32 in 0..C: how many steps there are.


class SlidingWindow(tf.Module):
  """Acts with a network that sees the last C steps, and no memory before them.

  As it was trained on windows of C steps that begin anywhere in a history, so it acts
  on the one that ends now. What the layers made of the steps that stay, they made in
  sight of the one that goes, so each step runs the core over the whole window anew.
  Within a history's first C steps it is the network's own `step`.
  """

  def __init__(self, network: network_lib.DistillationNetwork, length: int):
    """Creates the window.

    Args:
      network: with its variables.
      length: C. For a core that works in segments, a whole number of them.
    """
    if length % network.context_length:
      raise config.ConfigError(
          f'a window of {length} steps: expected a multiple of the core\'s segments of '
          f'{network.context_length}')
    super().__init__(name='sliding_window')
    self.action_space = network.action_space
    self._network = network
    self._length = length

  @property
  def variables(self):
    return self._network.variables

  def initial_cache(self, batch_size) -> WindowCache:
    """The cache before anything was seen."""
    network = self._network
    shape = [self._length, network.tokens_per_transition, network.core.output_size]
    return WindowCache(
        tf.zeros([batch_size, *shape], network.compute_dtype),
        tf.zeros([batch_size, self._length], tf.int32),
        tf.zeros([batch_size], tf.int32))

  def step(self, previous: network_lib.Transition, observation: Any,
           position: tf.Tensor, is_first: tf.Tensor, cache: WindowCache
           ) -> Tuple[action_space.Policy, WindowCache]:
    """See `DistillationNetwork.step`."""
    network = self._network
    token, late = network.embed_step(previous, observation, is_first)
    count = tf.where(is_first, 0, cache.count)
    tokens = cache.tokens
    for kind, new in enumerate(late, 1):
      tokens = windows.put(tokens, new, count - 1, kind)
    full = tf.equal(count, self._length)
    index = tf.minimum(count, self._length - 1)  # Of this step, in the window.
    tokens = windows.put(windows.slide(tokens, full), token, index, 0)
    here = tf.equal(tf.range(self._length), index[:, tf.newaxis])
    positions = tf.where(here, position[:, tf.newaxis],
                         windows.slide(cache.position, full))
    # What lies behind the step, the network does not see: it is causal.
    make = getattr(network.core, 'empty_state', network.core.initial_state)
    policies, _ = network.read(
        tokens, positions, tf.zeros_like(here), make(tf.shape(count)[0]))
    policy = tf.nest.map_structure(
        lambda x: tf.gather(x, index, axis=1, batch_dims=1), policies)
    return policy, WindowCache(tokens, positions, index + 1)
