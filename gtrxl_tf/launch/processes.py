"""Processes that are forked from one that has imported TensorFlow and this library.

Importing them takes more than two CPU seconds and 400 MiB in every process. A fork
server imports them once for all parts that a run starts, so that a restarted part is
ready at once. The server itself does not run TensorFlow, whose threads would not survive
a fork.
"""

import gc
import importlib
import multiprocessing
from multiprocessing import context as context_lib
import os
import pathlib
import signal
import sys
from typing import Callable

from gtrxl_tf.launch import logs

_SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def context() -> context_lib.BaseContext:
  """The context that makes processes."""
  # Until a process has a log, C++ libraries print only errors.
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  made = multiprocessing.get_context('forkserver')
  made.set_forkserver_preload([f'{__package__}.preloaded'])
  return made


def preload(*modules: str) -> None:
  """Imports modules, in the fork server."""
  for signum in _SIGNALS:  # Sent to all processes by a terminal or the system.
    signal.signal(signum, signal.SIG_IGN)
  gc.disable()  # Collecting takes a quarter of the time, and nearly all objects stay.
  for module in modules:
    importlib.import_module(module)
  gc.freeze()  # Pages that the collector does not touch stay shared.
  gc.enable()


def exit_with(main: Callable[[], int], log: pathlib.Path) -> None:
  """Exits this process with the code that `main` returns.

  The output of libraries is in the file `log`, see `logs.redirect`.
  """
  signal.signal(signal.SIGTERM, signal.SIG_DFL)  # The fork server ignores it.
  logs.redirect(log)
  sys.exit(main())
