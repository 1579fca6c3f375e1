"""The imports of a run's processes, which the fork server does, see `processes`."""

from gtrxl_tf.launch import processes

# Reverb, which offline training does not need, may be missing.
processes.preload('tensorflow', 'gtrxl_tf.launch.train', 'reverb')
