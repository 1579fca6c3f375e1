"""Runs of several models of an experiment: every seed, in tables and pictures.

A run that diverged counts with a return of 0 from there on, as in *GTrXL* (Table 3).
"""

import functools
import math
import pathlib
import types
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from matplotlib import pyplot as plt
import numpy as np

from gtrxl_tf.analysis import curves
from gtrxl_tf.analysis import histories

# Of the informed policy's return: where a task counts as learned.
_LEARNED = 0.9

# Of the training, where runs are ranked (Figure 5: 0.5, 1 and 2 billion steps).
_RANKED_AT = (0.25, 0.5, 1)


class Run(NamedTuple):
  """A seed of a model."""
  model: str
  seed: int
  metrics: curves.Rows     # Of `metrics.csv`; a run may diverge before the first.
  evaluation: curves.Rows  # Of `evaluation.csv`; none where a run did not end well.
  diverged: bool
  samples: Mapping[str, float]  # Its sampled settings.
  processes: Mapping[str, histories.Curve] = types.MappingProxyType({})
  # Of `learning_process.csv`; none if the run's policy does not learn in acting.


class Point(NamedTuple):
  """What was run, at one value of the setting if a sweep goes through one."""
  value: str
  runs: Sequence[Run]
  informed: Optional[float]  # The informed policy's return, if there is one.
  tasks: Sequence[str] = ('',)  # Names, as many as the runs have tasks.


class _Column(NamedTuple):
  title: str
  value: Callable[[Run], Optional[float]]
  format: str
  mean_format: Optional[str]  # None: the mean says nothing.


def table(point: Point) -> str:
  """A Markdown table: a row for each run, and one for the mean of each model."""
  runs, informed = point.runs, point.informed
  steps, measure = _steps_column(runs), _measure(runs)
  column = lambda title, value, form: _Column(title, value, form, form)
  columns = [
      column('return', _final, '.2f'),
      column('success', lambda run: (
          _final(run, 'success') if measure == 'success' else None), '.2f')]
  if learns(runs):
    columns += [
        column("source's return", lambda run: _found(run, 'source_return'), '.2f'),
        column('ratio', lambda run: _final(run, 'ratio'), '.2f')]
  if len(point.tasks) > 1:
    columns += [column(f'{measure} {name}',
                       lambda run, task=task: _final(run, measure, task), '.2f')
                for task, name in enumerate(point.tasks)]
  columns += [
      column('steps', lambda run: _last(run, steps), ',.0f'),
      column('minutes', lambda run: _last(run, 'seconds') / 60, '.1f')]
  caption = ('Return and success: means over the episodes of the evaluation after '
             f'training. Steps: of the {steps.partition("_")[0]}. -: not reached, or '
             'not evaluated.')
  if learns(runs):
    caption += (' Episodes: those in the last fifth of learning processes. Ratio: of '
                "the return to the source's, or the inverse where returns are costs.")
  if informed is not None and informed > 0:
    goal = _LEARNED * informed
    columns += [
        column(f'steps to {_LEARNED:.0%}',
               lambda run: _first(run, goal, steps), ',.0f'),
        column(f'minutes to {_LEARNED:.0%}',
               lambda run: _first(run, goal, 'seconds', 60), '.1f')]
    returns = ('of the last 100 training episodes' if steps == 'environment_steps'
               else 'in an evaluation')
    caption += (f' To {_LEARNED:.0%}: until the mean return {returns} first is '
                f'{goal:.2f}; the informed policy\'s is {informed:.2f}.')
  columns.append(
      _Column('diverged', lambda run: float(run.diverged), '.0f', '.0%'))
  caption += (' Diverged: 1 if loss or gradient was not finite, and the share of such '
              'runs; their return and success count as 0.')
  names = list(dict.fromkeys(name for run in runs for name in run.samples))
  columns += [_Column(name, lambda run, name=name: run.samples.get(name), '.3g', None)
              for name in names]
  if names:
    caption += f' Drawn by the seed: {", ".join(names)}.'
  rows = [['model', 'seed', *(column.title for column in columns)],
          ['---'] + ['--:'] * (1 + len(columns))]
  for model, seeds in _by_model(runs).items():
    values = [[column.value(run) for column in columns] for run in seeds]
    for run, row in zip(seeds, values):
      rows.append([model, str(run.seed), *(
          '-' if value is None else format(value, column.format)
          for column, value in zip(columns, row))])
    rows.append([f'**{model}**', 'mean', *(
        '' if column.mean_format is None
        else _mean_cell(column_values, column.mean_format)
        for column, column_values in zip(columns, zip(*values)))])
  return f'{_markdown(rows)}\n\n{caption}\n'


