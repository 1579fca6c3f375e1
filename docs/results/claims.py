"""Makes docs/results.md, the pages beside this file and their pictures: `make figures`.

They show the claims in claims.toml, whose head explains it, with numbers from the index
files of `gtrxl compare` in docs/runs. `{STATISTIC PICK}` in the table's
texts stands for a number of the runs. A PICK is FILE/PLACE/MODEL or
FILE/PLACE/MODEL/MEASURE: an index file in docs/runs; a point of its sweep or a task, or
`-` for all of them; a model, without its learning rate unless that tells it from
another; and a measure, by default that of the file. `_STATISTICS` has the statistics.
"""

import functools
import pathlib
import re
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from gtrxl_tf import files
from gtrxl_tf.analysis import comparison
from gtrxl_tf.analysis import runs as runs_lib
from gtrxl_tf.settings import config
from gtrxl_tf.training import curves

# Verdicts, and how tables show them.
VERDICTS = {'yes': '✓ yes', 'in part': '◐ in part', 'no': '✗ no', 'undecided': '? undecided',
            'not run': '– not run'}

_SUCCEEDS = 0.95  # The share of its episodes in which a run that succeeds does.

# Markers and lines tell the variants of a model apart.
_MARKERS, _LINES = 'os^Dv', ('-', '--', ':', '-.', '-')
_DOT = {'alpha': 0.75, 'markeredgewidth': 0}


class Claim(NamedTuple):
  """A claim of a paper; docs/results/claims.toml says what each field is."""
  page: str
  where: str
  claim: str
  verdict: str
  sentence: str
  here: str = '-'
  paper: str = '-'
  quote: str = ''
  picture: str = ''
  runs: Sequence[str] = ()
  by_hand: str = ''
  details: str = ''
  was: str = ''
  why: str = ''

  @property
  def anchor(self) -> str:
    """The name of its place on its page; that of its heading is too long for a table."""
    return re.sub(r'[^\w -]', '', self.where.lower()).replace(' ', '-')


class Series(NamedTuple):
  """The runs of a model at a place, in the order of their seeds."""
  place: runs_lib.Place
  name: str  # The names of place and model in the table of claims.
  model: str
  runs: List[runs_lib.Run]
  measure: str

  @property
  def values(self) -> List[float]:
    return self.place.point.finals(self.runs[0].model, self.measure, self.place.task)


