"""Attention masks: causality, the band, validity of memory, ends of episodes.

Keys are numbered `0..M+T-1`: memory first, oldest first. Query `t` has key `M + t`.
"""

from typing import Tuple

import numpy as np
import tensorflow as tf

_MASKED = -1e30  # Finite, so that a row with every key masked gives no NaN.


def keys_of_episode(is_first: tf.Tensor, valid: tf.Tensor
                    ) -> Tuple[tf.Tensor, tf.Tensor]:
  """Numbers the episodes of queries and keys.

  Args:
    is_first: `[B, T]`, true on the first step of an episode.
    valid: `[B, M]`, true where memory holds a step of the episode in progress.

  Returns:
    `episode` `[B, T]`, int32, where 0 is the episode in progress, and `key_episode`
    `[B, M+T]`, the same for keys, -1 where memory is empty.
  """
  episode = tf.cumsum(tf.cast(is_first, tf.int32), axis=1)
  memory_episode = tf.where(valid, 0, -1)
  return episode, tf.concat([memory_episode, episode], axis=1)


def attention_mask(is_first: tf.Tensor, valid: tf.Tensor, banded: bool = True
                   ) -> tf.Tensor:
  """Returns an unroll's attention mask, `[B, T, M+T]`: true where a query may attend.

  A query sees itself and earlier steps of its own episode: the last M of them if
  `banded`, otherwise all that memory and unroll hold. The band matches an actor with
  a memory of M steps and makes outputs independent of where unrolls are cut. Without
  it, the actor must cut its segments at the same steps.
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


def memory_validity(is_first: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
  """Returns the validity `[B, M]` of the memory after the unroll, the last M keys."""
  episode, key_episode = keys_of_episode(is_first, valid)
  return (key_episode == episode[:, -1:])[:, -valid.shape[1]:]


def segment_mask(valid: tf.Tensor, segment_length: int, num_memory_tokens: int
                 ) -> tf.Tensor:
  """Returns a segment's attention mask, with memory tokens: `[B, m+S+m, C+m+S+m]`.

  Tokens are read before the segment's S steps and written after them. The mask is that
  of RATE's code, since the paper does not describe one:

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


def restored_validity(is_first: tf.Tensor) -> tf.Tensor:
  """Returns the validity `[B, M]` of a memory whose steps have the flags `is_first`.

  A step is valid if no episode began after it. Steps from before an actor's first
  episode are therefore never valid.
  """
  later_firsts = tf.cumsum(
      tf.cast(is_first, tf.int32), axis=1, exclusive=True, reverse=True)
  return later_firsts == 0


def masked_softmax(scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
  """Computes a softmax over the last axis of float32 `scores` where `mask` is true."""
  return tf.nn.softmax(tf.where(mask, scores, _MASKED))


def bias(mask: tf.Tensor) -> tf.Tensor:
  """Returns a bias of float32 scores: 0 where `mask` is true, else negative."""
  return tf.where(mask, 0.0, _MASKED)
