"""Tables and pictures of the runs of several models: every seed, and each model's mean."""

import functools
import math
import pathlib
import statistics
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from gtrxl_tf import files
from gtrxl_tf.analysis import runs as runs_lib
from gtrxl_tf.training import curves
from gtrxl_tf.training.offline import history_curves

_LEARNED = 0.9  # The share of the informed policy's return at which a task is learned.

_FINALS = ('Mean ± its standard error, and in brackets the {} of each run after training. A run '
           'that diverged counts as 0, or as its lowest value below 0. -: not evaluated.')


# Shares of the training at which runs are ranked (Figure 5: 0.5, 1, 2 billion steps).
_RANKED_AT = (0.25, 0.5, 1)

_MOST_IN_A_ROW = 4  # Panels; more wrap into rows.
_MOST_LETTERS = 30  # In all labels of an axis; longer ones are slanted.

_Panel = Optional[Callable[[Any], None]]  # Plots in a panel; None for no panel.


class _Column(NamedTuple):
  title: str
  value: Callable[[runs_lib.Run], Optional[float]]
  format: str = '.2f'
  mean_format: Optional[str] = ''  # If empty, `format`; if None, no mean is shown.
  error: bool = False  # True if the mean is shown with its standard error.


def tables(index: runs_lib.Index) -> str:
  """Returns all tables of a comparison: of each run, of tasks, and of a sweep."""
  texts = [table(point) for point in index.points]
  if index.setting is None:
    return texts[0]
  _, places = index.places()
  measures = sorted(dict.fromkeys(['return', *index.measures]), key=lambda x: x != 'score')
  return '\n'.join(
      [f'## {index.setting} = {point.value}\n\n{text}'
       for point, text in zip(index.points, texts)]
      + [f'## Final {measure} against {index.setting}\n\n'
         + _finals(index, places, measure)
         for measure in measures])


def _finals(index: runs_lib.Index, places: Sequence[runs_lib.Place], measure: str) -> str:
  """Returns a table of final values: a row per place, a column per model."""
  informed = ['informed policy'] * (measure == 'return')
  rows = [[str(index.setting), *index.models, *informed],
          ['--:'] * (1 + len(index.models) + len(informed))]
  rows += [[name, *(_runs_cell(point.by_model.get(model, []), measure)
                    for model in index.models),
            *[_cell(point.informed, '.2f')] * len(informed)] for name, point, _ in places]
  return f'{markdown(rows)}\n\n{_FINALS.format(measure)}\n'


def table(point: runs_lib.Point) -> str:
  """Returns a table with a row for each run and each model's mean.

  The means of returns, successes and scores have their standard error over runs.
  """
  columns = _columns(point)
  rows = [['model', 'seed', *(column.title for column in columns)],
          ['---'] + ['--:'] * (1 + len(columns))]
  for model, runs in point.by_model.items():
    for run in runs:
      rows.append([model, str(run.seed),
                   *(_cell(column.value(run), column.format) for column in columns)])
    rows.append([f'**{model}**', 'mean', *(_mean_cell(runs, column) for column in columns)])
  return f'{markdown(rows)}\n\n{_caption(point)}\n'


def _columns(point: runs_lib.Point) -> List[_Column]:
  """Returns the columns of `table` after model and seed."""
  def final(title, measure, form='.2f', task=None, error=False):
    return _Column(title, lambda run: run.final(measure, task), form, error=error)

  def reported(title, column):
    return _Column(title, lambda run: run.reported(column))

  goal, steps, measure = _goal(point), point.steps, point.measure
  time = curves.time_column(point.metrics)
  minutes = curves.AXES[time][1]
  columns = [
      *(final(name, name, '.1f', error=True) for name in point.scores),
      final('return', 'return', error=True),
      final('success', 'success', error=True) if measure == 'success' else
      _Column('success', lambda run: None)]
  if point.normalized:
    columns += [
        reported("source's return", 'source_return'),
        reported('random return', 'random_return'), final('normalized', 'normalized'),
        reported('greedy return', 'greedy_return'),
        final('greedy normalized', 'greedy_normalized')]
  if 'tuned_normalized' in point.normalized:
    columns += [reported('temperature', 'temperature'),
                reported('return at it', 'tuned_return'),
                final('normalized at it', 'tuned_normalized')]
  if len(point.tasks) > 1:
    columns += [final(f'{measure} {name}', measure, task=task, error=True)
                for task, name in enumerate(point.tasks)]
  columns += [_Column('steps', lambda run: run.last(steps), ',.0f'),
              _Column(minutes, lambda run: run.last(time) / 60, '.1f')]
  if goal is not None:
    columns += [
        _Column(f'steps to {_LEARNED:.0%}', lambda run: first(run, goal, steps), ',.0f'),
        _Column(f'{minutes} to {_LEARNED:.0%}', lambda run: first(run, goal, time, 60),
                '.1f')]
  return [*columns, _Column('diverged', lambda run: float(run.diverged), '.0f', '.0%'), *(
      _Column(name, lambda run, name=name: run.samples.get(name), '.3g', None)
      for name in _sampled(point))]