def task_table(point: Point) -> str:
  """A Markdown table of how each task ended: a row a task, a column a model.

  It shows the success, or the return of tasks that do not tell it.
  """
  measure = _measure(point.runs)
  by_model = _by_model(point.runs)
  rows = [[f'{measure} in task', *by_model], ['--:'] * (1 + len(by_model))]
  for task, name in enumerate(point.tasks):
    rows.append([name, *(_finals_cell(runs, measure, task)
                         for runs in by_model.values())])
  return f'{_markdown(rows)}\n\n{_finals_caption(measure)}\n'


def learns(runs: Sequence[Run]) -> bool:
  """Whether runs are judged by learning processes, beside those of their source."""
  return any('ratio' in row for run in runs for row in run.metrics[-1:])


def sweep_table(setting: str, points: Sequence[Point], measure: str = 'return') -> str:
  """A Markdown table of final returns: a row for each value, a column for each model.

  With `measure = 'ratio'` it is of ratios to the source's return.
  """
  models = _models(points)
  rows = [[setting, *models, 'informed policy'], ['--:'] * (2 + len(models))]
  for point in points:
    seeds = _by_model(point.runs)
    rows.append([
        point.value,
        *(_finals_cell(seeds.get(model, []), measure) for model in models),
        '-' if point.informed is None else format(point.informed, '.2f')])
  if measure == 'ratio':
    rows = [row[:-1] for row in rows]
  return f'{_markdown(rows)}\n\n{_finals_caption(measure)}\n'


def ranked(runs: Sequence[Run], steps: float) -> List[float]:
  """Mean returns that runs had at a point of their training, best first.

  Args:
    runs: of which those are left out that have not come to the point, or had not
      finished an episode by then.
    steps: of the environment; of the learner where that is all there is.
  """
  returns = []
  column = _steps_column(runs)
  for run in runs:
    reached = _last(run, column)
    if run.diverged and reached <= steps:
      returns.append(0.)
    # The last row of a run that is done is a few learner steps from its end.
    elif run.evaluation or reached >= steps:
      returns += [row['return'] for row in run.metrics
                  if row[column] <= steps and not math.isnan(row['return'])][-1:]
  return sorted(returns, reverse=True)


def draw(path: pathlib.Path, point: Point, title: str) -> None:
  """Draws the returns of all runs in one picture, with the informed policy's, how each
  task ended if there are several, and learning processes if there are."""
  models = _models([point])
  more = [_plot_tasks] * (len(point.tasks) > 1) + [_plot_processes] * learns(point.runs)
  curves.draw(path, _curves(point.runs, models), title, point.informed,
              [functools.partial(plot, point=point, models=models) for plot in more])


