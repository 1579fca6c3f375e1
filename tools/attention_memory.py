"""Formulas for the memory that a layer's attention takes in training.

They are those of *Memory-Efficient Algorithm Distillation*, section 3.2, and count
numbers, of 4 bytes each in single precision: the weights of the projections to queries,
keys and values, and their gradients; queries, keys and values; scores before and after
softmax; outputs; and the recurrent memory. They leave out the output projection, MLP,
norms, dropout and the optimizer.
"""


def count(batch_size: int, length: int, width: int, num_heads: int,
          memory_length: int = 0) -> int:
  """Counts the numbers for attention of a chunk to itself and to a memory (equation 6).

  Without memory, this is the count for attention within a context (equation 5).

  Args:
    batch_size: b, number of chunks.
    length: c, tokens in a chunk.
    width: d, of the model.
    num_heads: n, of the layer.
    memory_length: m, tokens in the memory.
  """
  b, c, m, d, n = batch_size, length, memory_length, width, num_heads
  return 3 * b * m * d + 6 * (d**2 + d) + 4 * b * c * d + 2 * n * b * c * (c + m)
