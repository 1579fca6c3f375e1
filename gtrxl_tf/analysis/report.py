"""Reports on runs: one page of HTML with results, curves, films and settings.

The page needs no other file: pictures are within it, and there are no scripts.
"""

import contextlib
import math
import os
import pathlib
import re
import time
from typing import Dict, List, NamedTuple, Optional, Sequence

import gin
import numpy as np
import tree

from gtrxl_tf import environments
from gtrxl_tf import files
from gtrxl_tf.analysis import report_episodes
from gtrxl_tf.analysis import report_page
from gtrxl_tf.analysis import report_pictures
from gtrxl_tf.launch import prepare
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import console
from gtrxl_tf.training import curves
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder
from gtrxl_tf.training.offline import history_curves

# Columns of `metrics.csv` that have a panel, in this order, besides returns.
_COLUMNS = (
    r'success.*', r'score_.*', r'normalized', r'kl_.*_over_bound', r'clip_fraction',
    r'entropy', r'temperature', r'loss', r'(value|policy|td|actor|conservative)_loss',
    r'cross_entropy', r'squared_error', r'accuracy', r'gradient_norm',
    r'(environment|learner)_steps_per_second')
_TITLES = {'kl_(.*)_over_bound': r'KL/bound (\1)', '_per_second': ' per second',
           '_': ' '}
_MOST_PANELS = 12  # The most for one pattern, as for the success in each of many tasks.

_RANDOM_EPISODES = 100


class _Run(NamedTuple):
  """A run, as its folder records it.

  Attributes:
    label: its name, which no other run of the page has.
    text: its `config.gin`.
    environment: the environment's name; empty if the experiment cannot be made here.
    tasks: the names of its tasks.
    informed: the informed policy's return, if there is one.
    random: the return of random actions, if it is known.
    episodes: films as HTML, or what there is to say instead.
  """
  label: str
  folder: run_folder.RunFolder
  text: str
  settings: differences.Settings
  metrics: List[Dict[str, float]]
  environment: str
  tasks: List[str]
  informed: Optional[float]
  random: Optional[float]
  episodes: str


def write(roots: Sequence[str], output: Optional[str] = None, num_episodes: int = 2,
          film: bool = True) -> pathlib.Path:
  """Writes a report on one or more runs; returns its path.

  Args:
    roots: the runs' folders.
    output: the page to write; by default report.html, in the folder of a single run or
      else in the working folder.
    num_episodes: episodes that each run's policy plays for films.
    film: whether to play episodes.
  """
  for root in roots:
    if not run_folder.RunFolder(root).config.exists():
      raise config.ConfigError(
          f'{root} is not the folder of a run: expected one with a config.gin')
  path = pathlib.Path(output or (
      run_folder.RunFolder(roots[0]).report if len(roots) == 1 else 'report.html'))
  if path.is_dir() or not os.access(path.parent, os.W_OK):
    raise config.ConfigError(f'--output={path}: expected a file in a folder that exists '
                             'and can be written')
  runs = [_read(i, label, root, num_episodes if film else 0)
          for i, (label, root) in enumerate(_labels(roots).items())]
  header = ['', *(run.label for run in runs)] if len(runs) > 1 else []
  parts = [report_page.table(header, _facts(runs)),
           '<h2>Results</h2>', _results(runs), '<h2>Curves</h2>', _curves(runs)]
  if film:
    parts.append('<h2>Episodes</h2>')
    for run in runs:
      parts += [f'<h3>{report_page.text(run.label)}</h3>' * (len(runs) > 1), run.episodes]
  parts += ['<h2>Settings</h2>', _settings(runs)]
  title = ', '.join(run.label for run in runs) if len(runs) < 4 else f'{len(runs)} runs'
  files.write_atomically(path, report_page.page(title, parts))
  return path


def _labels(roots: Sequence[str]) -> Dict[str, str]:
  """Returns folders by labels: each run's path, without what all of them share."""
  paths = {os.path.realpath(root): root for root in roots}
  if len(paths) > 1:
    shared = os.path.commonpath(paths)
    return {os.path.relpath(path, shared): root for path, root in paths.items()}
  (path, root), = paths.items()
  names = pathlib.Path(path).parts
  # The model of a comparison is the folder above.
  return {'/'.join(names[-2 if names[-1].startswith('seed_') else -1:]): root}


