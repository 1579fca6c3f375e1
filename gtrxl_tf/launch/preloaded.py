"""Imports, in the fork server, what a run's processes need; see `processes`."""

from gtrxl_tf.launch import processes

# Reverb, which offline training does not need, may be missing.
processes.preload('tensorflow', 'gtrxl_tf.launch.train', 'reverb')
