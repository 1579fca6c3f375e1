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

  def __init__(self, environment_steps: int, stream=sys.stdout):
    """Creates the console of a run of so many environment steps."""
    self._goal = environment_steps
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
    speed = row['environment_steps_per_second']
    left = (self._goal - row['environment_steps']) / speed if speed else math.inf
    number = lambda x, digits: '-' if math.isnan(x) else f'{x:.{digits}f}'
    ratios = [x for name, x in row.items() if name.endswith('_over_bound')]
    return ' | '.join([
        f'{row["environment_steps"]:,.0f} of {self._goal:,} steps',
        f'{row["learner_step"]:,.0f} updates',
        f'{speed:,.0f} steps/s',
        f'return {number(row["return"], 2)}',
        f'success {number(row["success"], 2)}',
        *([f'score {number(row["score"], 1)}'] if 'score' in row else []),
        'KL/bound ' + ' '.join(f'{x:.2f}' for x in ratios),
        f'temperature {row["temperature"]:.3f}',
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
