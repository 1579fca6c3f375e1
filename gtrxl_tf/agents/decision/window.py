"""Acting on the last steps alone, as a Decision Transformer does."""

from typing import Any, NamedTuple, Tuple

import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf.agents import windows
from gtrxl_tf.agents.decision import network as network_lib
from gtrxl_tf.networks import action_space


class WindowCache(NamedTuple):
  """The last K steps of every row, oldest first.

  Where an episode is shorter, what lies behind its steps is of no meaning.
  """
  tokens: tf.Tensor  # [B, K, 3, D]; an action's is there once it was taken.
  count: tf.Tensor   # [B] int32 in 0..K: how many steps there are.


class SlidingWindow(tf.Module):
  """Acts with a network that sees an episode's last K steps and no memory before them.

  The network's own `step` goes on from what it remembers, and a core in segments keeps
  to the segments of learning. With a core of one segment, which is a Decision
  Transformer, it would forget everything whenever a segment is full. Here the window
  moves on by one step instead (Chen et al., 2021; in RATE's code too). What the layers
  made of the steps that stay, they made in sight of the one that goes, so each step
  runs the core over the whole window anew. The tokens are kept: an image passes the
  torso once.

  Within an episode's first K steps it is the network's own `step`. Each row counts its
  own steps.
  """

  def __init__(self, network: network_lib.DecisionNetwork, length: int):
    """Creates the window.

    Args:
      network: with its variables.
      length: K. For a core that works in segments, a whole number of them.
    """
    segment = network.core.segment_length
    if network_lib.TOKENS_PER_STEP * length % segment:
      raise config.ConfigError(
          f'a window of {length} steps, {network_lib.TOKENS_PER_STEP} tokens each: '
          f'expected a multiple of the core\'s segments of {segment} tokens')
    super().__init__(name='sliding_window')
    self.action_space = network.action_space
    self._network = network
    self._length = length

  @property
  def variables(self):
    return self._network.variables

  def initial_cache(self, batch_size) -> WindowCache:
    """The cache before anything was seen."""
    shape = [self._length, network_lib.TOKENS_PER_STEP, self._network.token_dim]
    return WindowCache(
        tf.zeros([batch_size, *shape], self._network.compute_dtype),
        tf.zeros([batch_size], tf.int32))

  def step(self, return_to_go: tf.Tensor, observation: Any, is_first: tf.Tensor,
           cache: WindowCache) -> Tuple[action_space.Policy, WindowCache]:
    """See `DecisionNetwork.step`."""
    count = tf.where(is_first, 0, cache.count)
    full = tf.equal(count, self._length)
    index = tf.minimum(count, self._length - 1)  # Of this step, in the window.
    tokens = windows.slide(cache.tokens, full)
    tokens = windows.put(tokens, self._network.embed_return(return_to_go), index, 0)
    tokens = windows.put(
        tokens, self._network.embed_observation(observation, 1), index, 1)
    # What lies behind the observation, the network does not see: it is causal.
    begins = tf.equal(tf.range(self._length), 0) & tf.ones_like(is_first)[:, tf.newaxis]
    policies, _ = self._network.read(
        tokens, begins, self._network.initial_state(tf.shape(count)[0]))
    policy = tf.nest.map_structure(
        lambda x: tf.gather(x, index, axis=1, batch_dims=1), policies)
    return policy, WindowCache(tokens, index + 1)

  def remember_action(self, action: Any, cache: WindowCache) -> WindowCache:
    """See `DecisionNetwork.remember_action`."""
    token = self._network.embed_action(action)
    return cache._replace(tokens=windows.put(cache.tokens, token, cache.count - 1, 2))
