"""Pictures of runs in words: a dot for each seed, and one colour for each model."""

import pathlib
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np

from gtrxl_tf.analysis import claims
from gtrxl_tf.training import curves

_MARKERS = 'os^Dv'
_LINES = ('-', '--', ':', '-.')


class _Picture:
  """What pictures of all kinds need: the runs, and a style and a label for each model."""

  def __init__(self, book: claims.Book, about: Dict[str, Any], name: str):
    self.about = about
    self.series: List[Tuple[str, claims.Series]] = []
    for file in about.get('runs', [name]):
      file, _, place = file.partition('=')
      self.series += [(place or each.place.name, each)
                      for each in book.series(file, about.get('measure', ''))]
    shown = about.get('models') or list(dict.fromkeys(x.model for _, x in self.series))
    self.series = [x for x in self.series if x[1].model in shown]
    names = list(dict.fromkeys(place for place, _ in self.series))
    # The words of each place; only those that the picture names, if it does.
    self.places: Dict[str, str] = about.get('places') or {x: x for x in names}
    self.models: Dict[str, str] = {
        x: about.get('labels', {}).get(x) or book.label(x) for x in shown}
    self._book = book

  def style(self, model: str) -> Dict[str, Any]:
    """Returns the colour of a model, and a marker and line for its variant."""
    base = model.partition('+')[0]
    variant = [x for x in self.models if x.partition('+')[0] == base].index(model)
    return {'color': self._book.models[base][1], 'marker': _MARKERS[variant % 5],
            'linestyle': _LINES[variant % 4]}

  def values(self, place: str, model: str) -> List[float]:
    return [value for name, each in self.series if (name, each.model) == (place, model)
            for value in each.values]


def draw(book: claims.Book, name: str, path: pathlib.Path) -> None:
  """Draws a picture of the table of claims."""
  about = book.pictures[name]
  picture = _Picture(book, about, name)
  figure = _KINDS[about.get('kind', 'dots')](picture)
  for panel in figure.axes:
    if panel.get_visible():
      panel.spines[['top', 'right']].set_visible(False)
  figure.suptitle(about['title'], fontsize='large')
  figure.savefig(path, dpi=100)
  curves.pyplot().close(figure)


def _legend(figure: Any, handles: Dict[str, Any]) -> None:
  if len(handles) > 1:
    columns = max(1, int(figure.get_figwidth() / (0.7 + 0.09 * max(map(len, handles)))))
    figure.legend(handles.values(), handles.keys(), frameon=False, ncols=columns,
                  loc='outside lower center', markerscale=1.5)


def _dots(picture: _Picture) -> Any:
  """Draws a dot for each run, side by side for the models, and a bar for each mean."""
  about, places = picture.about, list(picture.places)
  if len(places) == 1:
    return _rows(picture, places[0])
  figure, panel = curves.pyplot().subplots(figsize=(8, 4.5), layout='constrained')
  logarithmic = about.get('log', False)
  at = np.log2(np.array(places, float)) if logarithmic else np.arange(len(places))
  width = 0.7 * np.min(np.diff(at)) / len(picture.models)
  handles = {}
  for i, (model, label) in enumerate(picture.models.items()):
    style = picture.style(model)
    for x, place in zip(at + width * (i + 0.5 - len(picture.models) / 2), places):
      values = picture.values(place, model)
      if not values:
        continue
      jitter = width * 0.5 * (np.arange(len(values)) / max(len(values) - 1, 1) - 0.5)
      handles[label], = panel.plot(x + jitter, values, style['marker'], color=style['color'],
                                   markersize=5, alpha=0.75, markeredgewidth=0)
      panel.plot([x - 0.35 * width, x + 0.35 * width], [np.mean(values)] * 2,
                 color=style['color'], linewidth=2)
      if about.get('counts'):
        _count(panel, values, x)
  for x, y in zip(at, at[1:]):
    if not logarithmic:
      panel.axvline((x + y) / 2, color='0.9', linewidth=0.8)
  panel.set_xticks(at, picture.places.values())
  panel.set_xlabel(about.get('x', ''))
  panel.set_ylabel(about['y'])
  if about.get('counts'):
    panel.set_ylim(-0.05, 1.25)
    panel.set_yticks(np.linspace(0, 1, 5))
  _lines(panel, about.get('lines', {}))
  _legend(figure, handles)
  return figure


