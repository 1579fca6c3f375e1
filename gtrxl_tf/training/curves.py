"""Learning curves: returns of runs against steps and time."""

from __future__ import annotations

import math
import os
import pathlib
import sys
import types
import typing
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

if typing.TYPE_CHECKING:
  from matplotlib import pyplot as plt

Rows = Sequence[Dict[str, float]]

# For each column that returns may be plotted against: its unit and its label.
AXES = {'environment_steps': (1e6, 'million environment steps'),
        'learner_step': (1e3, 'thousand learner steps'),
        'seconds': (60, 'minutes'),
        'cpu_seconds': (60, 'CPU minutes of training')}

_LINES = ('-', '--', ':')  # Ten runs share each of them, in ten colours.
_REFERENCE_STYLES = (':', '--', '-.', (0, (3, 1, 1, 1, 1, 1)))

THIN_AND_BOLD = 'thin: each run, bold: mean of the runs'


def mean_curve(curves: Sequence[Tuple[np.ndarray, np.ndarray]]
               ) -> Tuple[np.ndarray, np.ndarray]:
  """Returns the mean of curves `(x, y)`, with x ascending, where all have values.

  It is linear between points, and leaves out those whose y is NaN.
  """
  known = [(x[~np.isnan(y)], y[~np.isnan(y)]) for x, y in curves]
  if not all(len(x) for x, _ in known):
    return np.array([]), np.array([])
  start, end = max(x[0] for x, _ in known), min(x[-1] for x, _ in known)
  grid = np.unique(np.concatenate([x for x, _ in known]))
  grid = grid[(grid >= start) & (grid <= end)]
  return grid, np.mean([np.interp(grid, x, y) for x, y in known], axis=0)


def mean_and_error(values: Sequence[float], spec: str = '.2f') -> str:
  """Returns the mean of values as text; of several, with its standard error."""
  cell = format(np.mean(values), spec)
  if len(values) > 1:
    cell += f' ± {np.std(values, ddof=1) / math.sqrt(len(values)):{spec}}'
  return cell


