"""Pictures of the runs of several models: every seed, and the mean of each model."""

import functools
import math
import os
import pathlib
from typing import Dict, List, Optional, Sequence, Tuple

import matplotlib
from matplotlib import pyplot as plt
import numpy as np

from gtrxl_tf.analysis import comparison
from gtrxl_tf.training import curves
from gtrxl_tf.training.offline import history_curves

matplotlib.use('Agg')  # Draws to files only; there may be no screen.

# Shares of the training at which runs are ranked (Figure 5: 0.5, 1, 2 billion steps).
_RANKED_AT = (0.25, 0.5, 1)

_MOST_IN_A_ROW = 4  # Panels; more wrap into rows.
_MOST_LETTERS = 30  # In all labels of an axis; longer ones are slanted.


def draw(path: pathlib.Path, point: comparison.PointRuns, title: str) -> None:
  """Draws the returns or scores of all runs in one picture, with lines of reference.

  Further panels show further scores, the final value of each task, if there are
  several, and, if policies learn while they act, returns of their most likely actions
  and learning processes.

  Args:
    path: the picture to write.
    point: the runs.
    title: the picture's title.
  """
  models = comparison.models_of([point])
  shown = _curves(point, models)
  measure = curves.measure_column(shown)
  more = [functools.partial(_plot_score, name=name) for name in point.scores
          if name != measure and any(name in run.metrics[0] for run in point.runs
                                     if run.metrics)]
  more += [_plot_tasks] * (len(point.tasks) > 1)
  if comparison.learns(point.runs):
    more += [functools.partial(_plot_score, name='greedy_normalized'), plot_processes]
  curves.draw(path, shown, title, point.informed,
              [functools.partial(plot, point=point, models=models) for plot in more],
              point.lines.get(measure, {}))


def draw_sweep(path: pathlib.Path, setting: str,
               points: Sequence[comparison.PointRuns], title: str) -> None:
  """Draws a panel of curves for each value, and one of final returns against values.

  Final returns are in units of the informed policy's, which depends on the task, if
  there is one (*GTrXL*, Figure 3). Where runs have several tasks, the panel below each
  panel of curves shows how each task ended. Where policies learn while they act, curves
  are learning processes, and the last panel has final returns on a scale where random
  play has 0 and the source 1.

  Args:
    path: the picture to write.
    setting: the setting that the sweep varies.
    points: the points of the sweep.
    title: the picture's title.
  """
  setting, points = short_values(setting, points)
  models = comparison.models_of(points)
  has_tasks = any(len(point.tasks) > 1 for point in points)
  figure, panels, task_panels = _grid(len(points) + 1, has_tasks)
  for i, (panel, point) in enumerate(zip(panels, points)):
    shown = _curves(point, models)
    if comparison.learns(point.runs):
      plot_processes(panel, point, models)
    else:
      curves.plot(panel, shown, comparison.steps_column(point.runs), point.informed,
                  lines=point.lines.get(curves.measure_column(shown), {}))
      panel.locator_params(axis='x', nbins=5)  # More labels would overlap.
      first_in_row = panel.get_subplotspec().is_first_col()
      panel.set_ylabel(curves.return_label(shown) if first_in_row else '')
    panel.set_title(_heading(setting, point.value), fontsize='medium')
    if has_tasks:
      _plot_tasks(task_panels[i], point, models)
  _plot_final_returns(panels[-1], setting, points, models)
  panels[-1].set_xlabel(setting.replace(' = ', '\n'))
  if has_tasks:
    task_panels[-1].remove()
  curves.save(figure, path, title, curves.THIN_AND_BOLD
              + '; final: a point for each run, and their mean')


def draw_progress(path: pathlib.Path, setting: str,
                  points: Sequence[comparison.PointRuns], title: str) -> None:
  """Draws how returns or scores rise over learner steps and over CPU time.

  A value of the sweep has a row of panels. Where policies learn while they act, the
  last panel has their most likely actions.

  Args:
    path: the picture to write.
    setting: the setting that the sweep varies.
    points: the points of the sweep, of offline runs.
    title: the picture's title.
  """
  setting, points = short_values(setting, points)
  models = comparison.models_of(points)
  learns = any(comparison.learns(point.runs) for point in points)
  figure, rows = plt.subplots(
      len(points), 2 + learns, figsize=(4 * (2 + learns), 3 * len(points) + 0.5),
      sharey='row', squeeze=False, layout='constrained')
  for row, point in zip(rows, points):
    shown = _curves(point, models)
    steps, measure = comparison.steps_column(point.runs), curves.measure_column(shown)
    for panel, column in zip(row, (steps, curves.time_column(shown))):
      curves.plot(panel, shown, column, point.informed,
                  lines=point.lines.get(measure, {}))
    if learns:
      curves.plot(row[2], shown, steps, measure='greedy_normalized')
      row[2].set_title('most likely actions', fontsize='medium')
    row[0].set_title(_heading(setting, point.value), fontsize='medium')
    row[0].set_ylabel(curves.return_label(shown))
  curves.save(figure, path, title, curves.THIN_AND_BOLD)


