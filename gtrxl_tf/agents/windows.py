"""Windows of the last K steps of every row, oldest first."""

import tensorflow as tf


def put(tokens: tf.Tensor, new: tf.Tensor, index: tf.Tensor, kind: int) -> tf.Tensor:
  """`tokens` `[B, K, n, D]` with `new` `[B, D]` as token `kind` of the step `index`
  `[B]`."""
  step = tf.equal(tf.range(tokens.shape[1]), index[:, tf.newaxis])
  here = step[:, :, tf.newaxis] & tf.equal(tf.range(tokens.shape[2]), kind)
  return tf.where(here[..., tf.newaxis], new[:, tf.newaxis, tf.newaxis], tokens)


def slide(x: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
  """`x` `[B, K, ...]`, of whose `rows` `[B]` the oldest step goes."""
  return tf.where(tf.reshape(rows, [-1] + [1] * (x.shape.rank - 1)),
                  tf.roll(x, -1, axis=1), x)
