"""Processes that are forked from one that has imported TensorFlow and this library.

Importing them takes more than two CPU seconds and 400 MiB in every process. A fork
server imports them once for `gtrxl train` and all parts of its run, so that a restarted
part is ready at once. The server itself does not run TensorFlow, whose threads would not
survive a fork.
"""

import contextlib
import functools
import multiprocessing
from multiprocessing import forkserver
from multiprocessing import resource_tracker
import os
import pathlib
import pkgutil
import signal
import sys
import tempfile
from typing import Any, Callable, List, Optional, Sequence, Union

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
def _context() -> multiprocessing.context.BaseContext:
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


def run(function: str, *args) -> int:
  """Calls a function in a forked process, which a stop of this one stops, and waits.

  The function, MODULE:NAME, returns an exit code; this process does not import its module.
  The result is the process's exit code, as a shell has it.
  """
  with signals.stop_requested() as should_stop:
    try:
      process = start(function, *args)
    except errors.ConfigError as error:
      print(f'Not started: {error}', file=sys.stderr)
      return 2
    told = False
    while process.is_alive():
      process.join(0.2)
      if should_stop() and not told:
        process.terminate()
        told = True
  # The server is waited for, so that `time gtrxl train` counts the CPU time of all parts.
  _context.cache_clear()
  forkserver._forkserver._stop()  # pylint: disable=protected-access
  if told and process.exitcode == -signal.SIGTERM:  # A function handles the signal.
    print('Interrupted before it began.', file=sys.stderr)
    return 130
  return process.exitcode if process.exitcode >= 0 else 128 - process.exitcode


def start(function: Union[str, Callable[..., int]], *args, name: Optional[str] = None,
          log: Optional[pathlib.Path] = None) -> multiprocessing.Process:
  """Starts a process that exits with the code that a function returns.

  With a `log`, what it prints is in this file, see `logs.kept`, and the process is a
  part: it has no parts of its own, and ends with the process that has started it.
  """
  process = _context().Process(
      target=_call, args=(function, args, log), name=name, daemon=log is not None)
  process.start()
  return process


def _call(function: Union[str, Callable[..., int]], args: Sequence[Any],
          log: Optional[pathlib.Path]) -> None:
  # Ends this process if SIGTERM has come since the fork server made it.
  signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
  # Python 3.10 and 3.11 would start another server, as this one is not their child.
  server = forkserver._forkserver  # pylint: disable=protected-access
  forkserver.ensure_running = server.ensure_running = lambda: None
  # Server and tracker end when no process has these files: engines must not inherit them.
  alive = server._forkserver_alive_fd  # pylint: disable=protected-access
  for file in alive, resource_tracker.getfd():
    os.set_inheritable(file, False)
  if isinstance(function, str):
    function = pkgutil.resolve_name(function)
  with logs.kept(log, prints=True) if log else contextlib.nullcontext():
    sys.exit(function(*args))