def short_values(setting: Optional[str], points: Sequence[comparison.PointRuns]
                 ) -> Tuple[Optional[str], Sequence[comparison.PointRuns]]:
  """Returns a sweep whose setting names what all its quoted values share.

  The values "popgym-A-v0" and "popgym-B-v0" of `name` become A and B of
  `name = popgym-*-v0`. Other sweeps stay as they are.
  """
  values = [point.value.strip('"') for point in points]
  first = os.path.commonprefix(values)
  last = os.path.commonprefix([value[len(first):][::-1] for value in values])[::-1]
  names = [value[len(first):len(value) - len(last)] for value in values]
  if not (all(names) and len(points) > 1 and points[0].value.startswith('"')):
    return setting, points
  return f'{setting} = {first}*{last}', [
      point._replace(value=name) for point, name in zip(points, names)]


def _heading(setting: str, value: str) -> str:
  return value if '*' in setting else f'{setting} = {value}'


def _grid(num_panels: int, two_each: bool
          ) -> Tuple[plt.Figure, List[plt.Axes], List[plt.Axes]]:
  """Makes a figure of panels in one row, or in several if there are many."""
  columns = num_panels
  if num_panels > _MOST_IN_A_ROW:
    columns = max(math.ceil(math.sqrt(num_panels)), 3)
  rows = math.ceil(num_panels / columns)
  heights = [4, 3.5] if two_each else [4]
  figure, axes = plt.subplots(
      rows * len(heights), columns, squeeze=False, layout='constrained',
      height_ratios=heights * rows,
      figsize=(4 * columns, sum(heights) * rows + 0.5))
  upper = axes[::len(heights)].ravel()
  lower = axes[len(heights) - 1::len(heights)].ravel()
  for panel in {*upper[num_panels:], *lower[num_panels:]}:
    panel.remove()
  return figure, list(upper[:num_panels]), list(lower[:num_panels])


def across(axis: str, style: Dict[str, str]) -> Dict[str, str]:
  """Returns the style of points along an axis: no line joins files, which have no order."""
  return {**style, 'linestyle': ''} if axis == 'experiment' else style


def _plot_final_returns(panel: plt.Axes, setting: str,
                        points: Sequence[comparison.PointRuns],
                        models: Sequence[str]) -> None:
  """Plots final returns, or scores, against the values of a sweep."""
  measure = comparison.final_measure(points)
  relative = measure == 'return' and all((point.informed or 0) > 0 for point in points)
  finals = {model: [
      [value / (point.informed if relative else 1)
       for value in comparison.finals(point, model, measure)]
      for point in points] for model in models}
  _plot_finals(panel, setting, [point.value for point in points], finals)
  panel.set_title('final return: random 0, source 1' if measure == 'normalized' else
                  f'final {measure}' + " / informed policy's" * relative,
                  fontsize='medium')
  if relative:
    curves.draw_reference(panel, 1)


def _plot_score(panel: plt.Axes, point: comparison.PointRuns, models: Sequence[str],
                name: str) -> None:
  """Plots the curves of a further score."""
  curves.plot(panel, _curves(point, models), comparison.steps_column(point.runs),
              measure=name, lines=point.lines.get(name, {}))
  panel.set_ylabel(name)


def plot_processes(panel: plt.Axes, point: comparison.PointRuns,
                   models: Sequence[str]) -> None:
  """Plots the learning processes of each model and of the source."""
  by_model = {model: [run.processes['policy'] for run in point.runs
                      if run.model == model and run.processes] for model in models}
  source = [run.processes['source'] for run in point.runs if run.processes][:1]
  history_curves.plot(panel, {**by_model, 'source': source}, point.informed)
  panel.set_ylabel('return of an episode')


