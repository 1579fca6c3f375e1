"""Imported by the fork server, see `processes`: what the processes of a run import."""

from gtrxl_tf.launch import processes

processes.preload('tensorflow', 'reverb', 'gtrxl_tf.launch.train')
