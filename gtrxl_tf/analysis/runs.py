"""The runs of a comparison, from their folders or from an index of all their numbers.

From the point where a run diverged, its return counts as 0, as in *GTrXL* (Table 3), or
as its lowest one before if that is below 0, so that divergence never counts as good.

An index file has one JSON object a line. The first is the comparison: the command, the
version of the code, the setting that a sweep varies, and the points with their
references. Each other line is a run: its model, seed and settings, its curve, and its
evaluation. Tables and pictures are made from it again by `gtrxl figures`.
"""

import functools
import json
import math
import pathlib
import re
import shutil
import subprocess
import types
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

import gtrxl_tf
from gtrxl_tf import files
from gtrxl_tf.settings import sampling
from gtrxl_tf.training import curves
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder
from gtrxl_tf.training.offline import history_curves

# Rows of a curve: enough for a picture, and for steps to 90 % within 1 %.
MOST_ROWS = 100

_NONE: Mapping[str, Any] = types.MappingProxyType({})

# The measures on the scale from random actions to the source of learning histories.
_NORMALIZED = ('normalized', 'greedy_normalized', 'tuned_normalized')

# The columns of `metrics.csv` that an index keeps, besides scores.
_COLUMNS = (
    'environment_steps', 'learner_step', 'seconds', 'cpu_seconds', 'return', 'success',
    'source_return', 'random_return', 'greedy_return', 'temperature', 'tuned_return', 'loss',
    'entropy', 'gradient_norm', *_NORMALIZED)


class Run(NamedTuple):
  """The run of a model with a seed.

  Attributes:
    metrics: rows of `metrics.csv`; none if the run diverged before the first.
    evaluation: rows of `evaluation.csv`; none if the run is not done, as of `scores`.
    diverged: whether the loss or a gradient was not finite.
    samples: the settings that were drawn for the run.
    processes: curves of `learning_process.csv`, of a policy that learns while it acts.
    config: the run's operative gin config.
  """
  model: str
  seed: int
  metrics: curves.Rows
  evaluation: curves.Rows
  diverged: bool
  samples: Mapping[str, float] = _NONE
  processes: Mapping[str, history_curves.Curve] = _NONE
  scores: Mapping[str, float] = _NONE
  config: str = ''

  def last(self, column: str) -> float:
    """Returns `column` of the last row; 0 if the run diverged before its first row."""
    return self.metrics[-1][column] if self.metrics else 0.

  def floor(self, measure: str) -> float:
    """Returns the value that the run counts as if it diverged."""
    return min([0., *(row[measure] for row in self.metrics if row.get(measure, 0) < 0)])

  def reported(self, column: str) -> Optional[float]:
    """Returns `column` of the last row of a run that is done; None if it is not known."""
    return _mean(self.metrics[-1:], column) if self.evaluation else None

  def final(self, measure: str = 'return', task: Optional[int] = None) -> Optional[float]:
    """Returns the final value in a task, or in all; None if it is not known."""
    if self.diverged:
      return self.floor(measure)
    if measure in _NORMALIZED:
      return self.reported(measure)
    if measure not in ('return', 'success'):
      return _mean([self.scores], measure)
    return _mean([row for row in self.evaluation if task in (None, row.get('task'))], measure)


def _mean(rows: Sequence[Mapping[str, float]], column: str) -> Optional[float]:
  values = [row.get(column, math.nan) for row in rows]
  return None if not values or any(map(math.isnan, values)) else sum(values) / len(values)


