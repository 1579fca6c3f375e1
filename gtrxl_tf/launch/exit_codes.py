"""The exit codes of a run's processes, and the line on stderr that explains each."""

import functools
import sys
from typing import Callable, Optional

from gtrxl_tf.settings import config
from gtrxl_tf.settings import errors
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import run_folder
from gtrxl_tf.training.online import actor

DONE = 0
FAILED = 1
REFUSED = 2  # The settings cannot be used, or the folder is in use.
INTERRUPTED = 130

RunFailed = errors.RunFailed


def is_expected(error: BaseException) -> bool:
  """Returns whether `returns_code` prints an error as one line."""
  return (isinstance(error, (config.ConfigError, RunFailed, actor.ActingFailed))
          or isinstance(error, OSError) and error.errno in run_folder.NO_ROOM)


def returns_code(function: Callable[..., Optional[int]]) -> Callable[..., int]:
  """Decorates a function to return an exit code, with a line on stderr for an error.

  The function itself returns an exit code, or None for `DONE`.
  """
  @functools.wraps(function)
  def wrapper(*args, **kwargs) -> int:
    try:
      code = function(*args, **kwargs)
    except Exception as error:  # pylint: disable=broad-exception-caught
      if not is_expected(error):
        raise
      refused = isinstance(error, config.ConfigError)
      advice = ('. Free some space and run the same command again.'
                if isinstance(error, (checkpoints.SaveFailed, OSError)) else '')
      print(f'{"Not started" if refused else "Stopped"}: {error}{advice}', file=sys.stderr)
      return REFUSED if refused else FAILED
    return DONE if code is None else code

  return wrapper
