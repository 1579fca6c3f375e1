"""Pictures of runs in words: a dot for each seed, and one colour for each model."""

import pathlib
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from gtrxl_tf.analysis import claims
from gtrxl_tf.training import curves

# Markers and lines tell the variants of a model apart.
_MARKERS, _LINES = 'os^Dv', ('-', '--', ':', '-.', '-')
_DOT = {'alpha': 0.75, 'markeredgewidth': 0}


class _Picture:
  """The runs of a picture, with a style and a label for each model."""

  def __init__(self, book: claims.Book, name: str):
    self.about, found = book.pictures[name], []
    self.series: List[Tuple[str, claims.Series]] = found
    for file in self.about.get('runs', [name]):
      file, _, place = file.partition('=')
      found += [(place or x.name, x)
                for x in book.series(file, self.about.get('measure', ''))]
    shown = self.about.get('models') or list(dict.fromkeys(x.model for _, x in found))
    self.places: Dict[str, str] = self.about.get('places') or {x: x for x, _ in found}
    labels = self.about.get('labels', {})
    self.models: Dict[str, str] = {x: labels.get(x) or book.label(x) for x in shown}
    self._colors = {base: color for base, (_, color) in book.models.items()}

  def at(self, place: str) -> List[claims.Series]:
    return [x for name, x in self.series if name == place and x.model in self.models]

  def values(self, place: str, model: str) -> List[float]:
    # Several files may have the same runs.
    return next((x.values for x in self.at(place) if x.model == model), [])

  def style(self, model: str) -> Dict[str, Any]:
    """Returns the colour of a model, and a marker and line for its variant."""
    base = model.partition('+')[0]
    variant = [x for x in self.models if x.partition('+')[0] == base].index(model) % 5
    return {'color': self._colors[base], 'marker': _MARKERS[variant],
            'linestyle': _LINES[variant]}


def draw(book: claims.Book, name: str, path: pathlib.Path) -> None:
  """Draws a picture of the table of claims."""
  picture = _Picture(book, name)
  figure = _KINDS[picture.about.get('kind', 'dots')](picture)
  for panel in figure.axes:
    panel.spines[['top', 'right']].set_visible(False)
  figure.suptitle(picture.about['title'], fontsize='large')
  figure.savefig(path, dpi=100)
  curves.pyplot().close(figure)


def _figure(rows: int, columns: int, size: Tuple[float, float], **options: Any) -> Any:
  return curves.pyplot().subplots(rows, columns, figsize=size, layout='constrained',
                                  squeeze=False, **options)


def _finish(picture: _Picture, figure: Any, panels: Sequence[Any]) -> Any:
  """Adds lines of reference, with names at the right, and a legend of all panels."""
  for label, value in picture.about.get('lines', {}).items():
    for panel in panels:
      panel.axhline(value, color='0.4', linestyle=':', zorder=0)
    panels[-1].annotate(label, (1.01, value), xycoords=('axes fraction', 'data'),
                        va='center', fontsize='small', color='0.3')
  handles = {label: handle for panel in panels
             for handle, label in zip(*panel.get_legend_handles_labels())}
  if len(handles) > 1:
    columns = int(figure.get_figwidth() / (0.7 + 0.09 * max(map(len, handles))))
    figure.legend(handles.values(), handles.keys(), frameon=False, ncols=max(1, columns),
                  loc='outside lower center', markerscale=1.5)
  return figure


def _count(panel: Any, values: List[float], x: float) -> None:
  """Writes how many runs succeed above them, in two lines."""
  panel.annotate(claims.succeed(values).replace(' ', '\n', 1), (x, 1.05), ha='center',
                 fontsize='small')
  panel.set_ylim(-0.05, 1.25)
  panel.set_yticks(np.linspace(0, 1, 5))


def _dots(picture: _Picture) -> Any:
  """Draws a dot for each run, side by side for the models, and a bar for each mean."""
  about, places = picture.about, list(picture.places)
  if len(places) == 1:
    return _rows(picture, places[0])
  figure, ((panel,),) = _figure(1, 1, (8, 4.5))
  at = np.log2(np.array(places, float)) if about.get('log') else np.arange(len(places))
  width = 0.7 * np.min(np.diff(at)) / len(picture.models)
  for i, (model, label) in enumerate(picture.models.items()):
    style: Dict[str, Any] = {**picture.style(model), **_DOT, 'linestyle': ''}
    for x, place in zip(at + width * (i + 0.5 - len(picture.models) / 2), places):
      if values := picture.values(place, model):
        spread = 0.25 * width * np.linspace(-1, 1, len(values))
        panel.plot(x + spread, values, **style, markersize=5, label=label)
        panel.plot([x - 0.35 * width, x + 0.35 * width], [np.mean(values)] * 2,
                   color=style['color'], linewidth=2)
        if about.get('counts'):
          _count(panel, values, x)
  if not about.get('log'):
    for x in at[1:]:
      panel.axvline(x - 0.5, color='0.9', linewidth=0.8)
  panel.set_xticks(at, picture.places.values())
  panel.set_xlabel(about.get('x', ''))
  panel.set_ylabel(about['y'])
  return _finish(picture, figure, [panel])