def _rows(picture: _Picture, place: str) -> Any:
  """Draws a row for each model."""
  figure, panel = curves.pyplot().subplots(
      figsize=(8, 1.6 + 0.36 * len(picture.models)), layout='constrained')
  for i, model in enumerate(picture.models):
    values, style = picture.values(place, model), picture.style(model)
    jitter = np.linspace(-0.15, 0.15, len(values)) if len(values) > 3 else 0
    panel.plot(values, i + np.zeros(len(values)) + jitter, 'o', color=style['color'],
               alpha=0.75, markersize=6, markeredgewidth=0)
    panel.plot([np.mean(values)] * 2, [i - 0.3, i + 0.3], color=style['color'], linewidth=2)
  panel.set_yticks(range(len(picture.models)), picture.models.values())
  panel.invert_yaxis()
  panel.grid(axis='x', alpha=0.3)
  panel.set_xlabel(picture.about['y'])
  _lines(panel, picture.about.get('lines', {}), vertical=True)
  return figure


def _count(panel: Any, values: List[float], x: float) -> None:
  """Writes how many runs succeed above them, in two lines."""
  panel.annotate(claims.succeed(values).replace(' ', '\n', 1), (x, 1.05), ha='center',
                 fontsize='small')


def _lines(panel: Any, lines: Dict[str, float], vertical: bool = False,
           named: bool = True) -> None:
  """Draws lines of reference, each with its name outside of the axes."""
  for label, value in lines.items():
    (panel.axvline if vertical else panel.axhline)(value, color='0.4', linestyle=':', zorder=0)
    if named:
      panel.annotate(label, (value, 1) if vertical else (1.01, value),
                     xycoords=('data', 'axes fraction') if vertical else
                     ('axes fraction', 'data'), ha='center' if vertical else 'left',
                     va='bottom' if vertical else 'center', fontsize='small', color='0.3')


def _counts(picture: _Picture) -> Any:
  """Draws a table of how many runs succeed, and their mean success."""
  models, places = list(picture.models), list(picture.places)
  figure, panel = curves.pyplot().subplots(
      figsize=(3.4 + 1.2 * len(places), 1.3 + 0.34 * len(models)), layout='constrained')
  cells = [[picture.values(place, model) for place in places] for model in models]
  shares = np.array([[claims.share(x) if x else np.nan for x in row] for row in cells])
  panel.pcolormesh(shares, cmap='Blues', vmin=-0.1, vmax=1.4, edgecolors='white', linewidth=2)
  for i, row in enumerate(cells):
    for j, values in enumerate(row):
      if values:
        panel.text(j + 0.5, i + 0.5, f'{claims.succeed(values)}  ({np.mean(values):.2f})',
                   ha='center', va='center', fontsize='small')
  panel.set_xticks(np.arange(len(places)) + 0.5, picture.places.values())
  panel.set_yticks(np.arange(len(models)) + 0.5, picture.models.values())
  panel.tick_params(length=0)
  panel.invert_yaxis()
  panel.spines[:].set_visible(False)
  panel.set_xlabel(f'{picture.about["x"]}; in brackets the mean success')
  return figure


