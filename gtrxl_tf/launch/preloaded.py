"""Imports, in the fork server, what a run and its parts need; see `processes`."""

import gc
import importlib
import signal

for signum in signal.SIGINT, signal.SIGHUP:  # A terminal sends them to all processes.
  signal.signal(signum, signal.SIG_IGN)
# A SIGTERM that all processes get must not end the fork server; parts unblock it.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
gc.disable()  # Collecting takes a quarter of the time, and nearly all objects stay.
try:
  # Reverb may be missing, and comes last: the fork server ignores an ImportError.
  for module in 'tensorflow', 'gtrxl_tf.launch.train', 'reverb':
    importlib.import_module(module)
finally:
  gc.freeze()  # Pages that the collector does not touch stay shared.
  gc.enable()