class Book:
  """The table of claims and the index files that it names."""

  def __init__(self, path: pathlib.Path):
    import tomllib  # pylint: disable=import-outside-toplevel  # Since Python 3.11.
    self._path = path
    table = tomllib.loads(path.read_text(encoding='utf-8'))
    self.pages: Dict[str, Dict[str, Any]] = table['pages']
    self.models: Dict[str, List[str]] = table['models']
    self.pictures: Dict[str, Dict[str, Any]] = table['pictures']
    self._text: Dict[str, str] = table['overview']
    self._words: Dict[str, str] = table['words']
    self._measures: Dict[str, str] = table['measures']
    try:
      self.claims = [Claim(**claim) for claim in table['claims']]
    except TypeError as error:
      raise config.ConfigError(f'{path}: {error}') from error

  @functools.lru_cache(maxsize=None)  # pylint: disable=method-cache-max-size-none
  def _index(self, name: str) -> runs_lib.Index:
    return runs_lib.read(self._path.parents[1] / f'runs/{name}.jsonl')

  def series(self, name: str, measure: str = '') -> Iterator[Series]:
    """Yields what an index file has, by place and model."""
    index = self._index(name)
    axis, places = index.places()
    default = places[0].point.measure if axis == 'task' else index.measures[0]
    short = [re.sub(r'\+learning_rate=[^+]+', '', model) for model in index.models]
    for place in places:
      for model, x in zip(index.models, short):
        if runs := place.point.by_model.get(model):
          yield Series(place, place.name.strip('"') or '-', x if short.count(x) == 1 else model,
                       runs, measure or self._measures.get(name, default))

  def _pick(self, text: str) -> Series:
    name, place, model, *measure = text.split('/')
    found = {(x.name, x.model): x for x in self.series(name, *measure)}
    found.update({('-', x.model): x._replace(name='-', place=x.place._replace(task=None))
                  for x in found.values() if x.place.task is not None})
    if (place, model) not in found:
      raise config.ConfigError(f'{text}: expected one of ' + ', '.join(
          f'{name}/{"/".join(each)}' for each in found))
    return found[place, model]

  def fill(self, text: str) -> str:
    """Returns a text with the numbers of its picks."""
    return re.sub(r'\{(\w+)\s+([^{}]+)\}', lambda found: _STATISTICS[found[1]](
        *map(self._pick, found[2].split())), text.strip())

  def label(self, model: str) -> str:
    """Returns a model's name in words."""
    base, _, settings = model.partition('+')
    words = [self._words[settings]] if settings in self._words else [
        self._words[setting] for setting in settings.split('+') if setting]
    return ', '.join([self.models[base][0], *words])

  def _image(self, name: str, folder: str = '') -> str:
    return f'![{self.pictures[name]["title"]}]({folder}{name}.png)'

  def texts(self) -> Dict[pathlib.Path, str]:
    """Returns all pages: results.md above the table of claims, and those beside it."""
    return {self._path.parents[1] / 'results.md': self._overview(),
            **{self._path.with_name(f'{page}.md'): self._page(page) for page in self.pages}}

  def _overview(self) -> str:
    """Returns the page of all claims."""
    counts = [['', *VERDICTS.values()], ['---', *['--:'] * len(VERDICTS)]]
    parts, papers = [], dict.fromkeys(VERDICTS, 0)
    for page, about in self.pages.items():
      title, claims = about['title'], [x for x in self.claims if x.page == page]
      count = {x: sum(claim.verdict == x for claim in claims) for x in VERDICTS}
      counts.append([f'[{title}](#{title.lower().replace(" ", "-")})',
                     *map(str, count.values())])
      if not about.get('ours'):
        papers = {x: papers[x] + count[x] for x in VERDICTS}
      rows = [['verdict', 'claim', 'here', 'paper', 'where'], ['---'] * 5]
      rows += [[VERDICTS[x.verdict], f'[{x.claim}](results/{page}.md#{x.anchor})',
                self.fill(x.here), x.paper, x.where] for x in claims]
      if about.get('ours'):
        rows = [row[:3] for row in rows]
      parts += [f'## {title}', about['words'].strip(),
                self._image(about['picture'], 'results/'), comparison.markdown(rows)]
    introduction = self._text['introduction'].replace('{claims}', str(sum(papers.values())))
    for verdict, number in papers.items():
      introduction = introduction.replace(f'{{{verdict}}}', str(number))
    changed = [f'- {x.claim}: {x.was}, now {x.verdict}. {x.why}' for x in self.claims if x.was]
    parts += ['## Corrected verdicts', _folded(
        f'{len(changed)} verdicts changed',
        self._text['corrections'] + '\n' + '\n'.join(changed))]
    return '\n\n'.join(['# Results', introduction.strip(), comparison.markdown(counts), *parts]) + '\n'

  def _page(self, name: str) -> str:
    """Returns a page with a heading for each of its claims."""
    about, shown = self.pages[name], {}
    parts = [f'# {about["title"]}: claims and runs', self.fill(about['text'])]
    for claim in (x for x in self.claims if x.page == name):
      more = [f'The paper: {claim.quote}'] * bool(claim.quote) + [self.fill(claim.details)]
      if claim.by_hand:
        more.append(f'Measured apart from `docs/runs`: {claim.by_hand.strip()}')
      for file in claim.runs:
        more.append(f'`{file}.jsonl`: see [above](#{shown[file]}).' if file in shown
                    else self._every_run(file))
        shown.setdefault(file, claim.anchor)
      at = shown.setdefault(f'{claim.picture}.png', claim.anchor)
      parts += [f'<a id="{claim.anchor}"></a>', f'## {claim.claim}',
                f'**{claim.verdict}**, {claim.where}. {self.fill(claim.sentence)}',
                '' if not claim.picture else self._image(claim.picture)
                if at == claim.anchor else f'The picture is [above](#{at}).',
                _folded('Seeds, command, what differs', '\n\n'.join(filter(None, more)))]
    return '\n\n'.join(filter(None, parts)) + '\n'

  def _every_run(self, name: str) -> str:
    """Returns the numbers of all runs of an index file, its version and command."""
    index = self._index(name)
    texts = [f'`{name}.jsonl`, by seed. Code: {index.version}.']
    for measure in (index.measures if len(index.measures) > 1 else ['']):
      cells = {(x.model, x.name): x for x in self.series(name, measure)}
      models, places = (list(dict.fromkeys(each)) for each in zip(*cells))
      first = next(iter(cells.values())).measure
      rows = [[self._words.get(first, first),
               *('each run' if x == '-' else self._words.get(x, x) for x in places)],
              ['---'] * (1 + len(places))]
      rows += [[self.label(model), *(_each(cells[model, place]) if (model, place) in cells
                                     else '-' for place in places)] for model in models]
      texts.append(comparison.markdown(rows))
    return '\n\n'.join([*texts, f'```sh\n{index.command}\n```'])


