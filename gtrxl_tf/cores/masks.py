"""Who may see whom: causality, the band, validity of memory, ends of episodes.

Keys are numbered `0..M+T-1`, memory first, oldest first; query `t` stands at key
`M + t`.
"""

import numpy as np
import tensorflow as tf


def keys_of_episode(is_first: tf.Tensor, valid: tf.Tensor):
  """Splits queries and keys into episodes.

  Args:
    is_first: `[B, T]`, true on the first step of an episode.
    valid: `[B, M]`, true where memory holds a step of the episode that is under way.

  Returns:
    `episode` `[B, T]`, int32, counted from 0 for the one under way, and
    `key_episode` `[B, M+T]`, the same for keys, -1 where memory is empty.
  """
  episode = tf.cumsum(tf.cast(is_first, tf.int32), axis=1)
  memory_episode = tf.where(valid, 0, -1)
  return episode, tf.concat([memory_episode, episode], axis=1)


def attention_mask(is_first: tf.Tensor, valid: tf.Tensor, banded: bool = True):
  """`[B, T, M+T]`, true where a query may attend.

  A query sees itself and, of what came before it in its own episode, the last M
  steps if `banded`, else everything that memory and unroll hold. Banded is what an
  actor with a memory of M sees, and what makes an unroll independent of where it was
  cut; unbanded is for segments that the actor cuts in the same places.
  """
  unroll_length, memory_length = is_first.shape[1], valid.shape[1]
  episode, key_episode = keys_of_episode(is_first, valid)
  age = (memory_length + tf.range(unroll_length)[:, tf.newaxis]
         - tf.range(memory_length + unroll_length)[tf.newaxis, :])
  visible = age >= 0
  if banded:
    visible &= age <= memory_length
  same_episode = episode[:, :, tf.newaxis] == key_episode[:, tf.newaxis, :]
  return visible[tf.newaxis] & same_episode


def memory_validity(is_first: tf.Tensor, valid: tf.Tensor):
  """`[B, M]`: validity of the memory after the unroll, the last M of all keys."""
  episode, key_episode = keys_of_episode(is_first, valid)
  return (key_episode == episode[:, -1:])[:, -valid.shape[1]:]


def segment_mask(valid: tf.Tensor, segment_length: int, num_memory_tokens: int):
  """`[B, m+S+m, C+m+S+m]`: a segment's S steps between memory tokens read and written.

  What RATE's code does (the paper does not say):

    query    cache       read   steps    write
    read     no          all    no       no
    step     all valid   all    causal   no
    write    no          all    all      all

  Args:
    valid: `[B, C]`, true where the cache of earlier segments holds something.
    segment_length: S.
    num_memory_tokens: m.
  """
  kinds = np.repeat(
      ['read', 'step', 'write'], [num_memory_tokens, segment_length, num_memory_tokens])
  order = np.arange(len(kinds))
  query, key = kinds[:, np.newaxis], kinds[np.newaxis]
  visible = (
      (key == 'read') | (query == 'write')
      | (query == 'step') & (key == 'step') & (order <= order[:, np.newaxis]))
  sees_cache = tf.constant(kinds == 'step')[:, np.newaxis] & valid[:, np.newaxis]
  batch_size = tf.shape(valid)[0]
  return tf.concat(
      [sees_cache, tf.tile(visible[np.newaxis], [batch_size, 1, 1])], axis=2)


def restored_validity(is_first: tf.Tensor):
  """`[B, M]`: validity of a memory of M steps, given which began an episode.

  A step is valid if no episode began after it. Steps that precede an actor's first
  episode are therefore never valid: that episode's first step comes after them.
  """
  later_firsts = tf.cumsum(
      tf.cast(is_first, tf.int32), axis=1, exclusive=True, reverse=True)
  return later_firsts == 0