def _rows(picture: _Picture, place: str) -> Any:
  """Draws a row of dots for each model."""
  figure, ((panel,),) = _figure(1, 1, (8, 1.6 + 0.36 * len(picture.models)))
  for i, model in enumerate(picture.models):
    values, color = picture.values(place, model), picture.style(model)['color']
    spread = 0.15 * np.linspace(-1, 1, len(values)) * (len(values) > 3)
    panel.plot(values, i + spread, 'o', **_DOT, color=color, markersize=6)
    panel.plot([np.mean(values)] * 2, [i - 0.3, i + 0.3], color=color, linewidth=2)
  for label, value in picture.about.get('lines', {}).items():
    panel.axvline(value, color='0.4', linestyle=':', zorder=0)
    panel.annotate(label, (value, 1), xycoords=('data', 'axes fraction'), ha='center',
                   va='bottom', fontsize='small', color='0.3')
  panel.set_yticks(range(len(picture.models)), picture.models.values())
  panel.invert_yaxis()
  panel.grid(axis='x', alpha=0.3)
  panel.set_xlabel(picture.about['y'])
  return figure


def _counts(picture: _Picture) -> Any:
  """Draws a table of how many runs succeed, and their mean success."""
  cells = [[picture.values(place, x) for place in picture.places] for x in picture.models]
  figure, ((panel,),) = _figure(
      1, 1, (3.4 + 1.2 * len(picture.places), 1.3 + 0.34 * len(cells)))
  for i, row in enumerate(cells):
    for j, values in enumerate(row):
      panel.text(j, i, f'{claims.succeed(values)}  ({np.mean(values):.2f})', ha='center',
                 va='center', fontsize='small')
  shares = [[np.mean(np.array(x) >= claims.SUCCEEDS) for x in row] for row in cells]
  panel.imshow(shares, cmap='Blues', vmin=-0.1, vmax=2, aspect='auto')
  panel.set_xticks(range(len(picture.places)), picture.places.values())
  panel.set_yticks(range(len(cells)), picture.models.values())
  panel.set_xlabel(f'{picture.about["x"]}; in brackets the mean success')
  panel.tick_params(length=0)
  panel.spines[:].set_visible(False)
  return figure


def _panels(picture: _Picture, plot: Callable[[Any, str], None], height: float = 3.6,
            names: Optional[Dict[str, str]] = None) -> Any:
  """Draws a panel for each place, or for each of `names`."""
  names = names or picture.places
  columns = min(len(names), 4)
  rows = -(-len(names) // columns)
  figure, panels = _figure(rows, columns, (max(3 * columns, 7), height * rows + 0.6),
                           sharey=picture.about.get('share', True))
  for i, (panel, (name, title)) in enumerate(zip(panels.flat, names.items())):
    plot(panel, name)
    panel.set_title(title * (len(names) > 1), fontsize='medium')
    panel.grid(alpha=0.3)
    panel.set_xlabel(picture.about['x'])
    panel.set_ylabel(picture.about['y'] * (i % columns == 0))
  return _finish(picture, figure, list(panels.flat))


def _lengths(picture: _Picture) -> Any:
  """Draws a panel for each model, with a dot for each run at each length."""
  def plot(panel: Any, model: str) -> None:
    at = np.log2(np.array(list(picture.places), float))
    for x, place in zip(at, picture.places):
      values = picture.values(place, model)
      panel.plot(x + np.linspace(-0.25, 0.25, len(values)), values, 'o', markersize=5,
                 color=picture.style(model)['color'], **_DOT)
      _count(panel, values, x)
    panel.set_xticks(at, picture.places.values())
  return _panels(picture, plot, names=picture.models)


def _curves(picture: _Picture) -> Any:
  """Draws a thin line for each run and a bold one for the mean of each model."""
  def plot(panel: Any, place: str) -> None:
    for x in picture.at(place):
      style = {**picture.style(x.model), 'marker': ''}
      column = picture.about.get('column', 'return')
      lines = [np.array([(row['environment_steps'] / 1e6, row[column]) for row in run.metrics
                         if not np.isnan(row[column])]).T for run in x.runs]
      for line in lines:
        panel.plot(*line, **style, linewidth=0.7, alpha=0.45)
      panel.plot(*curves.mean_curve(lines), **style, linewidth=2.2,
                 label=picture.models[x.model])
  return _panels(picture, plot)


def _ranked(picture: _Picture) -> Any:
  """Draws the runs of each model by rank."""
  def plot(panel: Any, place: str) -> None:
    for x in picture.at(place):
      panel.plot(range(1, len(x.values) + 1), sorted(x.values, reverse=True), markersize=4,
                 **picture.style(x.model), label=picture.models[x.model])
  return _panels(picture, plot, 4)


def _processes(picture: _Picture) -> Any:
  """Draws how the return grows over a learning process, of policies and their source."""
  def plot(panel: Any, place: str) -> None:
    for x in picture.at(place):
      for run in x.runs:
        process, source = run.processes['policy'], run.processes['source']
        panel.plot(process.steps, process.mean, color=picture.style(x.model)['color'],
                   linewidth=1, alpha=0.8, label=picture.models[x.model])
      panel.plot(source.steps, source.mean, 'k--', linewidth=1.2, label='the source')
  return _panels(picture, plot, 2.7)


_KINDS: Dict[str, Callable[[_Picture], Any]] = {
    'dots': _dots, 'counts': _counts, 'lengths': _lengths, 'curves': _curves,
    'ranked': _ranked, 'processes': _processes}