def _folded(summary: str, text: str) -> str:
  """Returns a text below a line that unfolds it; nothing for no text."""
  return text and (f'<details markdown="1">\n<summary>{summary}</summary>\n\n'
                   f'{text.strip()}\n\n</details>')


def _spec(values: Sequence[float]) -> str:
  return '.1f' if max(map(abs, values)) >= 10 else '.2f'


def _mean(values: Sequence[float]) -> str:
  return curves.mean_and_error(values, _spec(values))


def _each(series: Series) -> str:
  return ', '.join(format(x, _spec(series.values)) for x in series.values) or '-'


def _reached(share: float, series: Series) -> str:
  """Returns the steps to a share of the informed return, in thousands, of each run."""
  goal = share * (series.place.point.informed or 1)
  steps = [comparison.first(run, goal, 'environment_steps', 1000) for run in series.runs]
  return ', '.join('-' if x is None else f'{x:.0f}' for x in steps)


def _rises(series: Series) -> int:
  """Counts the runs whose learning process returns more in its last tenth than just before."""
  policy = 'tuned' if series.measure == 'tuned_normalized' else 'policy'
  means = [np.array(run.processes[policy].mean) for run in series.runs]
  return sum(x[-len(x) // 10:].mean() > x[-3 * len(x) // 10:-len(x) // 10].mean()
             for x in means)


def _succeed(values: Sequence[float]) -> str:
  """Returns how many of several runs succeed, as in '2 of 3'."""
  return f'{sum(value >= _SUCCEEDS for value in values)} of {len(values)}'


_STATISTICS: Dict[str, Callable[..., str]] = {
    'mean': lambda a: _mean(a.values),
    'average': lambda a: format(np.mean(a.values), _spec(a.values)),
    'peak': lambda a: _mean([np.nanmax([row['return'] for row in run.metrics])
                             for run in a.runs]),
    'each': _each,
    'count': lambda a: _succeed(a.values),
    'ahead': lambda a, b: f'{np.sum(np.array(a.values) > b.values)} of {len(a.values)}',
    'ratio': lambda a, b: format(np.mean(a.values) / np.mean(b.values), '.2f'),
    'rises': lambda *a: f'{sum(map(_rises, a))} of {sum(len(x.runs) for x in a)}',
    'reached': functools.partial(_reached, 0.9),
    'half': functools.partial(_reached, 0.5),
}


# Pictures: a dot for each seed, and one colour for each model.


class _Picture:
  """The runs of a picture, with a style and a label for each model."""

  def __init__(self, book: Book, name: str):
    self.about = book.pictures[name]
    self.series: List[Series] = []
    for file in self.about.get('runs', [name]):
      file, _, place = file.partition('=')
      self.series += [x._replace(name=place or x.name)
                      for x in book.series(file, self.about.get('measure', ''))]
    shown = self.about.get('models') or list(dict.fromkeys(x.model for x in self.series))
    self.places: Dict[str, str] = self.about.get('places') or {
        x.name: x.name for x in self.series}
    labels = self.about.get('labels', {})
    # A setting of all models tells none from another.
    shared = set.intersection(*(set(x.split('+')[1:]) for x in shown)) if shown[1:] else set()
    self.models: Dict[str, str] = {
        x: labels.get(x) or book.label('+'.join(y for y in x.split('+') if y not in shared))
        for x in shown}
    self._colors = {base: color for base, (_, color) in book.models.items()}

  def at(self, place: str) -> List[Series]:
    return [x for x in self.series if x.name == place and x.model in self.models]

  def values(self, place: str, model: str) -> List[float]:
    # Several files may have the same runs.
    return next((x.values for x in self.at(place) if x.model == model), [])

  def style(self, model: str) -> Dict[str, Any]:
    """Returns the colour of a model, and a marker and line for its variant."""
    base = model.partition('+')[0]
    variant = [x for x in self.models if x.partition('+')[0] == base].index(model) % 5
    return {'color': self._colors[base], 'marker': _MARKERS[variant],
            'linestyle': _LINES[variant]}


def draw(book: Book, name: str, path: pathlib.Path) -> None:
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
  panel.annotate(_succeed(values).replace(' ', '\n', 1), (x, 1.05), ha='center',
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
      panel.text(j, i, f'{_succeed(values)}  ({np.mean(values):.2f})', ha='center',
                 va='center', fontsize='small')
  shares = [[np.mean(np.array(x) >= _SUCCEEDS) for x in row] for row in cells]
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


def main() -> None:
  """Makes the pages and the pictures."""
  table = pathlib.Path(__file__).with_suffix('.toml')
  book = Book(table)
  for page, text in book.texts().items():
    files.write_atomically(page, text)
    print(page)
  for name in book.pictures:
    draw(book, name, table.with_name(f'{name}.png'))


if __name__ == '__main__':
  main()