def _plot_tasks(panel: plt.Axes, point: comparison.PointRuns,
                models: Sequence[str]) -> None:
  """Plots the final value of each task."""
  measure = comparison.measure_of(point.runs)
  _plot_finals(panel, 'task', point.tasks, {model: [
      comparison.finals(point, model, measure, task)
      for task in range(len(point.tasks))] for model in models})
  curves.draw_references(panel, point.lines.get(measure, {}))
  panel.set_title(f'final {measure}', fontsize='medium')
  panel.set_xlabel('task')
  if measure == 'success':
    panel.set_ylim(-0.05, 1.05)


def _plot_finals(panel: plt.Axes, axis: str, names: Sequence[str],
                 finals: Dict[str, List[List[float]]]) -> None:
  """Plots each run's final value and each model's mean."""
  for i, (model, values) in enumerate(finals.items()):
    # Side by side, so that the models' runs do not hide each other.
    x = np.arange(len(names)) + 0.5 * ((i + 0.5) / len(finals) - 0.5)
    style = across(axis, curves.style(i))
    panel.plot(x, [np.mean(each) if each else np.nan for each in values], **style,
               marker='' if style['linestyle'] else '_', markersize=12, label=model)
    panel.plot(np.repeat(x, [len(each) for each in values]), np.concatenate(values),
               'o', color=curves.style(i)['color'], markersize=4, alpha=0.6)
  panel.set_xticks(range(len(names)), names)
  if sum(map(len, names)) > _MOST_LETTERS:
    panel.tick_params(axis='x', labelrotation=45)
    plt.setp(panel.get_xticklabels(), ha='right', rotation_mode='anchor')


def draw_ranked(path: pathlib.Path, setting: Optional[str],
                points: Sequence[comparison.PointRuns], title: str) -> None:
  """Draws the ranking of runs at a quarter, half and the end of training (Figure 5).

  Args:
    path: the picture to write.
    setting: the setting that a sweep varies; None without a sweep.
    points: the points of the sweep, a row of panels each; one without a sweep.
    title: the picture's title.
  """
  setting, points = short_values(setting, points)
  figure, panels = plt.subplots(
      len(points), len(_RANKED_AT), figsize=(11, 3.5 * len(points) + 1),
      sharex='row', sharey='row', squeeze=False, layout='constrained')
  models = comparison.models_of(points)
  for row, point in zip(panels, points):
    measure = curves.measure_column(comparison.metrics_of(point.runs))
    column = comparison.steps_column(point.runs)
    unit, name = curves.AXES[column]
    end = max(comparison.last(run, column) for run in point.runs)
    by_model = comparison.group_by_model(point.runs)
    for panel, share in zip(row, _RANKED_AT):
      for i, model in enumerate(models):
        returns = comparison.ranked(by_model.get(model, []), share * end)
        panel.plot(range(1, len(returns) + 1), returns, **curves.style(i), marker='o',
                   markersize=3, label=model)
      if point.informed is not None and measure == 'return':
        curves.draw_reference(panel, point.informed)
      curves.draw_references(panel, point.lines.get(measure, {}))
      panel.set_title(f'after {share * end / unit:.3g} {name}', fontsize='medium')
      panel.xaxis.get_major_locator().set_params(integer=True)
    row[0].set_ylabel(measure if setting is None
                      else f'{_heading(setting, point.value)}\n{measure}')
  for panel in panels[-1]:
    panel.set_xlabel('run, the best first')
  label = curves.return_label(comparison.metrics_of(points[0].runs))
  curves.save(figure, path, title, f'{label}; a run that diverged has 0 or less')


def _curves(point: comparison.PointRuns, models: Sequence[str]
            ) -> Dict[str, List[curves.Rows]]:
  """Returns each model's metrics; a run that diverged continues at its floor."""
  runs = point.runs
  columns = (comparison.steps_column(runs),
             curves.time_column(comparison.metrics_of(runs)))
  first = next((run.metrics[0] for run in runs if run.metrics), {'return'})
  names = 'return', 'normalized', 'greedy_normalized', *point.scores
  end = {column: max(comparison.last(run, column) for run in runs)
         for column in columns}
  shown = {model: [] for model in models}
  for run in runs:
    start = {column: comparison.last(run, column) for column in columns}
    bad = {name: comparison.floor(run, name) for name in names if name in first}
    shown[run.model].append([*run.metrics, *(
        [{**start, **bad}, {**end, **bad}] if run.diverged else [])])
  return shown
