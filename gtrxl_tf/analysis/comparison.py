"""Runs of several cores on one task, side by side: every seed, in table and picture.

A run that diverged counts with a return of 0 from there on, as in *GTrXL* (Table 3).
"""

import math
import pathlib
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from matplotlib import pyplot as plt
import numpy as np

from gtrxl_tf.analysis import curves

# Of the informed policy's return: where a task counts as learned.
_LEARNED = 0.9

# Of the training, where runs are ranked (Figure 5: 0.5, 1 and 2 billion steps).
_RANKED_AT = (0.25, 0.5, 1)


class Run(NamedTuple):
  """A seed of a core."""
  core: str
  seed: int
  metrics: curves.Rows     # Of `metrics.csv`; a run may diverge before the first.
  evaluation: curves.Rows  # Of `evaluation.csv`; none where a run did not end well.
  diverged: bool
  samples: Mapping[str, float]  # Its sampled settings.


class Point(NamedTuple):
  """What was run with one value of the setting that a sweep goes through."""
  value: str
  runs: Sequence[Run]
  informed: Optional[float]  # The informed policy's return, if there is one.


class _Column(NamedTuple):
  title: str
  value: Callable[[Run], Optional[float]]
  format: str
  mean_format: Optional[str]  # None: the mean says nothing.


def table(runs: Sequence[Run], informed: Optional[float]) -> str:
  """A Markdown table: a row for each run, and one for the mean of each core.

  Args:
    runs: to show.
    informed: the informed policy's return; without it there is no telling when a task
      was learned.
  """
  column = lambda title, value, form: _Column(title, value, form, form)
  columns = [
      column('return', _final_return, '.2f'),
      column('success', lambda run: _mean(run.evaluation, 'success'), '.2f'),
      column('steps', lambda run: _last(run, 'environment_steps'), ',.0f'),
      column('minutes', lambda run: _last(run, 'seconds') / 60, '.1f')]
  caption = ('Return and success: means over the episodes of the evaluation after '
             'training. Steps: of the environment. -: not reached, or not evaluated.')
  if informed is not None:
    goal = _LEARNED * informed
    columns += [
        column(f'steps to {_LEARNED:.0%}',
               lambda run: _first(run, goal, 'environment_steps'), ',.0f'),
        column(f'minutes to {_LEARNED:.0%}',
               lambda run: _first(run, goal, 'seconds', 60), '.1f')]
    caption += (f' To {_LEARNED:.0%}: until the mean return of the last 100 training '
                f'episodes first is {goal:.2f}; the informed policy\'s is '
                f'{informed:.2f}.')
  columns.append(
      _Column('diverged', lambda run: float(run.diverged), '.0f', '.0%'))
  caption += (' Diverged: 1 if loss or gradient was not finite, and the share of such '
              'runs; their return counts as 0.')
  names = list(dict.fromkeys(name for run in runs for name in run.samples))
  columns += [_Column(name, lambda run, name=name: run.samples.get(name), '.3g', None)
              for name in names]
  if names:
    caption += f' Drawn by the seed: {", ".join(names)}.'
  rows = [['core', 'seed', *(column.title for column in columns)],
          ['---'] + ['--:'] * (1 + len(columns))]
  for core, seeds in _by_core(runs).items():
    values = [[column.value(run) for column in columns] for run in seeds]
    for run, row in zip(seeds, values):
      rows.append([core, str(run.seed), *(
          '-' if value is None else format(value, column.format)
          for column, value in zip(columns, row))])
    rows.append([f'**{core}**', 'mean', *(
        '' if column.mean_format is None
        else _mean_cell(column_values, column.mean_format)
        for column, column_values in zip(columns, zip(*values)))])
  return f'{_markdown(rows)}\n\n{caption}\n'


def sweep_table(setting: str, points: Sequence[Point]) -> str:
  """A Markdown table of final returns: a row for each value, a column for each core."""
  cores = _cores(points)
  rows = [[setting, *cores, 'informed policy'], ['--:'] * (2 + len(cores))]
  for point in points:
    seeds = _by_core(point.runs)
    rows.append([
        point.value, *(_returns_cell(seeds.get(core, [])) for core in cores),
        '-' if point.informed is None else format(point.informed, '.2f')])
  return (f'{_markdown(rows)}\n\nMean over the runs, and in brackets the return of '
          'each in the evaluation after training, in the order of their seeds. A run '
          'that diverged counts as 0. -: not evaluated, and not in the mean.\n')


def ranked(runs: Sequence[Run], steps: float) -> List[float]:
  """Mean returns that runs had at a point of their training, best first.

  Args:
    runs: of which those are left out that have not come to the point, or had not
      finished an episode by then.
    steps: of the environment.
  """
  returns = []
  for run in runs:
    reached = _last(run, 'environment_steps')
    if run.diverged and reached <= steps:
      returns.append(0.)
    # The last row of a run that is done is a few learner steps from its end.
    elif run.evaluation or reached >= steps:
      returns += [row['return'] for row in run.metrics
                  if row['environment_steps'] <= steps][-1:]
  return sorted((x for x in returns if not math.isnan(x)), reverse=True)


def draw(path: pathlib.Path, runs: Sequence[Run], title: str,
         informed: Optional[float]) -> None:
  """Draws the returns of all runs in one picture, with the informed policy's."""
  curves.draw(path, _curves(runs, list(_by_core(runs))), title, informed)


