"""Instructions as word ids: what environments write and networks read."""

import zlib

import numpy as np

PADDING = 0  # The id of no word.
VOCABULARY_SIZE = 1000  # Hash buckets, as in IMPALA's agent.


def hash_instruction(text: str, max_words: int,
                     vocabulary_size: int = VOCABULARY_SIZE) -> np.ndarray:
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