class Point(NamedTuple):
  """The runs at one point of a sweep; without a sweep, all runs.

  Attributes:
    value: the value of the setting that the sweep varies.
    informed: the informed policy's return, if there is one.
    tasks: names of the tasks; one empty name if there is only one task.
    scores: names of the experiment's scores. 'score', if it is among them, ranks runs.
    lines: the experiment's `reference_lines`.
  """
  value: str
  runs: Sequence[Run]
  informed: Optional[float]
  tasks: Sequence[str] = ('',)
  scores: Sequence[str] = ()
  lines: Mapping[str, Mapping[str, float]] = _NONE

  @property
  def by_model(self) -> Dict[str, List[Run]]:
    """Each model's runs, in order."""
    grouped: Dict[str, List[Run]] = {}
    for run in self.runs:
      grouped.setdefault(run.model, []).append(run)
    return grouped

  @property
  def metrics(self) -> Dict[str, List[curves.Rows]]:
    """The metrics of each model's runs."""
    return {model: [run.metrics for run in seeds] for model, seeds in self.by_model.items()}

  @property
  def steps(self) -> str:
    """The column of steps, see `curves.steps_column`."""
    return curves.steps_column(self.metrics)

  @property
  def measure(self) -> str:
    """The measure of a task: 'success', or 'return' if there is no success."""
    unknown = any(math.isnan(row['success']) for run in self.runs for row in run.evaluation)
    return 'return' if unknown else 'success'

  @property
  def normalized(self) -> List[str]:
    """The measures on the scale from random actions to a source, if runs have these."""
    return [name for name in _NORMALIZED
            if any(name in row for run in self.runs for row in run.metrics[-1:])]

  def finals(self, model: str, measure: str, task: Optional[int] = None) -> List[float]:
    """Returns the known values of a measure at the end of a model's runs."""
    values = [run.final(measure, task) for run in self.by_model.get(model, [])]
    return [value for value in values if value is not None]


class Place(NamedTuple):
  """One of the places at which final values are compared: a point, or a task in it."""
  name: str
  point: Point
  task: Optional[int] = None


class Index(NamedTuple):
  """All runs of a comparison.

  Attributes:
    setting: the setting that a sweep varies; None without a sweep.
    points: the runs, by points of the sweep; one without a sweep.
  """
  command: str
  version: str
  setting: Optional[str]
  points: List[Point]

  @property
  def runs(self) -> List[Run]:
    return [run for point in self.points for run in point.runs]

  @property
  def models(self) -> List[str]:
    """The names of all models, in order."""
    return list(dict.fromkeys(run.model for run in self.runs))

  @property
  def measures(self) -> List[str]:
    """The measures of final values; several if policies learn while they act."""
    if names := [name for name in _NORMALIZED
                 if any(name in point.normalized for point in self.points)]:
      return names
    return ['score' if all('score' in point.scores for point in self.points) else 'return']

  def places(self) -> Tuple[str, List[Place]]:
    """Returns the axis of final values, and the places along it.

    The axis is the setting of a sweep or, without one, 'task' or ''.
    """
    if self.setting is not None:
      return self.setting, [Place(point.value, point) for point in self.points]
    point, = self.points
    if len(point.tasks) == 1:
      return '', [Place('', point)]
    return 'task', [Place(name, point, task) for task, name in enumerate(point.tasks)]


def read_folder(folder: run_folder.RunFolder, model: str = '', seed: int = 0) -> Run:
  """Reads the files that a run has written so far."""
  config = folder.config.read_text(encoding='utf-8') if folder.config.exists() else ''
  return Run(
      model, seed, metrics_csv.read_metrics(folder.metrics),
      metrics_csv.read_metrics(folder.evaluation), folder.diverged.exists(),
      sampling.samples(config),
      history_curves.read_csv(folder.learning_process.with_suffix('.csv')),
      next(iter(metrics_csv.read_metrics(folder.scores)), {}), config)


@functools.lru_cache(maxsize=None)  # A comparison writes its index after every run.
def version() -> str:
  """Returns the library's version, and its commit where it runs from a git checkout."""
  folder, commit = pathlib.Path(__file__).parents[2], ''
  if (folder / '.git').exists() and shutil.which('git'):
    commit = subprocess.run(
        ['git', '-C', folder, 'describe', '--always', '--dirty', '--abbrev=10'],
        capture_output=True, text=True, check=False).stdout
  return f'{gtrxl_tf.__version__} {commit}'.strip()


