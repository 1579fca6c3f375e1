"""The console line that shows the progress of a run."""

import math
import sys
from typing import Callable, Dict, List, Optional, TextIO

from gtrxl_tf import progress


def duration(seconds: float) -> str:
  """Formats seconds for display: `1:02:03` or `2:03`."""
  minutes, seconds = divmod(int(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  return f'{hours}:{minutes:02}:{seconds:02}' if hours else f'{minutes}:{seconds:02}'


class Console:
  """A line that is updated in place on a terminal, and every few seconds elsewhere.

  Attributes:
    on_row: called once with each row that `update` gets.
  """

  def __init__(self, goal: int, counted: str = 'environment',
               stream: Optional[TextIO] = None):
    """Creates the console of a run that takes `goal` steps.

    Args:
      goal: the number of steps.
      counted: whose steps: the `environment`'s or the `learner`'s.
      stream: the stream to write to; by default standard output.
    """
    self._goal = goal
    self._counted = counted
    # The columns of what was done, and of the speed.
    self._steps = 'learner_step' if counted == 'learner' else 'environment_steps'
    self._speed = f'{counted}_steps_per_second'
    self._line = progress.ProgressLine(stream or sys.stdout)
    self._last_step: Optional[float] = None
    self._reported: Optional[float] = None
    self.on_row: Callable[[Dict[str, float]], None] = lambda row: None
    self._known: Dict[str, float] = {}

  def update(self, row: Optional[Dict[str, float]]) -> None:
    """Shows a row of metrics; numbers that are not in it (NaN) stay as they were."""
    if row is None:
      return
    if row['learner_step'] != self._reported:
      self._reported = row['learner_step']
      self.on_row(row)
    if row['learner_step'] == self._last_step:
      return
    self._known.update({name: x for name, x in row.items() if not math.isnan(x)})
    if self._line.is_due():
      self._last_step = row['learner_step']
      self._line.show(self.format({**row, **self._known}))

  def format(self, row: Dict[str, float]) -> str:
    """Returns the line that shows `row`."""
    steps, speed = row[self._steps], row[self._speed]
    left = (self._goal - steps) / speed if speed else math.inf

    def shown(name: str, digits: int) -> List[str]:
      value = row.get(name, math.nan)
      # Most environments do not report success, and every episode has a return.
      if name not in row or name == 'success' and math.isnan(value):
        return []
      return [f'{name} -' if math.isnan(value) else f'{name} {value:.{digits}f}']

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

  def close(self) -> None:
    """Ends the line."""
    self._line.close()
