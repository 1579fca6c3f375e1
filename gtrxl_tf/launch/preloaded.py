"""The imports of a run's processes, which the fork server does, see `processes`."""

from gtrxl_tf.launch import processes

processes.preload('tensorflow', 'reverb', 'gtrxl_tf.launch.train')
