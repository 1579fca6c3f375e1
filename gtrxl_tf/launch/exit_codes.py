"""The exit codes of a run's processes, and the line on stderr that explains each."""

import functools
import sys
from typing import Callable, Optional

from gtrxl_tf.settings import config
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import learner
from gtrxl_tf.training import run_folder
from gtrxl_tf.training.online import actor

DONE = 0
FAILED = 1
REFUSED = 2  # The settings cannot be used, or the folder is in use.
INTERRUPTED = 130


class RunFailed(Exception):
  """A run cannot continue. The message is one line."""


_NOT_STARTED = config.ConfigError, run_folder.InUseError
_STOPPED = RunFailed, actor.ActingFailed, learner.Diverged, learner.StepFailed


def error_line(error: Exception) -> Optional[str]:
  """Returns the line of an error that `returns_code` expects; None for any other."""
  no_room = isinstance(error, OSError) and error.errno in run_folder.NO_ROOM
  if no_room or isinstance(
      error, (*_NOT_STARTED, *_STOPPED, checkpoints.SaveFailed)):
    return str(error)
  return None


def returns_code(function: Callable[..., Optional[int]]) -> Callable[..., int]:
  """Decorates a function to return an exit code, with a line on stderr for an error.

  The function itself returns an exit code, or None for `DONE`.
  """
  @functools.wraps(function)
  def wrapper(*args, **kwargs) -> int:
    try:
      code = function(*args, **kwargs)
    except _NOT_STARTED as error:
      print(f'Not started: {error}', file=sys.stderr)
      return REFUSED
    except _STOPPED as error:
      print(f'Stopped: {error}', file=sys.stderr)
      return FAILED
    except (checkpoints.SaveFailed, OSError) as error:
      if isinstance(error, OSError) and error.errno not in run_folder.NO_ROOM:
        raise
      print(f'Stopped: {error}. Free some space and run the same command again.',
            file=sys.stderr)
      return FAILED
    return DONE if code is None else code

  return wrapper
