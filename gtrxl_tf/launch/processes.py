"""Processes that are forked from one that has imported TensorFlow and this library.

Importing them takes more than two CPU seconds and 400 MiB in every process. A fork
server imports them once for `gtrxl train` and all parts of its run, so that a restarted
part is ready at once. The server itself does not run TensorFlow, whose threads would not
survive a fork.
"""

import functools
import importlib
import multiprocessing
from multiprocessing import context as context_lib
from multiprocessing import forkserver
import os
import pathlib
import signal
import sys
import tempfile
from typing import Callable, List

from gtrxl_tf.launch import logs
from gtrxl_tf.launch import signals
from gtrxl_tf.settings import errors

# Python looks for modules in its working folder first. That of the user may have another
# copy of this library, or a `profile.py`; new processes look here instead.
_LIBRARY = str(pathlib.Path(__file__).parents[2])


def gtrxl(*arguments: str) -> List[str]:
  """Returns a command line that runs `gtrxl` with arguments."""
  start = ('import sys; sys.path[0] = sys.argv.pop(1); from gtrxl_tf import __main__; '
           '__main__.main()')
  return [sys.executable, '-c', start, _LIBRARY, *arguments]


@functools.cache
def _context() -> context_lib.BaseContext:
  """Starts the fork server, and returns the context that makes processes of it."""
  # Until a process has a log, C++ libraries print only errors. The first process that
  # uses a GPU would otherwise take all its memory.
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
  context = multiprocessing.get_context('forkserver')
  # `program` leaves out what TensorFlow prints when it is imported.
  context.set_forkserver_preload([f'{__package__}.program', f'{__package__}.preloaded'])
  here = os.getcwd()
  os.chdir(_LIBRARY)  # Processes get the user's folder and path nevertheless.
  try:
    forkserver.ensure_running()
  except OSError as error:
    if 'AF_UNIX' not in str(error):
      raise
    raise errors.ConfigError(f'TMPDIR={tempfile.gettempdir()}: {error}: expected a shorter '
                             'path, as sockets are made there') from error
  finally:
    os.chdir(here)
  return context


def run(module: str, function: str, *args) -> int:
  """Calls a function in a forked process, which a stop of this one stops, and waits.

  Args:
    module: the function's module, which this process does not import.
    function: its name; it returns an exit code.
    *args: its arguments.

  Returns:
    The process's exit code, as a shell has it.
  """
  with signals.stop_requested() as should_stop:
    try:
      # Not a daemon, which could not have children.
      process = _context().Process(target=_call, args=(module, function, *args))
    except errors.ConfigError as error:
      print(f'Not started: {error}', file=sys.stderr)
      return 2
    process.start()
    told = False
    while process.is_alive():
      process.join(0.2)
      if should_stop() and not told:
        process.terminate()
        told = True
  if told and process.exitcode == -signal.SIGTERM:  # A function handles the signal.
    print('Interrupted before it began.', file=sys.stderr)
    return 130
  return process.exitcode if process.exitcode >= 0 else 128 - process.exitcode


def _call(module: str, function: str, *args) -> None:
  _unblock_sigterm()
  # The fork server's address is known here. Python 3.10 and 3.11 would nevertheless
  # start another one, since it is not a child of this process.
  # pylint: disable-next=protected-access
  forkserver.ensure_running = forkserver._forkserver.ensure_running = lambda: None
  sys.exit(getattr(importlib.import_module(module), function)(*args))


def start(main: Callable[[], int], name: str, log: pathlib.Path
          ) -> multiprocessing.Process:
  """Starts a process that exits with the code that `main` returns.

  What it prints is in the file `log`, see `logs.kept`.
  """
  process = _context().Process(
      target=_exit_with, args=(main, log), name=name, daemon=True)
  process.start()
  return process


def _exit_with(main: Callable[[], int], log: pathlib.Path) -> None:
  _unblock_sigterm()
  with logs.kept(log, prints=True):
    sys.exit(main())


def _unblock_sigterm() -> None:
  """Ends this process if SIGTERM has come since the fork server made it."""
  signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