def _read(number: int, label: str, root: str, num_episodes: int) -> _Run:
  """Reads a run's folder and plays episodes, while gin has the run's settings."""
  folder = run_folder.RunFolder(root)
  metrics = metrics_csv.read_metrics(folder.metrics)
  random, informed, tasks, environment = _last(metrics, 'random_return'), None, [], ''
  gin.clear_config()
  try:
    experiment = prepare.prepare([str(folder.config)], [], check=False)
    environment, tasks = experiment.environment_name, experiment.task_names
    informed = experiment.informed_return()
    if informed is not None and random is None and not experiment.learns_while_acting:
      random = _random_return(experiment)
    episodes = num_episodes and report_episodes.show(
        f'run{number}', experiment, folder, num_episodes)
  except report_episodes.ERRORS as error:
    episodes = report_page.paragraph(
        f'No episodes were played, because the experiment cannot be made here: {error}')
  # The modules of all settings are known now, and with them the defaults.
  try:
    text = folder.config.read_text(encoding='utf-8')
    settings = differences.parse(text)
  except (config.ConfigError, UnicodeDecodeError) as error:
    raise config.ConfigError(f'{folder.config}: {error}') from error
  return _Run(label, folder, text, settings, metrics, environment, tasks, informed,
              random, episodes or '')


def _random_return(experiment: experiment_lib.Experiment) -> float:
  """Returns the mean return of random actions, over equally many episodes per task."""
  environment = experiment.make_evaluation_environments(_RANDOM_EPISODES)
  random = np.random.default_rng(experiment.seed)
  seen, returns = environment.reset(), {}
  while len(returns) < environment.num_environments:
    actions = [environments.random_action(
        experiment.action_spec, tree.map_structure(lambda x, i=i: x[i], seen.observation),
        random) for i in range(environment.num_environments)]
    seen = environment.step(tree.map_structure(lambda *x: np.stack(x), *actions))
    for i in np.flatnonzero(seen.last()):
      returns.setdefault(i, seen.episode_return[i])
  environment.close()
  return float(np.mean(list(returns.values())))


# Facts and results.


def _facts(runs: Sequence[_Run]) -> List[List[str]]:
  """Returns rows of a table with a column for each run; empty rows are left out."""
  columns = [_facts_of(run) for run in runs]
  return [[name, *(facts[name] for facts in columns)] for name in columns[0]
          if any(facts[name] for facts in columns)]


def _facts_of(run: _Run) -> Dict[str, str]:
  folder, last = run.folder, run.metrics[-1] if run.metrics else {}
  stamp = {}
  with contextlib.suppress(files.DamagedFile):  # The run may have no checkpoint.
    stamp = checkpoints.read_stamp(folder.checkpoints)
  ended = 'stopped, or still running'
  marks = {'done': folder.done, 'diverged': folder.diverged}
  for name, mark in marks.items():
    if mark.exists():
      text = mark.read_text(encoding='utf-8').strip()
      ended = f'{name}: {text}' if text else name
  times = [x.stat().st_mtime for x in (*marks.values(), folder.metrics) if x.exists()]

  def setting(pattern: str) -> str:
    names = [x for x in run.settings if re.fullmatch(pattern, x)]
    return run.settings[names[0]].strip('@()') if names else ''

  def count(column: str) -> str:
    return f'{last[column]:,.0f}' if column in last else ''

  return {
      'kind': stamp.get('kind') or setting(r'train\.experiment'),
      'environment': (run.environment
                      or setting(r'Experiment\.environment|.*\.family')),
      'core': setting(r'\w+\.core'),
      'seed': setting(r'Experiment\.seed') or '0',
      'ended': ended,
      'last change': time.strftime('%Y-%m-%d %H:%M %Z', time.localtime(times[0]))
                     if times else '',
      'environment steps': count('environment_steps'),
      'learner steps': count('learner_step'),
      'wall time': console.duration(last['seconds']) if last else '',
      'version': stamp.get('library', ''),
      'folder': str(folder.root),
  }


def _results(runs: Sequence[_Run]) -> str:
  """Returns a table of evaluations: a row for each run and each of several tasks."""
  rows: List[Dict[str, str]] = []
  for run in runs:
    played = metrics_csv.read_metrics(run.folder.evaluation)
    scores = next(iter(metrics_csv.read_metrics(run.folder.scores)), {})
    result = _result(played) if played else {
        'episodes': 'none; last of training',
        **{x: _number(_last(run.metrics, x)) for x in ('return', 'success')}}
    rows.append({
        'run': run.label, **result,
        **{name: f'{value:.1f}' for name, value in scores.items()},
        'informed': _number(run.informed), 'random': _number(run.random),
        'source': _number(_last(run.metrics, 'source_return'))})
    tasks = sorted({int(row['task']) for row in played})
    for task in tasks if len(tasks) > 1 else []:
      name = run.tasks[task] if task < len(run.tasks) else task
      rows.append({'run': f'{run.label}, task {name}',
                   **_result([row for row in played if row['task'] == task])})
  columns = [x for x in dict.fromkeys(y for row in rows for y in row)
             if any(row.get(x) for row in rows)]
  return report_page.table(
      columns, [[row.get(x, '') for x in columns] for row in rows], numbers_from=1)


