"""Arrays in a file that is mapped into memory."""

import math
import mmap
from typing import Any, List, Sequence, Tuple

import numpy as np

Spec = Tuple[Sequence[int], Any]  # The shape and dtype of an array.
_ALIGNMENT = 64


def _bytes(spec: Spec) -> int:
  """Returns the bytes of an array, with those up to the next one."""
  shape, dtype = spec
  return -(-math.prod(shape) * np.dtype(dtype).itemsize // _ALIGNMENT) * _ALIGNMENT


def size(specs: Sequence[Spec]) -> int:
  """Returns the bytes of a file with these arrays."""
  return sum(map(_bytes, specs))


def arrays(buffer: Any, specs: Sequence[Spec]) -> List[np.ndarray]:
  """Returns the arrays of a buffer of `size(specs)` bytes, one after the other."""
  views, offset = [], 0
  for shape, dtype in specs:
    views.append(np.ndarray(shape, dtype, buffer, offset))
    offset += _bytes((shape, dtype))
  return views


def map_file(descriptor: int, specs: Sequence[Spec]) -> List[np.ndarray]:
  """Returns the arrays in a file; they stay valid when the descriptor is closed."""
  return arrays(mmap.mmap(descriptor, size(specs)), specs)
