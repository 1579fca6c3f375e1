"""Processes that are forked from one that has imported TensorFlow and this library.

Importing them takes more than two CPU seconds and 400 MiB in every process. A fork
server imports them once for all parts of a run, so that a restarted part is ready at
once. The server itself does not run TensorFlow, whose threads would not survive a fork.
"""

import gc
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

# Python looks for modules in its working folder first. That of the user may have another
# copy of this library, or a `profile.py`; new processes look here instead.
_LIBRARY = str(pathlib.Path(__file__).parents[2])


def gtrxl(*arguments: str) -> List[str]:
  """Returns a command line that runs `gtrxl` with arguments."""
  start = ('import sys; sys.path[0] = sys.argv.pop(1); from gtrxl_tf import __main__; '
           '__main__.main()')
  return [sys.executable, '-c', start, _LIBRARY, *arguments]


def context() -> context_lib.BaseContext:
  """Returns the context that makes processes."""
  # `program` sets both variables, too. Until a process has a log, C++
  # libraries print only errors.
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  # The first process that uses a GPU would otherwise take all its memory.
  os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
  made = multiprocessing.get_context('forkserver')
  # `program` leaves out what TensorFlow prints when it is imported.
  made.set_forkserver_preload([f'{__package__}.program', f'{__package__}.preloaded'])
  return made


def preload(*modules: str) -> None:
  """Imports modules, in the fork server.

  Raises:
    ImportError: a module is missing. The fork server ignores it.
  """
  for signum in signal.SIGINT, signal.SIGHUP:  # A terminal sends them to all processes.
    signal.signal(signum, signal.SIG_IGN)
  # Forked processes must not lose a SIGTERM that comes before they have a handler: their
  # parent sends only one.
  signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
  gc.disable()  # Collecting takes a quarter of the time, and nearly all objects stay.
  try:
    for module in modules:
      importlib.import_module(module)
  finally:
    gc.freeze()  # Pages that the collector does not touch stay shared.
    gc.enable()


def exit_with(main: Callable[[], int], log: pathlib.Path) -> None:
  """Exits this process with the code that `main` returns.

  What it prints is in the file `log`, see `logs.kept`.
  """
  _unblock_sigterm()
  with logs.kept(log, prints=True):
    sys.exit(main())


def run(module: str, function: str, *args) -> int:
  """Calls a function in a forked process, and waits until it ends.

  The first signal of `signals.stop_requested` is passed on as SIGTERM.

  Args:
    module: the function's module, which this process does not import.
    function: its name; it returns an exit code.
    *args: its arguments.

  Returns:
    The process's exit code, as a shell has it.
  """
  # Not a daemon, which could not have children.
  process = context().Process(target=_call, args=(module, function, *args))

  def stop(signum: int) -> None:
    if process.pid is None:
      print('Interrupted before it began.', file=sys.stderr, flush=True)
      os._exit(128 + signum)
    process.terminate()

  try:
    with signals.stop_requested(then=stop):
      _start_fork_server()
      process.start()
      process.join()
  except OSError as error:
    if 'AF_UNIX' not in str(error):
      raise
    print(f'Not started: TMPDIR={tempfile.gettempdir()}: {error}: expected a shorter path, '
          'as sockets are made there', file=sys.stderr)
    return 2
  return process.exitcode if process.exitcode >= 0 else 128 - process.exitcode


def _start_fork_server() -> None:
  """Starts the fork server, in the folder that contains this library.

  Processes that the server forks get the user's working folder and path.
  """
  here = os.getcwd()
  os.chdir(_LIBRARY)
  try:
    forkserver.ensure_running()
  finally:
    os.chdir(here)


def _unblock_sigterm() -> None:
  """Ends this process if SIGTERM has come since the fork server made it."""
  signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _call(module: str, function: str, *args) -> None:
  # The fork server may fork so late that the process that asked has been interrupted.
  if not multiprocessing.parent_process().is_alive():
    sys.exit(130)
  _unblock_sigterm()
  # The fork server's address is known here. Python 3.10 and 3.11 would nevertheless
  # start another one, since it is not a child of this process.
  # pylint: disable-next=protected-access
  forkserver._forkserver.ensure_running = lambda: None
  sys.exit(getattr(importlib.import_module(module), function)(*args))