def _caption(point: runs_lib.Point) -> str:
  """Returns the text below `table`, which explains its columns."""
  steps, goal = point.steps, _goal(point)
  caption = ('Return, success and scores: of the evaluation after training. Steps: of the '
             f'{steps.partition("_")[0]}. -: not reached, or not evaluated. ±: standard '
             'error of the mean over runs.')
  if point.normalized:
    caption += (' Episodes: those in the last fifth of learning processes. Normalized: '
                'the return on a scale where random actions have 0 and the source 1.')
  if 'tuned_normalized' in point.normalized:
    caption += ' Temperature: the best in tasks of training.'
  if goal is not None:
    returns = ('of up to 100 training episodes, the last,' if steps == 'environment_steps'
               else 'in an evaluation')
    caption += (f' To {_LEARNED:.0%}: until the mean return {returns} first is '
                f'{goal:.2f}; the informed policy\'s is {point.informed:.2f}.')
  caption += (' Diverged: 1 if loss or gradient was not finite, and the share of such '
              'runs; their success counts as 0, and their return as 0 or, if it was ever '
              'below 0, as the lowest.')
  names = _sampled(point)
  return caption + f' Drawn by the seed: {", ".join(names)}.' if names else caption


def _goal(point: runs_lib.Point) -> Optional[float]:
  """Returns the mean return at which a task counts as learned; None if not known."""
  return _LEARNED * point.informed if (point.informed or 0) > 0 else None


def _sampled(point: runs_lib.Point) -> List[str]:
  """Returns the names of the settings that were drawn for any of the runs."""
  return list(dict.fromkeys(name for run in point.runs for name in run.samples))


def first(run: runs_lib.Run, goal: float, column: str, unit: float = 1) -> Optional[float]:
  """Returns `column` where the return first reaches `goal`."""
  return next((row[column] / unit for row in run.metrics if row['return'] >= goal), None)


def _cell(value: Optional[float], spec: str) -> str:
  return '-' if value is None else format(value, spec)


def _mean_cell(runs: Sequence[runs_lib.Run], column: _Column) -> str:
  """Returns the mean of the known values, and their number if some are missing."""
  if column.mean_format is None:
    return ''
  spec = column.mean_format or column.format
  known = [value for value in map(column.value, runs) if value is not None]
  if not known:
    return '-'
  cell = (curves.mean_and_error(known, spec) if column.error else
          format(statistics.mean(known), spec))
  return cell + (f' ({len(known)} of {len(runs)})' if len(known) < len(runs) else '')


def _runs_cell(runs: Sequence[runs_lib.Run], measure: str) -> str:
  """Returns the mean of runs' final values, its error, and the value of each run."""
  values = [run.final(measure) for run in runs]
  known = [value for value in values if value is not None]
  each = ', '.join('diverged' if run.diverged else _cell(value, '.2f')
                   for run, value in zip(runs, values))
  return f'{curves.mean_and_error(known)} ({each})' if known else '-'


def markdown(rows: Sequence[Sequence[str]]) -> str:
  """Returns a Markdown table of cells."""
  return '\n'.join('| ' + ' | '.join(row) + ' |' for row in rows)


# Pictures.


def write(index: runs_lib.Index, folder: pathlib.Path, title: str, name: str = ''
          ) -> Tuple[str, List[pathlib.Path]]:
  """Writes comparison.md and .png or, with a name, NAME.md and .png; returns text and pictures.

  If settings were drawn for each run, a second picture has ranked.png or NAME_ranked.png.
  """
  text, stem = tables(index), name or 'comparison'
  files.write_atomically(folder / f'{stem}.md', text)
  written = [folder / f'{stem}.png']
  draw_curves(index, title, written[0])
  if any(run.samples for run in index.runs):
    written.append(folder / (f'{name}_ranked.png' if name else 'ranked.png'))
    draw_ranked(index, title, written[1])
  return text, written