def write(path: pathlib.Path, index: Index) -> None:
  """Writes an index.

  Curves are thinned to `MOST_ROWS` rows, evaluations to a mean for each task, and
  numbers to five digits. The settings of a run are the lines in which it differs from
  the first run.
  """
  config = _settings(index.runs[0].config)
  lines = [{**index._asdict(), 'config': config, 'points': [
      {**point._asdict(), 'runs': len(point.runs)} for point in index.points]}]
  for point in index.points:
    columns = {*_COLUMNS, *point.scores}
    for run in point.runs:
      own = _settings(run.config)
      lines.append({
          **run._asdict(), 'point': point.value,
          'metrics': _table([{name: row[name] for name in row if name in columns}
                             for row in _thinned(run)]),
          'evaluation': _table(_by_task(run.evaluation)),
          'config': {'without': [line for line in config if line not in own],
                     'with': [line for line in own if line not in config]}})
  files.write_atomically(path, ''.join(
      json.dumps(_rounded(line), allow_nan=False) + '\n' for line in lines))


def read(path: pathlib.Path) -> Index:
  """Reads an index; it raises a `files.DamagedFile` if the file is none."""
  try:
    head, *lines = map(json.loads, path.read_text(encoding='utf-8').splitlines())
    config, points = head.pop('config'), head.pop('points')
    runs = [(line.pop('point'), _run(line, config)) for line in lines]
    return Index(**head, points=[
        Point(**{**point, 'runs': [run for value, run in runs if value == point['value']]})
        for point in points])
  except (KeyError, TypeError, ValueError) as error:
    raise files.DamagedFile(
        f'{path} is not an index of runs: {type(error).__name__}: {error}') from error


def _run(line: Dict[str, Any], config: Sequence[str]) -> Run:
  """Returns the run of a line; `config` are the settings of the first run."""
  differs = line['config']
  return Run(**{
      **line, 'scores': dict(zip(line['scores'], _numbers(line['scores'].values()))),
      'metrics': _rows(line['metrics']), 'evaluation': _rows(line['evaluation']),
      'processes': {name: history_curves.Curve(*np.array(curve, float))
                    for name, curve in line['processes'].items()},
      'config': '\n'.join([*(x for x in config if x not in differs['without']),
                           *differs['with']])})


def _settings(config: str) -> List[str]:
  """Returns the settings of a config, each with the indented lines of a long value."""
  return re.split(r'\n(?![ \t])', config)


def _thinned(run: Run) -> curves.Rows:
  """Returns `MOST_ROWS` rows, evenly spaced, and those that a table may need."""
  rows = run.metrics
  places = np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).round().astype(int)
  known = [i for i, row in enumerate(rows) if not math.isnan(row['return'])]
  # All evaluations, if they are few; otherwise, what a run that diverged counts as.
  more = known if len(known) <= MOST_ROWS else [] if not run.diverged else [
      min(known, key=lambda i: rows[i].get(name, 0)) for name in ('return', 'score')]
  return [rows[i] for i in sorted({*places, *more})]


def _by_task(rows: curves.Rows) -> curves.Rows:
  """Returns a row for each task: how many episodes it has, and the means over them."""
  tasks = list(dict.fromkeys(row.get('task', 0.) for row in rows))
  grouped = [[row for row in rows if row.get('task', 0.) == task] for task in tasks]
  return [{'task': task, 'episodes': sum(row.get('episodes', 1) for row in group), **{
      name: float(np.mean([row[name] for row in group]))
      for name in ('return', 'success') if name in group[0]}}
          for task, group in zip(tasks, grouped)]


def _table(rows: curves.Rows) -> Dict[str, List[float]]:
  """Returns the columns of rows that have the same names."""
  return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}


def _rows(table: Dict[str, List[Optional[float]]]) -> List[Dict[str, float]]:
  return [dict(zip(table, values)) for values in zip(*map(_numbers, table.values()))]


def _numbers(values: Iterable[Optional[float]]) -> List[float]:
  return [math.nan if value is None else float(value) for value in values]


def _rounded(value: Any) -> Any:
  """Returns a nest with five digits of every number, and None for those not finite."""
  if isinstance(value, Mapping):
    return {key: _rounded(item) for key, item in value.items()}
  if isinstance(value, (list, tuple, np.ndarray)):
    return [_rounded(item) for item in value]
  if isinstance(value, float):
    if not math.isfinite(value):
      return None
    return int(value) if value.is_integer() else float(f'{value:.5g}')
  return value