def style(number: int) -> Dict[str, str]:
  """Returns the style that the label with this number has in every panel."""
  return {'color': f'C{number}', 'linestyle': _LINES[number // 10 % len(_LINES)]}


def plot(panel: plt.Axes, runs: Dict[str, List[Rows]], column: str,
         reference: Optional[float] = None, measure: Optional[str] = None,
         lines: Mapping[str, float] = types.MappingProxyType({})) -> None:
  """Plots every run's return or score in a panel of a picture.

  Where a label has several runs, they are thin lines and their mean a bold one.

  Args:
    panel: the panel to plot in.
    runs: for each label, the rows of `metrics.csv` of its runs, one per seed. A label
      may have none.
    column: the horizontal axis, one of `AXES`. Rows without a value are left out.
    reference: the informed policy's return, drawn as a line if returns are plotted.
    measure: the column to plot; by default that of `measure_column`.
    lines: further lines of reference, by label.
  """
  measure = measure or measure_column(runs)
  unit, name = AXES[column]
  for i, (label, seeds) in enumerate(runs.items()):
    curves = []
    for rows in seeds:
      rows = [row for row in rows if not math.isnan(row.get(measure, math.nan))]
      curves.append((np.array([row[column] for row in rows]) / unit,
                     np.array([row[measure] for row in rows])))
    several = len(curves) > 1
    for curve in curves:
      point = {'marker': 'o', 'markersize': 4} if len(curve[0]) == 1 else {}
      panel.plot(*curve, **style(i), **point, linewidth=0.7 if several else 1.5,
                 alpha=0.5 if several else 1, label=None if several else label)
    if several:
      panel.plot(*mean_curve(curves), **style(i), linewidth=2.5, label=label)
  if reference is not None and measure == 'return':
    draw_reference(panel, reference)
  draw_references(panel, lines)
  panel.set_xlabel(name)


def steps_column(runs: Dict[str, List[Rows]]) -> str:
  """Returns the column of steps: environment steps online, learner steps offline."""
  first = next((rows[0] for seeds in runs.values() for rows in seeds if rows), {})
  return 'learner_step' if 'environment_steps' not in first else 'environment_steps'


def time_column(runs: Dict[str, List[Rows]]) -> str:
  """Returns the column of time: CPU time of training if all runs have it."""
  first = [rows[0] for seeds in runs.values() for rows in seeds if rows]
  known = first and all('cpu_seconds' in row for row in first)
  return 'cpu_seconds' if known else 'seconds'


def measure_column(runs: Dict[str, List[Rows]]) -> str:
  """Returns the column that ranks runs: the score, the normalized return, or the return."""
  first = next((rows[0] for seeds in runs.values() for rows in seeds if rows), {})
  return next((x for x in ('score', 'normalized') if x in first), 'return')


def return_label(runs: Dict[str, List[Rows]]) -> str:
  """Returns the label of the return, or of the score, in the rows."""
  measure = measure_column(runs)
  if measure == 'normalized':
    return 'return: random 0, source 1'
  each = ' of each task' if measure == 'score' else ''
  return (f'{measure}, mean of the last 100 episodes{each}'
          if steps_column(runs) == 'environment_steps' else f'{measure} in evaluation')


def draw_reference(panel: plt.Axes, value: float, label: str = 'informed policy',
                   number: int = 0) -> None:
  """Draws a line of reference in a style that depends on its `number`."""
  linestyle = _REFERENCE_STYLES[number % len(_REFERENCE_STYLES)]
  panel.axhline(value, color='black', linestyle=linestyle, linewidth=1, label=label)


def draw_references(panel: plt.Axes, lines: Mapping[str, float]) -> None:
  """Draws further lines of reference, by label."""
  for i, (label, value) in enumerate(lines.items(), 1):
    draw_reference(panel, value, label, i)


def pyplot() -> types.ModuleType:
  """Imports matplotlib's pyplot, which takes as long as the rest of the library."""
  import matplotlib  # pylint: disable=import-outside-toplevel
  if 'MPLBACKEND' not in os.environ and 'matplotlib.pyplot' not in sys.modules:
    matplotlib.use('Agg')  # Draws to files only; there may be no screen.
  from matplotlib import pyplot as plt  # pylint: disable=import-outside-toplevel
  return plt


def save(figure: plt.Figure, path: pathlib.Path, title: str, note: str = '') -> None:
  """Writes a picture, with one legend for all panels below them; closes it.

  Args:
    figure: a figure with the layout `constrained`.
    path: the picture to write.
    title: the picture's title.
    note: title of the legend, which explains the lines.
  """
  handles = {}
  for panel in figure.axes:
    panel.grid(alpha=0.3)
    for handle, label in zip(*panel.get_legend_handles_labels()):
      handles.setdefault(label, handle)
  if handles:
    inches = 0.6 + 0.07 * max(map(len, handles))  # A line, and the longest label.
    figure.legend(handles.values(), handles.keys(), loc='outside lower center',
                  ncols=max(1, min(5, int(figure.get_figwidth() / inches))),
                  fontsize='small', title=note, title_fontsize='small')
  figure.suptitle(title)
  # The same runs give the same bytes.
  with pyplot().rc_context({'svg.hashsalt': 'gtrxl_tf'}):
    figure.savefig(path, dpi=120,
                   metadata={'Date': None} if path.suffix == '.svg' else None)
  pyplot().close(figure)


def draw(path: pathlib.Path, runs: Dict[str, List[Rows]], title: str,
         reference: Optional[float] = None,
         more: Sequence[Callable[[plt.Axes], None]] = (),
         lines: Mapping[str, float] = types.MappingProxyType({})) -> None:
  """Draws every run's curve, against steps and against time.

  Args:
    path: the picture to write.
    runs: see `plot`, and for `reference` and `lines`.
    title: the picture's title.
    reference: the informed policy's return.
    more: functions that each plot in a further panel, to the right of the curves.
    lines: further lines of reference.
  """
  figure, panels = pyplot().subplots(
      1, 2 + len(more), figsize=(5.5 * (2 + len(more)), 4.5), layout='constrained')
  panels[1].sharey(panels[0])
  for plot_more, panel in zip(more, panels[2:]):
    plot_more(panel)
  for panel, column in zip(panels, (steps_column(runs), time_column(runs))):
    plot(panel, runs, column, reference, lines=lines)
  panels[0].set_ylabel(return_label(runs))
  several = any(len(seeds) > 1 for seeds in runs.values())
  save(figure, path, title, THIN_AND_BOLD if several else '')