def draw_sweep(path: pathlib.Path, setting: str, points: Sequence[Point], title: str
               ) -> None:
  """Draws a row of panels: curves for each value, and final returns against values.

  Final returns are in units of the informed policy's, which depends on the task, if
  there is one (*GTrXL*, Figure 3). Where runs have several tasks, a second row shows
  how each of them ended. Where policies learn in acting, curves are learning processes,
  and what is final is the ratio to the source's return.
  """
  tasks = any(len(point.tasks) > 1 for point in points)
  figure, rows = plt.subplots(
      1 + tasks, len(points) + 1, squeeze=False, layout='constrained',
      figsize=(4 * len(points) + 4, 4.5 + 3.5 * tasks))
  panels = rows[0]
  models = _models(points)
  for panel, point in zip(panels, points):
    shown = _curves(point.runs, models)
    if learns(point.runs):
      _plot_processes(panel, point, models)
    else:
      curves.plot(panel, shown, _steps_column(point.runs), point.informed)
      panel.set_ylabel(curves.return_label(shown) if point is points[0] else '')
    panel.set_title(f'{setting} = {point.value}', fontsize='medium')
  _plot_final_returns(panels[-1], points, models)
  panels[-1].set_xlabel(setting)
  if tasks:
    for panel, point in zip(rows[1], points):
      _plot_tasks(panel, point, models)
    rows[1, -1].set_axis_off()
  curves.save(figure, path, title, curves.THIN_AND_BOLD
              + '; final: a point each run, and their mean')


def _plot_final_returns(panel: plt.Axes, points: Sequence[Point], models: Sequence[str]
                        ) -> None:
  ratio = all(learns(point.runs) for point in points)
  relative = not ratio and all((point.informed or 0) > 0 for point in points)
  finals = {model: [
      [value / (point.informed if relative else 1) for value in _finals(
          _by_model(point.runs).get(model, []), 'ratio' if ratio else 'return')]
      for point in points] for model in models}
  _plot_finals(panel, [point.value for point in points], finals)
  panel.set_title("final return / source's" if ratio else
                  'final return' + " / informed policy's" * relative, fontsize='medium')
  if relative:
    curves.draw_reference(panel, 1)


def _plot_processes(panel: plt.Axes, point: Point, models: Sequence[str]) -> None:
  of_model = {model: [run.processes['policy'] for run in point.runs
                      if run.model == model and run.processes] for model in models}
  source = [run.processes['source'] for run in point.runs if run.processes][:1]
  histories.plot(panel, {**of_model, 'source': source}, point.informed)
  panel.set_ylabel('return of an episode')


def _plot_tasks(panel: plt.Axes, point: Point, models: Sequence[str]) -> None:
  measure = _measure(point.runs)
  by_model = _by_model(point.runs)
  _plot_finals(panel, point.tasks, {model: [
      _finals(by_model.get(model, []), measure, task)
      for task in range(len(point.tasks))] for model in models})
  panel.set_title(f'final {measure}', fontsize='medium')
  panel.set_xlabel('task')
  if measure == 'success':
    panel.set_ylim(-0.05, 1.05)


def _plot_finals(panel: plt.Axes, names: Sequence[str],
                 finals: Dict[str, List[List[float]]]) -> None:
  """Plots for each model what its runs came to, a list for each of `names`."""
  for i, (model, values) in enumerate(finals.items()):
    # Side by side, so that the models' runs do not hide each other.
    x = np.arange(len(names)) + 0.5 * ((i + 0.5) / len(finals) - 0.5)
    panel.plot(x, [np.mean(each) if each else np.nan for each in values],
               **curves.style(i), label=model)
    panel.plot(np.repeat(x, [len(each) for each in values]), np.concatenate(values),
               'o', color=curves.style(i)['color'], markersize=4, alpha=0.6)
  panel.set_xticks(range(len(names)), names)


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
  models = _models(points)
  for row, point in zip(panels, points):
    column = _steps_column(point.runs)
    unit, name = curves.AXES[column]
    end = max(_last(run, column) for run in point.runs)
    by_model = _by_model(point.runs)
    for panel, share in zip(row, _RANKED_AT):
      for i, model in enumerate(models):
        returns = ranked(by_model.get(model, []), share * end)
        panel.plot(range(1, len(returns) + 1), returns, **curves.style(i), marker='o',
                   markersize=3, label=model)
      if point.informed is not None:
        curves.draw_reference(panel, point.informed)
      panel.set_title(f'after {share * end / unit:.3g} {name}', fontsize='medium')
      panel.xaxis.get_major_locator().set_params(integer=True)
    row[0].set_ylabel('return' if setting is None
                      else f'{setting} = {point.value}\nreturn')
  for panel in panels[-1]:
    panel.set_xlabel('run, the best first')
  curves.save(figure, path, title, f'{curves.return_label(_shown(points[0].runs))}; a '
              'run that diverged has 0')