def _result(played: curves.Rows) -> Dict[str, str]:
  """Returns cells: the number of episodes, the mean return ± its error, the success."""
  returns = [row['return'] for row in played]
  return {'episodes': str(len(returns)), 'return': curves.mean_and_error(returns),
          'success': _number(float(np.mean([row['success'] for row in played])))}


def _last(metrics: curves.Rows, column: str) -> Optional[float]:
  """Returns the last value of a column that is a number; None if there is none."""
  return next((row[column] for row in reversed(metrics)
               if not math.isnan(row.get(column, math.nan))), None)


def _number(value: Optional[float]) -> str:
  return '' if value is None or math.isnan(value) else f'{value:.2f}'


# Curves.


def _curves(runs: Sequence[_Run]) -> str:
  """Draws the return over steps and time, learning processes, and other metrics."""
  rows = {run.label: run.metrics for run in runs if run.metrics}
  if not rows:
    return report_page.paragraph('There are no metrics yet.')
  known = [set(x[0]) for x in rows.values()]
  column = 'environment_steps' if all('environment_steps' in x for x in known) else (
      'learner_step')
  measure = 'score' if all('score' in x for x in known) else 'return'
  informed, random = (_shared(x) if measure == 'return' else None for x in (
      [run.informed for run in runs], [run.random for run in runs]))
  looks = [(report_pictures.line(i), label)
           for i, label in enumerate(rows) if len(rows) > 1]
  looks += [(f'2px {look} currentColor', label) for look, label, value in (
      ('dotted', 'informed policy', informed), ('dashed', 'random actions', random))
            if value is not None]
  large = [report_pictures.curve(
      f'main-{x}', f'{_title(measure)} over {curves.AXES[x][1]}', rows, measure, x,
      informed, {} if random is None else {'random actions': random})
           for x in (column, 'seconds')]
  small = []
  for pattern in _COLUMNS:
    found = sorted({x for y in known for x in y if re.fullmatch(pattern, x)})
    for name in found[:_MOST_PANELS]:
      having = {label: [row for row in x if not math.isnan(row.get(name, math.nan))]
                for label, x in rows.items()}
      if any(having.values()):
        small.append(report_pictures.curve(
            f'small-{name}', _title(name), having, name, column))
  return '\n'.join([
      report_page.legend(looks),
      report_page.figures(large + _learning_processes(runs), 'large'),
      '<h3>Other metrics</h3>', report_page.figures(small)])


def _title(column: str) -> str:
  """Returns a column's name as words, as in `KL/bound (categorical)`."""
  for pattern, replacement in _TITLES.items():
    column = re.sub(pattern, replacement, column)
  return column


def _shared(values: Sequence[Optional[float]]) -> Optional[float]:
  """Returns the mean of values that differ by no more than draws do; else None."""
  if None in values or not np.allclose(values, np.mean(values), rtol=0.1):
    return None
  return float(np.mean(values))


def _learning_processes(runs: Sequence[_Run]) -> List[str]:
  """Draws a panel with the learning processes of policies that learn while they act."""
  found = {run.label: history_curves.read_csv(
      run.folder.learning_process.with_suffix('.csv')) for run in runs}
  found = {label: x for label, x in found.items() if x}
  if not found:
    return []
  first = next(iter(found.values()))
  lines = first if len(found) == 1 else {
      **{label: x['policy'] for label, x in found.items()}, 'source': first['source']}
  return [report_pictures.learning_processes(
      'processes', 'return in learning processes', lines,
      _shared([run.informed for run in runs if run.label in found]))]


# Settings.


def _settings(runs: Sequence[_Run]) -> str:
  """Returns what differs between runs or from the defaults; all settings are folded."""
  if len(runs) == 1:
    run, = runs
    return report_page.folded(
        'Settings that differ from their defaults',
        report_page.table(['setting', 'value'], sorted(run.settings.items())),
        is_open=True) + report_page.folded('All settings (config.gin)', _code(run))
  rows: Dict[str, Dict[str, str]] = {}
  first, *others = runs
  for run in others:
    for found in differences.differences(first.settings, run.settings):
      rows.setdefault(found.name, {})[first.label] = found.here
      rows[found.name][run.label] = found.there
  used = {run.label: differences.names(run.text) for run in runs}
  table = report_page.table(['setting', *(run.label for run in runs)], [
      [name, *(values.get(run.label, values[first.label])
               if name.rpartition('/')[2] in used[run.label] else '' for run in runs)]
      for name, values in sorted(rows.items())])
  return (table if rows else report_page.paragraph('All runs have the same settings.')
          ) + ''.join(report_page.folded(f'All settings of {run.label}', _code(run))
                      for run in runs)


def _code(run: _Run) -> str:
  return f'<pre><code>{report_page.text(run.text)}</code></pre>'
