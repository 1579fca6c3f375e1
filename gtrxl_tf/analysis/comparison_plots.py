"""Pictures of the runs of several models: every seed, and the mean of each model."""

import functools
import math
import pathlib
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import matplotlib
from matplotlib import pyplot as plt
import numpy as np

from gtrxl_tf import files
from gtrxl_tf.analysis import comparison
from gtrxl_tf.analysis import runs as runs_lib
from gtrxl_tf.training import curves
from gtrxl_tf.training.offline import history_curves

matplotlib.use('Agg')  # Draws to files only; there may be no screen.

# Shares of the training at which runs are ranked (Figure 5: 0.5, 1, 2 billion steps).
_RANKED_AT = (0.25, 0.5, 1)

_MOST_IN_A_ROW = 4  # Panels; more wrap into rows.
_MOST_LETTERS = 30  # In all labels of an axis; longer ones are slanted.

_Panel = Optional[Callable[[plt.Axes], None]]  # Plots in a panel; None for no panel.


def pictures(index: runs_lib.Index, title: str) -> Dict[str, Callable[[pathlib.Path], None]]:
  """Returns what writes `curves` and, if settings were drawn for each run, `ranked` runs."""
  is_sweep = index.setting is not None
  return {name: functools.partial(draw, index, title) for name, draw, is_there in (
      ('curves', _draw_sweep if is_sweep else _draw_curves, True),
      ('ranked', _draw_ranked, any(run.samples for run in index.runs))) if is_there}


def write(index: runs_lib.Index, folder: pathlib.Path, title: str, name: str = ''
          ) -> Tuple[str, List[pathlib.Path]]:
  """Writes comparison.md and pictures or, with a name, NAME.md and so on; returns both."""
  text, written = comparison.tables(index), []
  files.write_atomically(folder / f'{name or "comparison"}.md', text)
  for kind, draw in pictures(index, title).items():
    stem = (name or 'comparison') if kind == 'curves' else f'{name}_{kind}'.strip('_')
    written.append(folder / f'{stem}.png')
    draw(written[-1])
  return text, written


def _draw(path: pathlib.Path, title: str, rows: Sequence[Sequence[_Panel]], note: str,
          **options: Any) -> None:
  """Draws a picture of rows of panels."""
  figure, axes = plt.subplots(
      len(rows), len(rows[0]), squeeze=False, layout='constrained', **options)
  for plot, panel in zip((plot for row in rows for plot in row), axes.flat):
    if plot:
      plot(panel)
    else:
      panel.remove()
  curves.save(figure, path, title, note)


def _draw_curves(index: runs_lib.Index, title: str, path: pathlib.Path) -> None:
  """Draws the curves of a single point, and its tasks and learning processes, if any."""
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
    more += [functools.partial(plot, measure='greedy_normalized', label='greedy_normalized'),
             functools.partial(_plot_processes, index, point)]
  curves.draw(path, shown, title, point.informed, more, point.lines.get(measure, {}))


def _draw_sweep(index: runs_lib.Index, title: str, path: pathlib.Path) -> None:
  """Draws curves for each value, above how each task ended, and values as in Figure 3."""
  def plot(point: runs_lib.Point, panel: plt.Axes) -> None:
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
  _draw(path, title, rows, curves.THIN_AND_BOLD + '; final: a point for each run, and their '
        'mean', figsize=(4 * columns, sum(heights) + 0.5), height_ratios=heights)


def _draw_ranked(index: runs_lib.Index, title: str, path: pathlib.Path) -> None:
  """Draws the ranking of runs at a quarter, half and the end of training (Figure 5)."""
  def plot(point: runs_lib.Point, share: float, panel: plt.Axes) -> None:
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
  _draw(path, title, [[functools.partial(plot, point, share) for share in _RANKED_AT]
                      for point in index.points],
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


def _plot_curves(index: runs_lib.Index, point: runs_lib.Point, panel: plt.Axes,
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


def _plot_processes(index: runs_lib.Index, point: runs_lib.Point, panel: plt.Axes) -> None:
  """Plots the learning processes of each model and of the source."""
  by_model = {model: [run.processes['policy'] for run in point.by_model.get(model, [])
                      if run.processes] for model in index.models}
  source = [run.processes['source'] for run in point.runs if run.processes][:1]
  history_curves.plot(panel, {**by_model, 'source': source}, point.informed)


def _plot_tasks(index: runs_lib.Index, point: runs_lib.Point, panel: plt.Axes) -> None:
  """Plots the final value of each task, whose names are below the panel."""
  _plot_places(index, 'task', [
      runs_lib.Place(name, point, task) for task, name in enumerate(point.tasks)], panel)
  if point.measure == 'success':
    panel.set_ylim(-0.05, 1.05)


def _plot_places(index: runs_lib.Index, axis: str, places: Sequence[runs_lib.Place],
                 panel: plt.Axes) -> None:
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
    plt.setp(panel.get_xticklabels(), ha='right', rotation_mode='anchor')
  panel.set_xlabel(axis)
  unit = " / informed policy's" * relative
  panel.set_title('final return: random 0, source 1' if measure == 'normalized'
                  else f'final {measure}{unit}', fontsize='medium')
  if relative:
    curves.draw_reference(panel, 1)
  if axis == 'task':
    curves.draw_references(panel, point.lines.get(measure, {}))
