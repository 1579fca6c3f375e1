"""The instruction encoder: from word ids to a vector."""

from typing import Optional

import tensorflow as tf

from gtrxl_tf.environments import instructions
from gtrxl_tf.networks import batch_apply
from gtrxl_tf.settings import config


@config.configurable
class InstructionEncoder(tf.keras.layers.Layer):
  """An LSTM over the words of an instruction (GTrXL, appendix A: 64 dimensions).

  It maps int32 word ids `[..., W]`, padded at the end as by
  `instructions.hash_instruction`, to the LSTM's output at the last word,
  `[..., units]`. An empty instruction gives zeros.

  Args:
    vocabulary_size: number of hash buckets of the environment's word ids; `DMLab` uses
      the default.
    embedding_dim: width of the learned word embedding. The paper does not give it; with
      1000 words, 43 to 49 reproduce the parameter counts of its Table 2.
    units: width of the LSTM.
  """

  def __init__(self, vocabulary_size: config.PositiveInt = instructions.VOCABULARY_SIZE,
               embedding_dim: config.PositiveInt = 48,
               units: config.PositiveInt = 64, name: Optional[str] = None):
    super().__init__(name=name)
    self._embedding = tf.keras.layers.Embedding(vocabulary_size + 1, embedding_dim)
    # Without unrolling, XLA treats the words as constants in the gradient of the LSTM's
    # loop, and would recompile the learner step for each batch.
    self._lstm = tf.keras.layers.LSTM(units, unroll=True)

  def call(self, ids: tf.Tensor) -> tf.Tensor:
    return batch_apply.batch_apply(self._encode, ids, ids.shape.rank - 1)

  def _encode(self, ids: tf.Tensor) -> tf.Tensor:
    mask = tf.not_equal(ids, instructions.PADDING)
    return self._lstm(self._embedding(ids), mask=mask)
