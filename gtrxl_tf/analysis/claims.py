"""Pages that compare the claims of papers with runs: made from a table and index files.

The table, docs/results/claims.toml, says for each claim what a paper has, the verdict, and
where in docs/runs the numbers are. `{STATISTIC PICK}` in its texts stands for a number of
the runs. A PICK is FILE/PLACE/MODEL or FILE/PLACE/MODEL/MEASURE: an index file of
`gtrxl compare`; a point of its sweep or a task, or `-` where there is only one; a model
with its short name, see `runs.Index.short`; and a measure, by default that of the file.
The statistics are those of `_STATISTICS`.
"""

import functools
import pathlib
import re
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np

from gtrxl_tf.analysis import comparison
from gtrxl_tf.analysis import runs as runs_lib
from gtrxl_tf.settings import config
from gtrxl_tf.training import curves

VERDICTS = ('yes', 'in part', 'no', 'undecided', 'not run')

_SUCCEEDS = 0.95  # The share of its episodes in which a run that succeeds does.
_MEASURES = {'normalized': 'sampled actions', 'greedy_normalized': 'most likely actions',
             'tuned_normalized': 'best temperature', 'return': 'return',
             'success': 'success', 'score': 'score'}


class Claim(NamedTuple):
  """A claim of a paper.

  Attributes:
    page: the page that it is on.
    where: the paper's figure, table or section.
    claim: in a few words; the heading.
    verdict: one of `VERDICTS`.
    sentence: the verdict in a sentence.
    here: the numbers that decide.
    paper: what the paper has, for the overview.
    quote: the paper's words.
    picture: name of a picture.
    runs: names of index files.
    by_hand: how numbers were measured that are in no index file.
    details: more text.
    was: the verdict before it was corrected, and `why` it was.
  """
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
    self._runs = path.parents[1] / 'runs'
    table = tomllib.loads(path.read_text(encoding='utf-8'))
    self.pages: Dict[str, Dict[str, Any]] = table['pages']
    self.models: Dict[str, Tuple[str, str]] = table['models']
    self.pictures: Dict[str, Dict[str, Any]] = table['pictures']
    self._text: Dict[str, str] = table['overview']
    self._words: Dict[str, str] = table['words']
    self._measures: Dict[str, str] = table['measures']
    try:
      self.claims = [Claim(**claim) for claim in table['claims']]
    except TypeError as error:
      raise config.ConfigError(f'{path}: {error}') from error

  @functools.lru_cache(maxsize=None)  # pylint: disable=method-cache-max-size-none
  def index(self, name: str) -> runs_lib.Index:
    return runs_lib.read(self._runs / f'{name}.jsonl').short()

  def series(self, name: str, measure: str = '') -> Iterator[Series]:
    """Yields what an index file has, by place and model."""
    index = self.index(name)
    axis, places = index.places()
    default = places[0].point.measure if axis == 'task' else index.measures[0]
    for place in places:
      for model in index.models:
        if runs := place.point.by_model.get(model):
          yield Series(place, model, runs, measure or self._measures.get(name, default))

  def pick(self, text: str) -> Series:
    """Returns the runs of a pick."""
    name, place, model, *measure = text.split('/')
    found = [each for each in self.series(name, *measure)
             if each.model == model and each.place.name in (place, '' if place == '-' else place)]
    if len(found) != 1:
      raise config.ConfigError(f'{text}: expected FILE/PLACE/MODEL of docs/runs, such as '
                               + ', '.join(f'{name}/{each.place.name or "-"}/{each.model}'
                                           for each in self.series(name)))
    return found[0]

  def fill(self, text: str) -> str:
    """Returns a text with the numbers of its picks."""
    return re.sub(r'\{(\w+) ([^{}]+)\}', lambda found: _STATISTICS[found[1]](
        *map(self.pick, found[2].split())), text)

  def label(self, model: str) -> str:
    """Returns a model's name in words."""
    base, _, settings = model.partition('+')
    name = self.models[base][0]
    return f'{name}, {self._words[settings]}' if settings else name

  def overview(self) -> str:
    """Returns the page of all claims."""
    counts = [['', *VERDICTS], ['---', *['--:'] * len(VERDICTS)]]
    parts = []
    for page, about in self.pages.items():
      claims = [claim for claim in self.claims if claim.page == page]
      counts.append([f'[{about["title"]}](#{about["title"].lower().replace(" ", "-")})', *(
          str(sum(claim.verdict == verdict for claim in claims)) for verdict in VERDICTS)])
      rows = [['verdict', 'claim', 'here', 'paper', 'more'], ['---'] * 5]
      rows += [[claim.verdict, claim.claim, self.fill(claim.here), claim.paper,
                f'[{claim.where}](results/{page}.md#{claim.anchor})'] for claim in claims]
      parts.append(f'## {about["title"]}\n\n![{self.pictures[about["picture"]]["title"]}]'
                   f'(results/{about["picture"]}.png)\n\n{comparison.markdown(rows)}\n')
    papers = [claim for claim in self.claims if not self.pages[claim.page].get('ours')]
    introduction = self._text['introduction'].replace('{claims}', str(len(papers)))
    for verdict in VERDICTS:
      introduction = introduction.replace(
          f'{{{verdict}}}', str(sum(claim.verdict == verdict for claim in papers)))
    changed = [claim for claim in self.claims if claim.was]
    corrections = ''.join(f'- {claim.claim}: {claim.was}, now {claim.verdict}. {claim.why}\n'
                          for claim in changed)
    return '\n'.join([
        f'# Results\n\n{self.fill(introduction).strip()}\n', comparison.markdown(counts) + '\n', *parts, _folded(
            f'{len(changed)} verdicts were corrected', self._text['corrections'].strip()
            + '\n\n' + corrections)])

  def page(self, name: str) -> str:
    """Returns a page with a heading for each of its claims."""
    about, shown = self.pages[name], {}
    parts = [f'# {about["title"]}: claims and runs\n\n{self.fill(about["text"]).strip()}\n']
    for claim in (claim for claim in self.claims if claim.page == name):
      text = [f'## {claim.claim}', f'**{claim.verdict}**, {claim.where}. '
              + self.fill(claim.sentence)]
      if claim.picture:
        text.append(f'![{self.pictures[claim.picture]["title"]}]({claim.picture}.png)')
      more = [f'The paper: {claim.quote}'] if claim.quote else []
      more.append(self.fill(claim.details).strip())
      if claim.by_hand:
        more.append(f'Measured by hand, in no file of `docs/runs`: {claim.by_hand.strip()}')
      for runs in claim.runs:
        more.append(f'`{runs}.jsonl`: see [above](#{shown[runs]}).' if runs in shown
                    else self._every_run(runs))
        shown.setdefault(runs, claim.anchor)
      if more := [each for each in more if each]:
        text.append(_folded('Seeds, command, what differs', '\n\n'.join(more)))
      parts.append('\n\n'.join(text).rstrip() + '\n')
    return '\n'.join(parts)

  def _every_run(self, name: str) -> str:
    """Returns the numbers of all runs of an index file, its version and command."""
    index = self.index(name)
    texts = []
    for measure in (index.measures if len(index.measures) > 1 else ['']):
      series = list(self.series(name, measure))
      places = list(dict.fromkeys(each.place.name for each in series))
      rows = [[_MEASURES.get(series[0].measure, series[0].measure),
               *(self._words.get(place, place) or 'each run' for place in places)],
              ['---'] * (1 + len(places))]
      for model in index.models:
        found = {each.place.name: each for each in series if each.model == model}
        rows.append([self.label(model), *(
            _each(found[place]) if place in found else '-' for place in places)])
      texts.append(comparison.markdown(rows))
    return '\n\n'.join([
        f'`{name}.jsonl`, by seed. Code: {index.version}.', *texts,
        f'```sh\n{index.command}\n```'])


def _folded(summary: str, text: str) -> str:
  return (f'<details markdown="1">\n<summary>{summary}</summary>\n\n{text.strip()}\n\n'
          '</details>\n')


def _spec(values: Sequence[float]) -> str:
  return '.1f' if max(map(abs, values)) >= 10 else '.2f'


def _each(series: Series) -> str:
  return ', '.join(format(x, _spec(series.values)) for x in series.values) or '-'


def _reached(share: float, series: Series) -> str:
  """Returns the steps to a share of the informed return, in thousands, of each run."""
  goal = share * (series.place.point.informed or 1)
  steps = [comparison.first(run, goal, 'environment_steps', 1000) for run in series.runs]
  return ', '.join('-' if x is None else f'{x:.0f}' for x in steps)


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


def share(values: Sequence[float]) -> float:
  """Returns the share of several runs that succeed."""
  return float(np.mean(np.array(values) >= _SUCCEEDS))


def succeed(values: Sequence[float]) -> str:
  """Returns how many of several runs succeed, as in '2 of 3'."""
  return f'{sum(value >= _SUCCEEDS for value in values)} of {len(values)}'
