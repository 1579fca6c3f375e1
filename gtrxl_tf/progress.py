"""One line that shows progress."""

import contextlib
import math
import shutil
import textwrap
import time
from typing import TextIO

_SECONDS_BETWEEN_LINES = 10  # Where the stream is no terminal.


class ProgressLine:
  """A line that is overwritten on a terminal, and a new one every 10 s elsewhere."""

  def __init__(self, stream: TextIO):
    self._stream = stream
    self._live = stream.isatty()
    self._last_time = -math.inf
    self._rows = 0  # Rows of the terminal that the last line takes.

  def is_due(self) -> bool:
    """Returns whether it is time for the next line."""
    return self._live or time.monotonic() - self._last_time >= _SECONDS_BETWEEN_LINES

  def show(self, line: str) -> None:
    """Writes `line`, over the one before on a terminal."""
    self._last_time = time.monotonic()
    if self._live:
      start = f'\033[{self._rows - 1}F' if self._rows > 1 else '\r'
      rows = textwrap.wrap(line, max(shutil.get_terminal_size().columns - 1, 1))
      self._write(f'{start}\033[J' + '\n'.join(rows))
      self._rows = len(rows)
    else:
      self._write(line + '\n')

  def close(self) -> None:
    """Ends the line on a terminal."""
    if self._rows:
      self._write('\n')
      self._rows = 0

  def _write(self, text: str) -> None:
    # The output's disk may be full, or its reader gone: a run goes on without the line.
    with contextlib.suppress(OSError):
      self._stream.write(text)
      self._stream.flush()