def _panels(picture: _Picture, plot: Callable[[Any, str], None], height: float = 3.6,
            names: Optional[Dict[str, str]] = None) -> Any:
  """Draws a panel for each place, or for each of `names`."""
  names = names or picture.places
  columns = min(len(names), 4)
  rows = -(-len(names) // columns)
  figure, panels = curves.pyplot().subplots(
      rows, columns, figsize=(max(3 * columns, 7), height * rows + 0.6),
      layout='constrained', squeeze=False, sharey=picture.about.get('share', True))
  for panel in panels.flat[len(names):]:
    panel.set_visible(False)
  for i, (panel, (place, title)) in enumerate(zip(panels.flat, names.items())):
    plot(panel, place)
    if len(names) > 1:
      panel.set_title(title, fontsize='medium')
    panel.grid(alpha=0.3)
    _lines(panel, picture.about.get('lines', {}), named=i % columns == columns - 1)
    panel.set_xlabel(picture.about['x'])
    if not i % columns:
      panel.set_ylabel(picture.about['y'])
  handles = {label: handle for panel in panels.flat
             for handle, label in zip(*panel.get_legend_handles_labels())}
  _legend(figure, handles)
  return figure


def _lengths(picture: _Picture) -> Any:
  """Draws a panel for each model, with a dot for each run at each length."""
  def plot(panel: Any, model: str) -> None:
    at = np.log2(np.array(list(picture.places), float))
    for x, place in zip(at, picture.places):
      values = picture.values(place, model)
      panel.plot(x + np.linspace(-0.25, 0.25, len(values)), values, 'o', markersize=5,
                 color=picture.style(model)['color'], alpha=0.75, markeredgewidth=0)
      _count(panel, values, x)
    panel.set_xticks(at, picture.places.values())
    panel.set_ylim(-0.05, 1.25)
    panel.set_yticks(np.linspace(0, 1, 5))
  return _panels(picture, plot, names=picture.models)


def _curves(picture: _Picture) -> Any:
  """Draws a thin line for each run and a bold one for the mean of each model."""
  def plot(panel: Any, place: str) -> None:
    for name, each in picture.series:
      if name == place:
        style = {**picture.style(each.model), 'marker': ''}
        shown = picture.about.get('column') or curves.measure_column(
            each.place.point.metrics)
        lines = []
        for run in each.runs:
          rows = [row for row in run.metrics if not np.isnan(row.get(shown, np.nan))]
          lines.append((np.array([row['environment_steps'] for row in rows]) / 1e6,
                        np.array([row[shown] for row in rows])))
          panel.plot(*lines[-1], **style, linewidth=0.7, alpha=0.45)
        panel.plot(*curves.mean_curve(lines), **style, linewidth=2.2,
                   label=picture.models[each.model])
    if picture.about.get('column') == 'gradient_norm':
      panel.set_yscale('log')
  return _panels(picture, plot)


def _ranked(picture: _Picture) -> Any:
  """Draws the runs of each model by rank."""
  def plot(panel: Any, place: str) -> None:
    for each in (each for name, each in picture.series if name == place):
      values = sorted(each.values, reverse=True)
      panel.plot(range(1, len(values) + 1), values, **picture.style(each.model),
                 markersize=4, label=picture.models[each.model])
  return _panels(picture, plot, 4)


def _processes(picture: _Picture) -> Any:
  """Draws how the return grows over a learning process, of policies and their source."""
  def plot(panel: Any, place: str) -> None:
    source: Any = None
    for each in (each for name, each in picture.series if name == place):
      for i, run in enumerate(each.runs):
        source = run.processes['source']
        panel.plot(run.processes['policy'].steps, run.processes['policy'].mean,
                   color=picture.style(each.model)['color'], linewidth=1, alpha=0.8,
                   label=None if i else picture.models[each.model])
    panel.plot(source.steps, source.mean, color='black', linestyle='--', linewidth=1.2,
               label='the source')
  return _panels(picture, plot, 2.7)


_KINDS: Dict[str, Callable[[_Picture], Any]] = {
    'dots': _dots, 'counts': _counts, 'curves': _curves, 'lengths': _lengths,
    'ranked': _ranked, 'processes': _processes}
