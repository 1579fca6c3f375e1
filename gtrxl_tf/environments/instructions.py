"""Instructions as word ids, which environments produce and networks read."""

import zlib

import numpy as np

PADDING = 0  # No word has this id.
VOCABULARY_SIZE = 1000  # Hash buckets, as in IMPALA's agent.


def hash_instruction(text: str, max_words: int,
                     vocabulary_size: int = VOCABULARY_SIZE) -> np.ndarray:
  """Returns the word ids of an instruction, the same in every run and on every machine.

  It runs on the host, since a compiled step cannot process strings.

  >>> hash_instruction('pick up the red ball', max_words=6)
  array([924, 841,  79, 456, 380,   0], dtype=int32)

  Args:
    text: words separated by white space. Case and punctuation matter.
    max_words: W, the fixed length of the result; further words are dropped.
    vocabulary_size: number of hash buckets, the same as that of `InstructionEncoder`.

  Returns:
    int32 `[W]`: an id in [1, vocabulary_size] for each word, then `PADDING`.
  """
  ids = np.full([max_words], PADDING, np.int32)
  for i, word in enumerate(text.split()[:max_words]):
    ids[i] = 1 + zlib.crc32(word.encode('utf-8')) % vocabulary_size
  return ids