def _models(points: Sequence[Point]) -> List[str]:
  return list(dict.fromkeys(run.model for point in points for run in point.runs))


def _by_model(runs: Sequence[Run]) -> Dict[str, List[Run]]:
  grouped = {}
  for run in runs:
    grouped.setdefault(run.model, []).append(run)
  return grouped


def _shown(runs: Sequence[Run]) -> Dict[str, List[curves.Rows]]:
  """For each model its runs' metrics."""
  return {model: [run.metrics for run in seeds]
          for model, seeds in _by_model(runs).items()}


def _steps_column(runs: Sequence[Run]) -> str:
  return curves.steps_column(_shown(runs))


def _curves(runs: Sequence[Run], models: Sequence[str]) -> Dict[str, List[curves.Rows]]:
  """For each model its runs' metrics, where those that diverged go on to the end."""
  columns = (_steps_column(runs), 'seconds')
  end = {column: max(_last(run, column) for run in runs) for column in columns}
  shown = {model: [] for model in models}
  for run in runs:
    start = {column: _last(run, column) for column in columns}
    shown[run.model].append([*run.metrics, *(
        [{**start, 'return': 0.}, {**end, 'return': 0.}] if run.diverged else [])])
  return shown


def _last(run: Run, column: str) -> float:
  """How far a run has come; 0 if it diverged before its first row."""
  return run.metrics[-1][column] if run.metrics else 0.


def _measure(runs: Sequence[Run]) -> str:
  """What tells how a task went: the success, or the return if success is not told."""
  told = not any(math.isnan(row['success']) for run in runs for row in run.evaluation)
  return 'success' if told else 'return'


def _final(run: Run, measure: str = 'return', task: Optional[int] = None
           ) -> Optional[float]:
  """What a run came to in a task, or in all together; None if it is not known."""
  if run.diverged:
    return 0.
  if measure == 'ratio':
    return _found(run, 'ratio')
  return _mean(
      [row for row in run.evaluation if task in (None, row.get('task'))], measure)


def _found(run: Run, column: str) -> Optional[float]:
  """What the evaluation after training found besides; None if it is not known."""
  return _mean(run.metrics[-1:], column) if run.evaluation else None


def _finals(runs: Sequence[Run], *what) -> List[float]:
  """Those that are known of `_final(run, *what)`."""
  values = [_final(run, *what) for run in runs]
  return [value for value in values if value is not None]


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


def _finals_cell(runs: Sequence[Run], *what) -> str:
  """The mean of `_final(run, *what)`, and each of them."""
  known = _finals(runs, *what)
  if not known:
    return '-'
  finals = [(run.diverged, _final(run, *what)) for run in runs]
  each = ', '.join(
      'diverged' if diverged else '-' if value is None else format(value, '.2f')
      for diverged, value in finals)
  return f'{sum(known) / len(known):.2f} ({each})'


def _finals_caption(measure: str) -> str:
  return (f'Mean over the runs, and in brackets the {measure} of each in the '
          'evaluation after training, in the order of their seeds. A run that diverged '
          'counts as 0. -: not evaluated, and not in the mean.')


def _markdown(rows: Sequence[Sequence[str]]) -> str:
  return '\n'.join('| ' + ' | '.join(row) + ' |' for row in rows)