def draw_panels(rows: Sequence[Sequence[_Panel]], title: str, path: pathlib.Path,
                note: str = '', **options: Any) -> None:
  """Draws a picture of rows of panels; the options are those of `pyplot.subplots`."""
  figure, axes = curves.pyplot().subplots(
      len(rows), len(rows[0]), squeeze=False, layout='constrained', **options)
  for plot, panel in zip((plot for row in rows for plot in row), axes.flat):
    if plot:
      plot(panel)
    else:
      panel.remove()
  curves.save(figure, path, title, note)


def draw_curves(index: runs_lib.Index, title: str, path: pathlib.Path) -> None:
  """Draws the curves of a single point, and its tasks and learning processes, if any."""
  if index.setting is not None:
    _draw_sweep(index, title, path)
    return
  point, = index.points
  shown = _curves(point, index.models)
  measure = curves.measure_column(shown)
  plot = functools.partial(_plot_curves, index, point)
  more: List[_Panel] = [
      functools.partial(plot, measure=name, label=name) for name in point.scores
      if name != measure and any(name in run.metrics[0] for run in point.runs if run.metrics)]
  if len(point.tasks) > 1:
    more.append(functools.partial(_plot_tasks, index, point))
  if point.normalized:
    more.append(functools.partial(
        plot, measure='greedy_normalized', label='greedy_normalized'))
  if any(run.processes for run in point.runs):
    more.append(functools.partial(_plot_processes, index, point))
  curves.draw(path, shown, title, point.informed, more, point.lines.get(measure, {}))


