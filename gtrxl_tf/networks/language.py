"""Instructions: text to word ids on the host, word ids to a vector on the device."""

from typing import Optional
import zlib

import numpy as np
import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf.networks import batch_apply

PADDING = 0  # The id of no word.


def hash_instruction(text: str, max_words: int,
                     vocabulary_size: int = 1000) -> np.ndarray:
  """Word ids of an instruction; the same in every run and on every machine.

  Strings have no place in a compiled step, so this is called on the host.

  Args:
    text: words parted by white space. Case and punctuation count.
    max_words: W, the fixed length of the result; words after that are left out.
    vocabulary_size: number of hash buckets, as `InstructionEncoder` was given.

  Returns:
    int32 `[W]`: an id in [1, vocabulary_size] for each word, then `PADDING`.
  """
  ids = np.full([max_words], PADDING, np.int32)
  for i, word in enumerate(text.split()[:max_words]):
    ids[i] = 1 + zlib.crc32(word.encode('utf-8')) % vocabulary_size
  return ids


@config.configurable
class InstructionEncoder(tf.keras.layers.Layer):
  """An LSTM over the words of an instruction (GTrXL, appendix A: 64 dimensions).

  Takes word ids int32 `[..., W]`, padded at the end, as `hash_instruction` makes them,
  and returns the LSTM's output at the last word, `[..., units]`. An empty instruction
  gives zeros.

  Args:
    vocabulary_size: number of hash buckets; 1000 as in IMPALA's agent.
    embedding_dim: of the learned word embedding. The paper does not say it; with 1000
      words, 43 to 49 give the parameter counts of its Table 2.
    units: of the LSTM.
  """

  def __init__(self, vocabulary_size: config.PositiveInt = 1000,
               embedding_dim: config.PositiveInt = 48,
               units: config.PositiveInt = 64, name: Optional[str] = None):
    super().__init__(name=name)
    self._embedding = tf.keras.layers.Embedding(vocabulary_size + 1, embedding_dim)
    self._lstm = tf.keras.layers.LSTM(units)

  def call(self, ids: tf.Tensor) -> tf.Tensor:
    return batch_apply.batch_apply(self._encode, ids, ids.shape.rank - 1)

  def _encode(self, ids: tf.Tensor) -> tf.Tensor:
    return self._lstm(self._embedding(ids), mask=tf.not_equal(ids, PADDING))
