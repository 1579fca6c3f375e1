"""The programs of the library.

Each defines its flags and imports everything else in `main`, so that `--help` and wrong
flags are answered at once and a process that only starts others stays small. In the wheel
they are in `gtrxl_tf.binaries`, so they import each other relatively.
"""
