"""Pages that compare the claims of papers with runs: made from a table and index files.

The head of the table, docs/results/claims.toml, explains it. `{STATISTIC PICK}` in its
texts stands for a number of the runs. A PICK is FILE/PLACE/MODEL or
FILE/PLACE/MODEL/MEASURE: an index file in docs/runs; a point of its sweep or a task, or
`-` where there is only one; a model, without its learning rate unless that tells it from
another; and a measure, by default that of the file. `_STATISTICS` has the statistics.
"""

import functools
import pathlib
import re
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence

import numpy as np

from gtrxl_tf.analysis import comparison
from gtrxl_tf.analysis import runs as runs_lib
from gtrxl_tf.settings import config
from gtrxl_tf.training import curves

VERDICTS = ('yes', 'in part', 'no', 'undecided', 'not run')

SUCCEEDS = 0.95  # The share of its episodes in which a run that succeeds does.


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
    """The anchor that GitHub and mkdocs make of the heading."""
    return re.sub(r'[^\w -]', '', self.claim.lower()).replace(' ', '-')


class Series(NamedTuple):
  """The runs of a model at a place, in the order of their seeds."""
  place: runs_lib.Place
  name: str  # The names of place and model in the table of claims.
  model: str
  runs: List[runs_lib.Run]
  measure: str

  @property
  def values(self) -> List[float]:
    known = (run.final(self.measure, self.place.task) for run in self.runs)
    return [value for value in known if value is not None]


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
    return self.models[base][0] + (f', {self._words[settings]}' if settings else '')

  def _image(self, name: str, folder: str = '') -> str:
    return f'![{self.pictures[name]["title"]}]({folder}{name}.png)'

  def texts(self) -> Dict[pathlib.Path, str]:
    """Returns all pages: results.md above the table of claims, and those beside it."""
    return {self._path.parents[1] / 'results.md': self._overview(),
            **{self._path.with_name(f'{page}.md'): self._page(page) for page in self.pages}}

  def _overview(self) -> str:
    """Returns the page of all claims."""
    counts = [['', *VERDICTS], ['---', *['--:'] * len(VERDICTS)]]
    parts, papers = [], dict.fromkeys(VERDICTS, 0)
    for page, about in self.pages.items():
      title, claims = about['title'], [x for x in self.claims if x.page == page]
      count = {x: sum(claim.verdict == x for claim in claims) for x in VERDICTS}
      counts.append([f'[{title}](#{title.lower().replace(" ", "-")})',
                     *map(str, count.values())])
      if not about.get('ours'):
        papers = {x: papers[x] + count[x] for x in VERDICTS}
      rows = [['verdict', 'claim', 'here', 'paper', 'more'], ['---'] * 5]
      rows += [[x.verdict, x.claim, self.fill(x.here), x.paper,
                f'[{x.where}](results/{page}.md#{x.anchor})'] for x in claims]
      parts += [f'## {title}', self._image(about['picture'], 'results/'),
                comparison.markdown(rows)]
    introduction = self._text['introduction'].replace('{claims}', str(sum(papers.values())))
    for verdict, number in papers.items():
      introduction = introduction.replace(f'{{{verdict}}}', str(number))
    changed = [f'- {x.claim}: {x.was}, now {x.verdict}. {x.why}' for x in self.claims if x.was]
    parts.append(_folded(f'{len(changed)} verdicts were corrected',
                         self._text['corrections'] + '\n' + '\n'.join(changed)))
    return '\n\n'.join(['# Results', introduction.strip(), comparison.markdown(counts), *parts]) + '\n'

  def _page(self, name: str) -> str:
    """Returns a page with a heading for each of its claims."""
    about, shown = self.pages[name], {}
    parts = [f'# {about["title"]}: claims and runs', self.fill(about['text'])]
    for claim in (x for x in self.claims if x.page == name):
      more = [f'The paper: {claim.quote}'] * bool(claim.quote) + [self.fill(claim.details)]
      if claim.by_hand:
        more.append(f'Measured by hand, in no file of `docs/runs`: {claim.by_hand.strip()}')
      for file in claim.runs:
        more.append(f'`{file}.jsonl`: see [above](#{shown[file]}).' if file in shown
                    else self._every_run(file))
        shown.setdefault(file, claim.anchor)
      at = shown.setdefault(f'{claim.picture}.png', claim.anchor)
      parts += [f'## {claim.claim}',
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


def _each(series: Series) -> str:
  return ', '.join(format(x, _spec(series.values)) for x in series.values) or '-'


def _reached(share: float, series: Series) -> str:
  """Returns the steps to a share of the informed return, in thousands, of each run."""
  goal = share * (series.place.point.informed or 1)
  steps = [comparison.first(run, goal, 'environment_steps', 1000) for run in series.runs]
  return ', '.join('-' if x is None else f'{x:.0f}' for x in steps)


def succeed(values: Sequence[float]) -> str:
  """Returns how many of several runs succeed, as in '2 of 3'."""
  return f'{sum(value >= SUCCEEDS for value in values)} of {len(values)}'


_STATISTICS: Dict[str, Callable[..., str]] = {
    'mean': lambda a: curves.mean_and_error(a.values, _spec(a.values)),
    'average': lambda a: format(np.mean(a.values), _spec(a.values)),
    'each': _each,
    'count': lambda a: succeed(a.values),
    'ahead': lambda a, b: f'{np.sum(np.array(a.values) > b.values)} of {len(a.values)}',
    'ratio': lambda a, b: format(np.mean(a.values) / np.mean(b.values), '.2f'),
    'reached': functools.partial(_reached, 0.9),
    'half': functools.partial(_reached, 0.5),
}
