"""The sliding window of a `DistillationNetwork`."""

from typing import Any, NamedTuple, Tuple

import tensorflow as tf

from gtrxl_tf.agents import windows
from gtrxl_tf.agents.distillation import network as network_lib
from gtrxl_tf.networks import action_space


class WindowCache(NamedTuple):
  """The last K steps of every row, oldest first."""
  tokens: tf.Tensor    # [B, K, n, D], without positions.
  position: tf.Tensor  # [B, K] int32, in the history.
  count: tf.Tensor     # [B] int32 in 0..K: number of steps.


class DistillationWindow(windows.SlidingWindow):
  """Acts on a history's last K steps, see `windows.SlidingWindow`.

  The network was trained on windows that begin anywhere in a history. It acts on the
  window that ends with the current step.
  """

  def __init__(self, network: network_lib.DistillationNetwork, length: int):
    super().__init__(
        network, length, network.tokens_per_transition, network.core.output_size)

  def initial_cache(self, batch_size) -> WindowCache:
    """The cache before the first step."""
    return WindowCache(
        self._no_tokens(batch_size), tf.zeros([batch_size, self._length], tf.int32),
        tf.zeros([batch_size], tf.int32))

  def step(self, previous: network_lib.Transition, observation: Any,
           position: tf.Tensor, is_first: tf.Tensor, cache: WindowCache
           ) -> Tuple[action_space.Policy, WindowCache]:
    """Computes the policy, see `DistillationNetwork.step`."""
    network = self._network
    token, late = network.embed_step(previous, observation, is_first)
    count = tf.where(is_first, 0, cache.count)
    tokens = cache.tokens
    for kind, new in enumerate(late, 1):
      tokens = windows.put(tokens, new, count - 1, kind)
    index = self._next_index(count)
    tokens = windows.put(self._make_room(tokens, count), token, index, 0)
    here = tf.equal(tf.range(self._length), index[:, tf.newaxis])
    positions = tf.where(here, position[:, tf.newaxis],
                         self._make_room(cache.position, count))
    policies, _ = network.read(
        tokens, positions, tf.zeros_like(here),
        network.core.empty_state(tf.shape(count)[0]))
    return windows.take(policies, index), WindowCache(tokens, positions, index + 1)
