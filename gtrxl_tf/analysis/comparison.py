"""Runs of several cores on one task, side by side: every seed, in table and picture."""

import math
import pathlib
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

from gtrxl_tf.analysis import curves

# Of the informed policy's return: where a task counts as learned.
_LEARNED = 0.9


class Run(NamedTuple):
  """A seed of a core."""
  core: str
  seed: int
  metrics: curves.Rows     # Of `metrics.csv`.
  evaluation: curves.Rows  # Of `evaluation.csv`; none where a run did not end well.


class _Column(NamedTuple):
  title: str
  value: Callable[[Run], Optional[float]]
  format: str


def table(runs: Sequence[Run], informed: Optional[float]) -> str:
  """A Markdown table: a row for each run, and one for the mean of each core.

  Args:
    runs: to show, of which each has metrics.
    informed: the informed policy's return; without it there is no telling when a task
      was learned.
  """
  columns = [
      _Column('return', lambda run: _mean(run.evaluation, 'return'), '.2f'),
      _Column('success', lambda run: _mean(run.evaluation, 'success'), '.2f'),
      _Column('steps', lambda run: run.metrics[-1]['environment_steps'], ',.0f'),
      _Column('minutes', lambda run: run.metrics[-1]['seconds'] / 60, '.1f')]
  caption = ('Return and success: means over the episodes of the evaluation after '
             'training. Steps: of the environment. -: not reached, or not evaluated.')
  if informed is not None:
    goal = _LEARNED * informed
    columns += [
        _Column(f'steps to {_LEARNED:.0%}',
                lambda run: _first(run, goal, 'environment_steps'), ',.0f'),
        _Column(f'minutes to {_LEARNED:.0%}',
                lambda run: _first(run, goal, 'seconds', 60), '.1f')]
    caption += (f' To {_LEARNED:.0%}: until the mean return of the last 100 training '
                f'episodes first is {goal:.2f}; the informed policy\'s is '
                f'{informed:.2f}.')
  lines = [['core', 'seed', *(column.title for column in columns)],
           ['---'] + ['--:'] * (1 + len(columns))]
  for core, seeds in _by_core(runs).items():
    values = [[column.value(run) for column in columns] for run in seeds]
    for run, row in zip(seeds, values):
      lines.append([core, str(run.seed), *(
          '-' if value is None else format(value, column.format)
          for column, value in zip(columns, row))])
    lines.append([f'**{core}**', 'mean', *(
        _mean_cell(column_values, column.format)
        for column, column_values in zip(columns, zip(*values)))])
  return '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines) + (
      f'\n\n{caption}\n')


def draw(path: pathlib.Path, runs: Sequence[Run], title: str,
         informed: Optional[float]) -> None:
  """Draws the returns of all runs in one picture, with the informed policy's."""
  curves.draw(
      path, {core: [run.metrics for run in seeds]
             for core, seeds in _by_core(runs).items()}, title, informed)


def _by_core(runs: Sequence[Run]) -> Dict[str, List[Run]]:
  grouped = {}
  for run in runs:
    grouped.setdefault(run.core, []).append(run)
  return grouped


def _mean(rows: curves.Rows, column: str) -> Optional[float]:
  values = [row[column] for row in rows]
  if not values or any(map(math.isnan, values)):
    return None
  return sum(values) / len(values)


def _first(run: Run, goal: float, column: str, unit: float = 1) -> Optional[float]:
  """`column` where the return first reaches `goal`."""
  return next((row[column] / unit for row in run.metrics if row['return'] >= goal),
              None)


def _mean_cell(values: Sequence[Optional[float]], spec: str) -> str:
  """The mean of the values there are, and of how many it is if some are missing."""
  known = [value for value in values if value is not None]
  if not known:
    return '-'
  missing = f' ({len(known)} of {len(values)})' if len(known) < len(values) else ''
  return format(sum(known) / len(known), spec) + missing
