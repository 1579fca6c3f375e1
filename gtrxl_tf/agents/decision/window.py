"""The sliding window of a `DecisionNetwork`."""

from typing import Any, NamedTuple, Tuple

import tensorflow as tf

from gtrxl_tf.agents import windows
from gtrxl_tf.agents.decision import network as network_lib
from gtrxl_tf.networks import action_space


class WindowCache(NamedTuple):
  """The last K steps of every row, oldest first."""
  tokens: tf.Tensor  # [B, K, 3, D]; an action's is valid after it was taken.
  count: tf.Tensor   # [B] int32 in 0..K: number of steps.
  answer: Any = ()   # [B], the oracle's answer at the episode's first step, if any.


class DecisionWindow(windows.SlidingWindow):
  """Acts on an episode's last K steps, see `windows.SlidingWindow`."""

  def __init__(self, network: network_lib.DecisionNetwork, length: int):
    super().__init__(
        network, length, network_lib.TOKENS_PER_STEP, network.token_dim)

  def initial_cache(self, batch_size) -> WindowCache:
    """The cache before the first step."""
    answer = () if self._network.oracle is None else tf.zeros([batch_size])
    return WindowCache(
        self._no_tokens(batch_size), tf.zeros([batch_size], tf.int32), answer)

  def step(self, return_to_go: tf.Tensor, observation: Any, is_first: tf.Tensor,
           cache: WindowCache, timestep: Any = ()
           ) -> Tuple[action_space.Policy, WindowCache]:
    """Computes the policy, see `DecisionNetwork.step`."""
    count = tf.where(is_first, 0, cache.count)
    index = self._next_index(count)
    tokens = self._make_room(cache.tokens, count)
    for i, token in enumerate((self._network.embed_return(return_to_go),
                               self._network.embed_observation(observation, 1))):
      tokens = windows.put(tokens, self._network.placed(token, timestep), index, i)
    begins = tf.equal(tf.range(self._length), 0) & tf.ones_like(is_first)[:, tf.newaxis]
    state = self._network.initial_state(tf.shape(count)[0])
    answer = cache.answer
    if self._network.oracle is not None:
      new = tf.cast(self._network.oracle(observation), tf.float32)
      answer = tf.where(is_first, new, answer)
      begins, state = self._network.with_answer(answer, begins, state)
    policies, _ = self._network.read(tokens, begins, state)
    policy = self._network.masked(windows.take(policies, index), observation)
    return policy, WindowCache(tokens, index + 1, answer)

  def remember_action(self, action: Any, cache: WindowCache, timestep: Any = ()
                      ) -> WindowCache:
    """The cache after the action, see `DecisionNetwork.remember_action`."""
    token = self._network.placed(self._network.embed_action(action), timestep)
    return cache._replace(tokens=windows.put(cache.tokens, token, cache.count - 1, 2))
