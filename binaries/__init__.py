"""The programs of the library.

Each defines its flags and imports everything else in `main`, so that `--help` and wrong
flags are answered at once and a process that only starts others stays small.
"""

import os
import sys
from typing import Sequence

# TensorFlow's C++ code reads it once. 0 shows all its messages.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')


def refuse_arguments(argv: Sequence[str]) -> None:
  """Exits with 2 if there are arguments besides flags, which absl would ignore.

  Args:
    argv: the program's name, and what absl did not take.
  """
  if len(argv) > 1:
    print(f'Not started: {argv[1]!r} follows no flag: expected --FLAG=VALUE, with the '
          'flag again for each of several values', file=sys.stderr)
    sys.exit(2)
