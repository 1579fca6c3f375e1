"""The errors that end a run, and one-line texts of other errors."""

import os
import pathlib
import re
import sysconfig
import traceback
from typing import Any

_LONGEST = 200  # The characters of a value that a message shows.


class ConfigError(ValueError):
  """A setting that cannot be used. The message is one line."""


class RunFailed(Exception):
  """A run cannot continue. The message is one line."""


def check_plain(path: pathlib.Path) -> None:
  """Raises a `ConfigError` if TensorFlow would take a path for a pattern of several."""
  for character in '[*?\\':
    if character in str(path):
      raise ConfigError(
          f'{path.absolute()}: expected a path without {character}, which TensorFlow takes for '
          'a pattern: rename the folder, or `cd` into it and give a relative path')


def short(text: str) -> str:
  """Returns a text, cut where it is too long for a message."""
  return text if len(text) <= _LONGEST else f'{text[:_LONGEST - 3]}...'


def one_line(error: BaseException) -> str:
  """Returns an exception's message without the places that gin and Keras add."""
  lines = [line.strip() for line in str(error).splitlines() if line.strip()]
  if len(lines) > 1 and lines[0].startswith('Exception encountered when calling layer'):
    del lines[0]
  return lines[0] if lines else type(error).__name__


def place(source: Any) -> str:
  """Returns ` (FILE, line N)` of the user's code: of an error in it, or of a function.

  The line is the innermost one that is neither this library's nor an installed
  package's; the result is '' if there is none.
  """
  folders = [str(pathlib.Path(__file__).parents[1]), *(
      sysconfig.get_path(x) for x in ('stdlib', 'platstdlib', 'purelib', 'platlib'))]
  others = tuple(f'{os.path.realpath(x)}{os.sep}' for x in folders)
  code, trace = (getattr(source, f'__{x}__', None) for x in ('code', 'traceback'))
  places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(trace)]
  if code:
    places = [(code.co_filename, code.co_firstlineno)]
  for file, line in reversed(places):
    if os.path.isfile(file) and not os.path.realpath(file).startswith(others):
      return f' ({file}, line {line})'
  return ''


def described(error: BaseException) -> str:
  """Returns `TYPE: MESSAGE (FILE, line N)` of an error in the user's code.

  If the error is about a display, and there is none, the text says how to get one.
  """
  text = f'{type(error).__name__}: {one_line(error)}'
  needs = (not os.environ.get('DISPLAY') and not os.environ.get('WAYLAND_DISPLAY')
           and re.search('display|video (device|system)|x11', text, re.IGNORECASE))
  return text + place(error) + (
      ': there is no display: expected `SDL_VIDEODRIVER=dummy`, for pygame, or `xvfb-run -a` '
      'before the command' if needs else '')
