"""Programs. Each defines its flags, and imports in `main` what it works with: `--help`
and a wrong flag are answered at once, and a process that only starts others stays small.
"""

import os

# TensorFlow's C++ code reads it once. 0 shows all that it has to say.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
