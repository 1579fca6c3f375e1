"""What a layer's attention takes in training, by formula.

*Memory-Efficient Algorithm Distillation*, section 3.2. It counts numbers, of 4 bytes
each in single precision: the weights of the projections to queries, keys and values,
and their gradients; queries, keys and values; scores and what softmax makes of them;
outputs; and what is remembered. It leaves out the projection of the outputs, MLP, norms,
dropout and the optimizer.
"""


def vanilla(batch_size: int, length: int, width: int, num_heads: int) -> int:
  """Attention within a context of s = `length` tokens (equation 5)."""
  b, s, d, n = batch_size, length, width, num_heads
  return 6 * d**2 + 6 * d + 4 * b * s * d + 2 * n * b * s**2


def recurrent(batch_size: int, length: int, memory_length: int, width: int,
              num_heads: int) -> int:
  """Attention of a chunk of c = `length` tokens to itself and to m = `memory_length`
  that are remembered (equation 6)."""
  b, c, m, d, n = batch_size, length, memory_length, width, num_heads
  return 3 * b * m * d + 6 * (d**2 + d) + 4 * b * c * d + 2 * n * b * c * (c + m)
