"""What a person sees while a run goes on."""

import math
import shutil
import sys
import textwrap
import time
from typing import Dict, Optional

_SECONDS_BETWEEN_LINES = 10  # Where there is no terminal to write over.


def duration(seconds: float) -> str:
  """Seconds for people: `1:02:03` or `2:03`."""
  minutes, seconds = divmod(int(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  return f'{hours}:{minutes:02}:{seconds:02}' if hours else f'{minutes}:{seconds:02}'


class Console:
  """A line that is written over on a terminal, and every few seconds elsewhere."""

  def __init__(self, goal: int, counted: str = 'environment', stream=sys.stdout):
    """Creates the console of a run.

    Args:
      goal: how many steps it takes.
      counted: of what: the `environment` or the `learner`.
      stream: to write to.
    """
    self._goal = goal
    self._counted = counted
    self._stream = stream
    self._live = stream.isatty()
    self._last_line = 0.0
    self._last_step: Optional[float] = None
    self._rows = 1  # Of the terminal, that the line takes.

  def update(self, row: Optional[Dict[str, float]]) -> None:
    """Shows a row of metrics."""
    if row is None or row['learner_step'] == self._last_step:
      return
    now = time.time()
    if not self._live and now - self._last_line < _SECONDS_BETWEEN_LINES:
      return
    self._last_line, self._last_step = now, row['learner_step']
    self._write(self.format(row))

  def format(self, row: Dict[str, float]) -> str:
    """The line that shows `row`."""
    steps = row['learner_step' if self._counted == 'learner' else 'environment_steps']
    speed = row[f'{self._counted}_steps_per_second']
    left = (self._goal - steps) / speed if speed else math.inf
    number = lambda x, digits: '-' if math.isnan(x) else f'{x:.{digits}f}'
    shown = lambda name, digits: [
        f'{name} {number(row[name], digits)}'] if name in row else []
    ratios = [x for name, x in row.items() if name.endswith('_over_bound')]
    online = self._counted == 'environment'
    return ' | '.join([
        f'{steps:,.0f} of {self._goal:,} steps',
        *([f'{row["learner_step"]:,.0f} updates'] if online else []),
        f'{speed:,.0f} steps/s' if online else f'{speed:.1f} steps/s',
        *([] if online else shown('loss', 4)),
        *shown('return', 2), *shown('success', 2), *shown('score', 1),
        *(['KL/bound ' + ' '.join(f'{x:.2f}' for x in ratios)] if ratios else []),
        *shown('temperature', 3),
        f'{duration(max(left, 0)) if math.isfinite(left) else "-"} left'])

  def _write(self, line: str) -> None:
    if self._live:
      start = f'\033[{self._rows - 1}F' if self._rows > 1 else '\r'
      rows = textwrap.wrap(line, shutil.get_terminal_size().columns - 1)
      self._stream.write(f'{start}\033[J' + '\n'.join(rows))
      self._rows = len(rows)
    else:
      self._stream.write(line + '\n')
    self._stream.flush()

  def close(self) -> None:
    """Ends the line."""
    if self._live and self._last_step is not None:
      self._stream.write('\n')
      self._stream.flush()
