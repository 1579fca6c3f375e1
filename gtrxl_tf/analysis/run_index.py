"""The index of a comparison: all its numbers in one file, without the runs' folders.

The file has one JSON object a line. The first is the comparison: the command, the
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
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np

import gtrxl_tf
from gtrxl_tf import files
from gtrxl_tf.analysis import comparison
from gtrxl_tf.training.offline import history_curves

# Rows of a curve: enough for a picture, and for steps to 90 % within 1 %.
MOST_ROWS = 100

# The columns of `metrics.csv` that are kept, besides scores.
_COLUMNS = (
    'environment_steps', 'learner_step', 'seconds', 'cpu_seconds', 'return', 'success',
    'source_return', 'random_return', 'normalized', 'greedy_return',
    'greedy_normalized', 'temperature', 'tuned_return', 'tuned_normalized', 'loss',
    'entropy', 'gradient_norm')


class Index(NamedTuple):
  """What an index file contains.

  Attributes:
    command: the command that trains these runs.
    version: the version of the code that wrote it.
    setting: the setting that a sweep varies; None without a sweep.
    points: the runs, by points of the sweep.
  """
  command: str
  version: str
  setting: Optional[str]
  points: List[comparison.PointRuns]


@functools.lru_cache(maxsize=None)  # A comparison writes its index after every run.
def version() -> str:
  """Returns the library's version, and its commit where it runs from a git checkout."""
  folder = pathlib.Path(__file__).parents[2]
  found = subprocess.run(
      ['git', '-C', folder, 'describe', '--always', '--dirty', '--abbrev=10'],
      capture_output=True, text=True, check=False,
  ) if (folder / '.git').exists() and shutil.which('git') else None
  commit = found.stdout.strip() if found and not found.returncode else ''
  return f'{gtrxl_tf.__version__} {commit}'.strip()


def write(path: pathlib.Path, index: Index) -> None:
  """Writes an index.

  Curves are thinned to `MOST_ROWS` rows, evaluations to a mean for each task, and
  numbers to five digits. The settings of a run are the lines in which it differs from
  the first run.
  """
  runs = [run for point in index.points for run in point.runs]
  config = _settings(runs[0].config)
  lines = [{**index._asdict(), 'config': config, 'points': [
      {**point._asdict(), 'runs': len(point.runs)} for point in index.points]}]
  for point in index.points:
    columns = {*_COLUMNS, *point.scores}
    for run in point.runs:
      own = _settings(run.config)
      lines.append({
          **run._asdict(), 'point': point.value,
          'metrics': _table([
              {name: row[name] for name in row if name in columns}
              for row in _thinned(run)]),
          'evaluation': _table(_by_task(run.evaluation)),
          'processes': {name: [list(values) for values in curve]
                        for name, curve in run.processes.items()},
          'config': {'without': [line for line in config if line not in own],
                     'with': [line for line in own if line not in config]}})
  files.write_atomically(path, ''.join(
      json.dumps(_rounded(line), allow_nan=False) + '\n' for line in lines))


def read(path: pathlib.Path) -> Index:
  """Reads an index.

  Raises:
    files.DamagedFile: the file is not an index.
  """
  try:
    head, *lines = map(json.loads, path.read_text(encoding='utf-8').splitlines())
    config, runs = head.pop('config'), iter(lines)
    points = [comparison.PointRuns(**{**point, 'runs': [
        _run(next(runs), config, point['value']) for _ in range(point['runs'])]})
              for point in head.pop('points')]
    if more := len(list(runs)):
      raise ValueError(f'it has {more} more lines than the runs that its first line '
                       'counts: expected one comparison a file')
    return Index(points=points, **head)
  except (KeyError, StopIteration, TypeError, ValueError) as error:
    raise files.DamagedFile(
        f'{path} is not an index of runs: {type(error).__name__}: {error}') from error


def _run(line: Dict[str, Any], config: Sequence[str], value: Any) -> comparison.Run:
  """Returns the run of a line, which belongs to the point of a value.

  `config` are the settings of the first run.
  """
  if (point := line.pop('point')) != value:
    raise ValueError(f'a run of {point!r} is where one of {value!r} is expected')
  differs = line['config']
  return comparison.Run(**{
      **line,
      'scores': {name: math.nan if score is None else score
                 for name, score in line['scores'].items()},
      'metrics': _rows(line['metrics']), 'evaluation': _rows(line['evaluation']),
      'processes': {name: history_curves.Curve(*np.array(curve, float))
                    for name, curve in line['processes'].items()},
      'config': '\n'.join([*(x for x in config if x not in differs['without']),
                           *differs['with']])})


def _settings(config: str) -> List[str]:
  """Returns the settings of a config, each with the indented lines of a long value."""
  return re.split(r'\n(?![ \t])', config)


def _thinned(run: comparison.Run) -> List[Dict[str, float]]:
  """Thins the rows of a run to `MOST_ROWS`, evenly spaced, with the first and the last.

  All rows with a return are added if there are at most `MOST_ROWS` of them, as after
  evaluations. Otherwise, if the run diverged, the rows with the lowest return and score
  are added, because these may be the run's results.
  """
  rows = run.metrics
  places = np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).round().astype(int)
  known = [i for i, row in enumerate(rows) if not math.isnan(row['return'])]
  more = known if len(known) <= MOST_ROWS else [] if not run.diverged else [
      min(known, key=lambda i: rows[i].get(name, 0)) for name in ('return', 'score')]
  return [rows[i] for i in sorted({*places, *more})]


def _by_task(rows: Sequence[Dict[str, float]]) -> List[Dict[str, float]]:
  """Returns a row for each task: the means over its episodes."""
  tasks = list(dict.fromkeys(row.get('task', 0.) for row in rows))
  grouped = [[row for row in rows if row.get('task', 0.) == task] for task in tasks]
  return [{'task': task, 'episodes': len(group), **{
      name: float(np.mean([row[name] for row in group]))
      for name in ('return', 'success') if name in group[0]}}
          for task, group in zip(tasks, grouped)]


def _table(rows: Sequence[Dict[str, float]]) -> Dict[str, List[float]]:
  """Returns the columns of rows that have the same names."""
  return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}


def _rows(table: Dict[str, List[Optional[float]]]) -> List[Dict[str, float]]:
  columns = [[math.nan if value is None else float(value) for value in column]
             for column in table.values()]
  return [dict(zip(table, values)) for values in zip(*columns)]


def _rounded(value: Any) -> Any:
  """Returns a nest with five digits of every number, and None for those not finite."""
  if isinstance(value, Mapping):
    return {key: _rounded(item) for key, item in value.items()}
  if isinstance(value, (list, tuple)):
    return [_rounded(item) for item in value]
  if isinstance(value, float):
    if not math.isfinite(value):
      return None
    return int(value) if value.is_integer() else float(f'{value:.5g}')
  return value