def _draw_sweep(index: runs_lib.Index, title: str, path: pathlib.Path) -> None:
  """Draws curves for each value, above how each task ended, and values as in Figure 3."""
  def plot(point: runs_lib.Point, panel: Any) -> None:
    if point.normalized:
      _plot_processes(index, point, panel)
    else:
      _plot_curves(index, point, panel,
                   label=None if panel.get_subplotspec().is_first_col() else '')
      panel.locator_params(axis='x', nbins=5)  # More labels would overlap.
    panel.set_title(f'{index.setting} = {point.value}', fontsize='medium')

  count = len(index.points) + 1
  columns = count if count <= _MOST_IN_A_ROW else max(math.ceil(math.sqrt(count)), 3)
  missing: List[_Panel] = [None] * (-count % columns)
  panels = [[functools.partial(plot, point) for point in index.points]
            + [functools.partial(_plot_places, index, *index.places())] + missing]
  if any(len(point.tasks) > 1 for point in index.points):
    panels.append([functools.partial(_plot_tasks, index, point) for point in index.points]
                  + [None, *missing])
  rows = [each[i:i + columns] for i in range(0, count, columns) for each in panels]
  heights = [4, 3.5][:len(panels)] * (len(rows) // len(panels))
  draw_panels(rows, title, path, curves.THIN_AND_BOLD + '; final: a point for each run, and '
              'their mean', figsize=(4 * columns, sum(heights) + 0.5), height_ratios=heights)


def draw_ranked(index: runs_lib.Index, title: str, path: pathlib.Path) -> None:
  """Draws the ranking of runs at a quarter, half and the end of training (Figure 5)."""
  def plot(point: runs_lib.Point, share: float, panel: Any) -> None:
    measure = curves.measure_column(point.metrics)
    unit, name = curves.AXES[point.steps]
    steps = share * max(run.last(point.steps) for run in point.runs)
    for i, model in enumerate(index.models):
      returns = ranked(point, model, steps)
      panel.plot(range(1, len(returns) + 1), returns, **curves.style(i), marker='o',
                 markersize=3, label=model)
    if point.informed is not None and measure == 'return':
      curves.draw_reference(panel, point.informed)
    curves.draw_references(panel, point.lines.get(measure, {}))
    panel.set_title(f'after {steps / unit:.3g} {name}', fontsize='medium')
    panel.xaxis.get_major_locator().set_params(integer=True)
    if panel.get_subplotspec().is_first_col():
      panel.set_ylabel(f'{index.setting} = {point.value}\n' * bool(index.setting) + measure)
    if panel.get_subplotspec().is_last_row():
      panel.set_xlabel('run, the best first')

  label = curves.return_label(index.points[0].metrics)
  draw_panels([[functools.partial(plot, point, share) for share in _RANKED_AT]
               for point in index.points], title, path,
              f'{label}; a run that diverged has 0 or less', sharex='row', sharey='row',
              figsize=(11, 3.5 * len(index.points) + 1))


def ranked(point: runs_lib.Point, model: str, steps: float) -> List[float]:
  """Returns the returns or scores of the runs that have come as far, best first."""
  returns = []
  column, measure = point.steps, curves.measure_column(point.metrics)
  for run in point.by_model.get(model, []):
    reached = run.last(column)
    if run.diverged and reached <= steps:
      returns.append(run.floor(measure))
    # The last row of a run that is done is a few learner steps from its end.
    elif run.evaluation or reached >= steps:
      returns += [row[measure] for row in run.metrics if row[column] <= steps
                  and not math.isnan(row.get(measure, math.nan))][-1:]
  return sorted(returns, reverse=True)


def _plot_curves(index: runs_lib.Index, point: runs_lib.Point, panel: Any,
                 measure: Optional[str] = None, label: Optional[str] = None) -> None:
  """Plots a column of `metrics.csv`: by default what ranks runs, over steps."""
  shown = _curves(point, index.models)
  curves.plot(panel, shown, point.steps, point.informed, measure,
              point.lines.get(measure or curves.measure_column(shown), {}))
  panel.set_ylabel(curves.return_label(shown) if label is None else label)


def _curves(point: runs_lib.Point, models: Sequence[str]) -> Dict[str, List[curves.Rows]]:
  """Returns each model's metrics; a run that diverged continues at its floor."""
  columns = (point.steps, curves.time_column(point.metrics))
  first = next((run.metrics[0] for run in point.runs if run.metrics), {'return'})
  names = [name for name in ('return', 'normalized', 'greedy_normalized', *point.scores)
           if name in first]
  end = {column: max(run.last(column) for run in point.runs) for column in columns}
  shown: Dict[str, List[curves.Rows]] = {model: [] for model in models}
  for run in point.runs:
    start = {column: run.last(column) for column in columns}
    bad = {name: run.floor(name) for name in names}
    shown[run.model].append([*run.metrics, *(
        [{**start, **bad}, {**end, **bad}] if run.diverged else [])])
  return shown


def _plot_processes(index: runs_lib.Index, point: runs_lib.Point, panel: Any) -> None:
  """Plots the learning processes of each model and of the source."""
  by_model = {model: [run.processes['policy'] for run in point.by_model.get(model, [])
                      if run.processes] for model in index.models}
  source = [run.processes['source'] for run in point.runs if run.processes][:1]
  history_curves.plot(panel, {**by_model, 'source': source}, point.informed)


def _plot_tasks(index: runs_lib.Index, point: runs_lib.Point, panel: Any) -> None:
  """Plots the final value of each task, whose names are below the panel."""
  _plot_places(index, 'task', [
      runs_lib.Place(name, point, task) for task, name in enumerate(point.tasks)], panel)
  if point.measure == 'success':
    panel.set_ylim(-0.05, 1.05)


def _plot_places(index: runs_lib.Index, axis: str, places: Sequence[runs_lib.Place],
                 panel: Any) -> None:
  """Plots each run's final value at each place, and each model's mean."""
  point, names = places[0].point, [place.name for place in places]
  measure = point.measure if axis == 'task' else index.measures[0]
  # The informed policy's return depends on the task (*GTrXL*, Figure 3).
  relative = (axis != 'task' and measure == 'return'
              and all((place.point.informed or 0) > 0 for place in places))
  for i, model in enumerate(index.models):
    values = [np.array(place.point.finals(model, measure, place.task))
              / (place.point.informed if relative else 1) for place in places]
    # Side by side, so that the models' runs do not hide each other.
    x = np.arange(len(places)) + 0.4 * ((i + 0.5) / len(index.models) - 0.5)
    color = curves.style(i)['color']
    panel.plot(np.repeat(x, [len(each) for each in values]), np.concatenate(values), 'o',
               color=color, markersize=4, alpha=0.6)
    panel.plot(x, [each.mean() if each.size else np.nan for each in values], '_',
               color=color, markersize=12, label=model)
  panel.set_xticks(range(len(names)), names)
  if sum(map(len, names)) > _MOST_LETTERS:
    panel.tick_params(axis='x', labelrotation=45)
    curves.pyplot().setp(panel.get_xticklabels(), ha='right', rotation_mode='anchor')
  panel.set_xlabel(axis)
  unit = " / informed policy's" * relative
  panel.set_title('final return: random 0, source 1' if measure == 'normalized'
                  else f'final {measure}{unit}', fontsize='medium')
  if relative:
    curves.draw_reference(panel, 1)
  if axis == 'task':
    curves.draw_references(panel, point.lines.get(measure, {}))