def draw_sweep(path: pathlib.Path, setting: str, points: Sequence[Point], title: str
               ) -> None:
  """Draws a row of panels: curves for each value, and final returns against values.

  Final returns are in units of the informed policy's, which depends on the task, if
  there is one (*GTrXL*, Figure 3).
  """
  figure, panels = plt.subplots(
      1, len(points) + 1, figsize=(4 * len(points) + 4, 4.5), layout='constrained')
  cores = _cores(points)
  for panel, point in zip(panels, points):
    curves.plot(panel, _curves(point.runs, cores), 'environment_steps', point.informed)
    panel.set_title(f'{setting} = {point.value}', fontsize='medium')
  panels[0].set_ylabel('return, mean of the last 100 episodes')
  _plot_final_returns(panels[-1], points, cores)
  panels[-1].set_xlabel(setting)
  curves.save(figure, path, title, curves.THIN_AND_BOLD
              + '; right: final return of each run, and their mean')


def _plot_final_returns(panel: plt.Axes, points: Sequence[Point], cores: Sequence[str]
                        ) -> None:
  relative = all((point.informed or 0) > 0 for point in points)
  for i, core in enumerate(cores):
    # Side by side, so that the cores' runs do not hide each other.
    x = np.arange(len(points)) + 0.5 * ((i + 0.5) / len(cores) - 0.5)
    returns = []
    for point in points:
      known = [_final_return(run) for run in _by_core(point.runs).get(core, [])]
      unit = point.informed if relative else 1
      returns.append([value / unit for value in known if value is not None])
    panel.plot(x, [np.mean(values) if values else np.nan for values in returns],
               **curves.style(i), label=core)
    panel.plot(np.repeat(x, [len(values) for values in returns]),
               np.concatenate(returns), 'o', color=curves.style(i)['color'],
               markersize=4, alpha=0.6)
  panel.set_xticks(range(len(points)), [point.value for point in points])
  panel.set_title('final return' + " / informed policy's" * relative,
                  fontsize='medium')
  if relative:
    curves.draw_reference(panel, 1)


def draw_ranked(path: pathlib.Path, setting: Optional[str], points: Sequence[Point],
                title: str) -> None:
  """Draws how runs rank at a quarter, half and the end of training (Figure 5).

  Args:
    path: of the picture to write.
    setting: that a sweep goes through.
    points: a row of panels each; one without a sweep.
    title: of the picture.
  """
  figure, panels = plt.subplots(
      len(points), len(_RANKED_AT), figsize=(11, 3.5 * len(points) + 1),
      sharex='row', sharey='row', squeeze=False, layout='constrained')
  cores = _cores(points)
  for row, point in zip(panels, points):
    end = max(_last(run, 'environment_steps') for run in point.runs)
    by_core = _by_core(point.runs)
    for panel, share in zip(row, _RANKED_AT):
      for i, core in enumerate(cores):
        returns = ranked(by_core.get(core, []), share * end)
        panel.plot(range(1, len(returns) + 1), returns, **curves.style(i), marker='o',
                   markersize=3, label=core)
      if point.informed is not None:
        curves.draw_reference(panel, point.informed)
      panel.set_title(f'after {share * end / 1e6:.3g} million environment steps',
                      fontsize='medium')
      panel.xaxis.get_major_locator().set_params(integer=True)
    row[0].set_ylabel('return' if setting is None
                      else f'{setting} = {point.value}\nreturn')
  for panel in panels[-1]:
    panel.set_xlabel('run, the best first')
  curves.save(figure, path, title, 'mean return of the last 100 episodes; a run that '
              'diverged has 0')


def _cores(points: Sequence[Point]) -> List[str]:
  return list(dict.fromkeys(run.core for point in points for run in point.runs))


def _by_core(runs: Sequence[Run]) -> Dict[str, List[Run]]:
  grouped = {}
  for run in runs:
    grouped.setdefault(run.core, []).append(run)
  return grouped


def _curves(runs: Sequence[Run], cores: Sequence[str]) -> Dict[str, List[curves.Rows]]:
  """For each core its runs' metrics, where those that diverged go on to the end."""
  columns = ('environment_steps', 'seconds')
  end = {column: max(_last(run, column) for run in runs) for column in columns}
  shown = {core: [] for core in cores}
  for run in runs:
    start = {column: _last(run, column) for column in columns}
    shown[run.core].append([*run.metrics, *(
        [{**start, 'return': 0.}, {**end, 'return': 0.}] if run.diverged else [])])
  return shown


def _last(run: Run, column: str) -> float:
  """How far a run has come; 0 if it diverged before its first row."""
  return run.metrics[-1][column] if run.metrics else 0.


def _final_return(run: Run) -> Optional[float]:
  return 0. if run.diverged else _mean(run.evaluation, 'return')


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


def _returns_cell(runs: Sequence[Run]) -> str:
  """The mean of final returns, and each of them."""
  returns = [_final_return(run) for run in runs]
  known = [value for value in returns if value is not None]
  if not known:
    return '-'
  each = ', '.join(
      'diverged' if run.diverged else '-' if value is None else format(value, '.2f')
      for run, value in zip(runs, returns))
  return f'{sum(known) / len(known):.2f} ({each})'


def _markdown(rows: Sequence[Sequence[str]]) -> str:
  return '\n'.join('| ' + ' | '.join(row) + ' |' for row in rows)
