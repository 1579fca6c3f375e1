"""The text of the settings and the line of progress, which both collections share."""

import time
from typing import Any, Dict, Sequence, TextIO

import gin
import numpy as np

from gtrxl_tf import progress
from gtrxl_tf.datasets import format as format_lib
from gtrxl_tf.datasets import writer as writer_lib


def settings(name: str, own: Dict[str, Any]) -> str:
  """Returns gin's settings after the arguments of a collector, which may not be gin's."""
  return '\n'.join([*(f'# {name}.{key} = {value!r}' for key, value in own.items()), '',
                    gin.operative_config_str()])


class Progress:
  """Shows how far a collection has come, and what was collected since its start."""

  def __init__(self, writer: writer_lib.EpisodeWriter, goal: int, kind: str, stream: TextIO):
    self._writer, self._goal, self._kind = writer, goal, kind
    self._before, self._start = writer.num_episodes, time.monotonic()
    self._line = progress.ProgressLine(stream)
    # Episodes played, kept, with known success and successful; the sum of returns.
    self._totals = np.zeros(5)

  def show(self, kept: Sequence[format_lib.Episode], num_played: int) -> None:
    """Counts a piece of work; the line ends where the goal is reached."""
    successes = np.array([x.success for x in kept])
    self._totals += (num_played, len(kept), np.sum(~np.isnan(successes)),
                     np.nansum(successes), sum(float(np.sum(x.reward)) for x in kept))
    done = self._writer.num_episodes
    if self._line.is_due() or done == self._goal:
      played, num, known, successful, total = self._totals
      speed = (done - self._before) / max(time.monotonic() - self._start, 1e-3)
      self._line.show(' | '.join([
          f'{done:,} of {self._goal:,} {self._kind}', f'{played:,.0f} played',
          f'{self._writer.num_steps:,} steps', f'{speed:,.1f} {self._kind}/s',
          f'return {_mean(total, num)}', f'success {_mean(successful, known)}',
          f'{(self._goal - done) / speed:,.0f} s left' if speed else '- left']))
    if done == self._goal:
      self._line.close()


def _mean(total: float, count: float) -> str:
  return f'{total / count:.2f}' if count else '-'
