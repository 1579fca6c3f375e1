"""Pictures and tables of finished comparisons, from their index files.

Values of several runs are summarized by their interquartile mean with a 95 % interval
from a stratified bootstrap, as Agarwal et al. (2021) recommend, by their package rliable.
Tables of success count the runs that succeed: most remember a clue or guess it, and a
mean, or an interquartile mean more so, hides the few that fail.
"""

import functools
import math
import pathlib
import re
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from gtrxl_tf import files
from gtrxl_tf.analysis import comparison
from gtrxl_tf.analysis import comparison_plots
from gtrxl_tf.analysis import run_index
from gtrxl_tf.settings import config
from gtrxl_tf.training import curves

# As in rliable's examples. Its default of 50,000 takes seconds a cell.
_RESAMPLES = 2000

_SUCCEEDS = 0.95  # The share of its episodes in which a run that succeeds does.

_ESTIMATES = ('interquartile mean and 95 % interval (three runs or fewer: mean and range); '
              'small points: runs')

# Columns of `metrics.csv` and their labels.
_TRAINING = {'entropy': "policy's entropy, nats",
             'gradient_norm': 'gradient norm before clipping'}


class Estimate(NamedTuple):
  """An interquartile mean and the bounds of its 95 % interval."""
  mean: float
  low: float
  high: float


@functools.lru_cache(maxsize=None)
def estimate(values: Tuple[float, ...]) -> Estimate:
  """Returns the interquartile mean of runs; the interval of one run is that value."""
  try:
    # pylint: disable=import-outside-toplevel
    from rliable import library
    from rliable import metrics
  except ImportError as error:
    raise config.ConfigError(
        f"{error}: expected the extra `figures`: pip install 'gtrxl_tf[figures]'"
        ) from error
  if len(values) == 1:
    return Estimate(values[0], values[0], values[0])
  state = np.random.get_state()
  np.random.seed(0)  # rliable 1.2 draws from NumPy's global state, whatever its argument.
  try:
    means, intervals = library.get_interval_estimates(
        {'': np.array(values, float)[:, np.newaxis]},
        lambda scores: np.array([metrics.aggregate_iqm(scores)]), reps=_RESAMPLES)
  finally:
    np.random.set_state(state)
  return Estimate(float(means[''][0]), *map(float, intervals[''][:, 0]))


def short_names(models: Sequence[str]) -> Dict[str, str]:
  """Returns models' names without the settings that all of them have.

  These are settings such as a learning rate, of which each model has its own. Names
  stay as they are where two models would have the same, or one would have none.
  """
  parts = [model.split('+') for model in models]
  shared = set.intersection(*({part.partition('=')[0] for part in each if '=' in part}
                              for each in parts))
  short = ['+'.join(part for part in each if part.partition('=')[0] not in shared)
           for each in parts]
  unique = all(short) and len(set(short)) == len(models)
  return dict(zip(models, short if unique else models))


class _Finals(NamedTuple):
  """Final values of models' runs along an axis.

  Attributes:
    measure: what the values are.
    axis: the setting that a sweep varies, or 'task'.
    names: the columns: values of the setting, or names of tasks.
    values: for each model a list for each column, with a value for each run.
    lines: lines of reference: values by label.
  """
  measure: str
  axis: str
  names: Sequence[str]
  values: Mapping[str, Sequence[Sequence[float]]]
  lines: Mapping[str, float]


def _finals(index: run_index.Index, measure: str) -> _Finals:
  """Returns final values by the values of a sweep, or by task without a sweep."""
  models, first = comparison.models_of(index.points), index.points[0]
  if index.setting is not None:
    setting, points = comparison_plots.short_values(index.setting, index.points)
    return _Finals(measure, setting, [point.value for point in points], {
        model: [comparison.finals(point, model, measure) for point in points]
        for model in models}, {})
  if len(first.tasks) > 1:
    measure = comparison.measure_of(first.runs)
    return _Finals(measure, 'task', first.tasks, {
        model: [comparison.finals(first, model, measure, task)
                for task in range(len(first.tasks))] for model in models},
                   first.lines.get(measure, {}))
  return _Finals(measure, '', [''], {
      model: [comparison.finals(first, model, measure)] for model in models}, {})


def table(index: run_index.Index) -> str:
  """Returns a Markdown table with a row for each model.

  It has a column for each point of a sweep, or for each task without a sweep. Where
  policies learn while they act, further tables have the most likely actions and the
  temperature that was chosen.
  """
  each = [_finals(index, measure) for measure in _measures(index)]
  tables = '\n\n'.join(comparison.markdown(_rows(finals)) for finals in each)
  best = ', '.join(sorted({format(point.informed, '.4g') for point in index.points
                           if point.informed is not None}))
  diverged = sum(run.diverged for point in index.points for run in point.runs)
  what = each[0].measure.replace('normalized', 'normalized return')
  caption = [
      f'Runs that succeed in at least {100 * _SUCCEEDS:.0f} % of their episodes, the mean success '
      '± its standard error, and each run, in the order of their seeds.'
      if what == 'success' else
      f'Interquartile mean of the final {what} [95 % interval], and each run, in the order '
      'of their seeds. With three runs or fewer it is the mean, and the interval is from '
      'the worst run to the best.']
  if best and each[0].measure == 'return':
    caption.append(f"The informed policy's is {best}.")
  if diverged:
    caption.append('Runs that diverged, which count as 0, or as their lowest value '
                   f'below 0: {diverged}.')
  drawn = [f'{name} {value}' for name, value in _draws(index.points[0].runs).items()]
  if drawn:
    caption.append(f'Drawn for each seed: {"; ".join(drawn)}.')
  caption.append(f'Code: {index.version}. Command:')
  return f'{tables}\n\n{" ".join(caption)}\n\n    {index.command}\n'


def _draws(runs: Sequence[comparison.Run]) -> Dict[str, str]:
  """Returns each setting's drawn values, by seed; for each model if they differ."""
  draws = {}  # The keys are settings, then models, then seeds.
  texts = {}
  for run in sorted(runs, key=lambda run: run.seed):
    for name, value in run.samples.items():
      draws.setdefault(name, {}).setdefault(run.model, {})[run.seed] = format(value, '.2g')
  for name, models in draws.items():
    merged = {seed: value for drawn in models.values() for seed, value in drawn.items()}
    same = all(drawn.items() <= merged.items() for drawn in models.values())
    texts[name] = ', '.join(merged[seed] for seed in sorted(merged)) if same else ', and '.join(
        f'of {model} {", ".join(drawn.values())}' for model, drawn in models.items())
  return texts


def _measures(index: run_index.Index) -> List[str]:
  """Returns what the runs' final values are; several if they learn while they act."""
  return comparison.normalized_measures(
      [run for point in index.points for run in point.runs]) or [
          comparison.final_measure(index.points)]


def _rows(finals: _Finals) -> List[List[str]]:
  """Returns the cells of a table of final values."""
  if finals.axis:
    equals = '' if '=' in finals.axis else ' ='
    header = [f'{finals.measure}; {finals.axis}{equals}', *finals.names]
  else:
    header = ['model', finals.measure, 'each run']
  rows = [header, ['---'] * len(header)]
  names = short_names(list(finals.values))
  for model, columns in finals.values.items():
    row = [names[model]]
    for values in columns:
      each = ', '.join(format(value, '.3g') for value in values)
      if not values:
        row += ['-'] * (1 if finals.axis else 2)
      elif not finals.axis:
        row += [_cell(values, finals.measure), each]
      else:
        row.append(_cell(values, finals.measure) + f' ({each})' * (len(values) > 1))
    rows.append(row)
  return rows


def _cell(values: Sequence[float], measure: str) -> str:
  if len(values) == 1:
    return format(values[0], '.3g')
  if measure == 'success':
    succeed = sum(value >= _SUCCEEDS for value in values)
    return f'**{succeed} of {len(values)}**; {curves.mean_and_error(values)}'
  mean, low, high = estimate(tuple(values))
  return f'**{mean:.3g}** [{low:.3g}, {high:.3g}]'


def write(path: pathlib.Path) -> List[pathlib.Path]:
  """Writes the table and the pictures of an index file beside it.

  Returns:
    The files. For `NAME.jsonl` these are `NAME.md`, the table; `NAME.png` and
    `NAME.svg`, final values against the values of a sweep or by task, or curves without
    either, or final values by model if runs have no curves; `NAME_curves.png` and
    `.svg`, the curves of a sweep, or of runs with several tasks that were evaluated in
    training; `NAME_training.png` and `.svg`, entropy and gradients of online runs;
    `NAME_progress.png` and `.svg`, curves of a sweep of offline runs over learner steps
    and CPU time; `NAME_ranked.png` and `.svg`, runs by rank, where settings were drawn
    for each run.
  """
  index = run_index.read(path)
  names = short_names(comparison.models_of(index.points))
  points = [point._replace(runs=[run._replace(model=names[run.model])
                                 for run in point.runs]) for point in index.points]
  runs = [run for point in points for run in point.runs]
  finals = _finals(index._replace(points=points), comparison.final_measure(points))
  written = [path.with_suffix('.md')]
  files.write_atomically(written[0], table(index))
  title = path.stem.replace('_', ' ').capitalize()
  for suffix in ('.png', '.svg'):
    main, curve, training, progress, ranked = (
        path.with_name(f'{path.stem}{part}{suffix}')
        for part in ('', '_curves', '_training', '_progress', '_ranked'))
    if finals.axis:
      _draw_finals(main, finals, points, title)
    elif any(_is_curve(run) for run in runs):
      comparison_plots.draw(main, points[0], title)
    else:
      _draw_models(main, index._replace(points=points), title)
    written.append(main)
    if index.setting is not None:
      comparison_plots.draw_sweep(curve, index.setting, points, title)
      written.append(curve)
      if comparison.steps_column(points[0].runs) == 'learner_step':
        comparison_plots.draw_progress(progress, index.setting, points, title)
        written.append(progress)
    elif finals.axis and any(_is_curve(run) for run in runs):
      comparison_plots.draw(curve, points[0], title)
      written.append(curve)
    if all(name in row for run in runs for row in run.metrics[:1] for name in _TRAINING):
      _draw_training(training, points, title)
      written.append(training)
    if any(run.samples for run in runs):
      comparison_plots.draw_ranked(ranked, index.setting, points, title)
      written.append(ranked)
  return written


def _is_curve(run: comparison.Run) -> bool:
  return sum(not math.isnan(row['return']) for row in run.metrics) > 1


def _draw_finals(path: pathlib.Path, finals: _Finals,
                 points: Sequence[comparison.PointRuns], title: str) -> None:
  """Draws each model's interquartile mean and interval in each column."""
  figure, panel = curves.pyplot().subplots(figsize=(8, 5), layout='constrained')
  for i, (model, columns) in enumerate(finals.values.items()):
    places = [place for place, values in enumerate(columns) if values]
    if not places:
      continue  # No run of the model is done.
    estimates = [estimate(tuple(columns[place])) for place in places]
    x = np.array(places) + 0.3 * ((i + 0.5) / len(finals.values) - 0.5)
    mean, low, high = np.array(estimates).T
    style = comparison_plots.across(finals.axis, curves.style(i))
    panel.errorbar(x, mean, [mean - low, high - mean], **style, marker='o',
                   markersize=6, capsize=3, label=model)
    for at, place in zip(x, places):
      panel.plot([at] * len(columns[place]), columns[place], '.', markersize=4,
                 alpha=0.5, color=curves.style(i)['color'])
  panel.set_xticks(range(len(finals.names)), finals.names)
  panel.set_xlabel(finals.axis)
  panel.set_ylabel(f'final {finals.measure}')
  informed = {point.informed for point in points}
  if finals.measure == 'return' and len(informed) == 1 and None not in informed:
    curves.draw_reference(panel, informed.pop())
  curves.draw_references(panel, finals.lines)
  curves.save(figure, path, title, _ESTIMATES)


def _draw_models(path: pathlib.Path, index: run_index.Index, title: str) -> None:
  """Draws final values by model, and learning processes of policies that have them."""
  each = [_finals(index, measure) for measure in _measures(index)]
  point = index.points[0]
  learns = comparison.learns(point.runs)
  models = list(each[0].values)
  figure, panels = curves.pyplot().subplots(
      1, len(each) + learns, figsize=(4 * (1 + len(each) + learns), 2.5 + 0.3 * len(models)),
      squeeze=False, layout='constrained')
  for panel, finals in zip(panels[0], each):
    for i, (model, (values,)) in enumerate(finals.values.items()):
      if not values:
        continue  # No run of the model is done.
      mean, low, high = estimate(tuple(values))
      color = curves.style(i)['color']
      panel.errorbar(mean, i, xerr=[[mean - low], [high - mean]], color=color, marker='o',
                     capsize=3, label=model)
      panel.plot(values, [i] * len(values), '.', markersize=4, alpha=0.5, color=color)
    panel.set_yticks(range(len(models)), models if panel is panels[0, 0] else [])
    panel.invert_yaxis()
    panel.set_xlabel(f'final {finals.measure}')
  if learns:
    comparison_plots.plot_processes(panels[0, -1], point, models)
  curves.save(figure, path, title, _ESTIMATES)


def _draw_training(path: pathlib.Path, points: Sequence[comparison.PointRuns],
                   title: str) -> None:
  """Draws what tells why runs fail: the policy's entropy and the gradient's norm."""
  figure, rows = curves.pyplot().subplots(
      len(_TRAINING), len(points), figsize=(max(4 * len(points) + 1, 8), 6), sharex='col',
      sharey='row', squeeze=False, layout='constrained')
  for row, (measure, label) in zip(rows, _TRAINING.items()):
    for panel, point in zip(row, points):
      known = comparison.metrics_of(point.runs)
      runs = {model: known.get(model, []) for model in comparison.models_of(points)}
      curves.plot(panel, runs, curves.steps_column(runs), measure=measure)
      panel.set_xlabel('' if panel in rows[0] else panel.get_xlabel())
    row[0].set_ylabel(label)
  for panel, point in zip(rows[0], comparison_plots.short_values('', points)[1]):
    panel.set_title(point.value, fontsize='medium')
  rows[-1][0].set_yscale('log')  # All panels of the row share it.
  curves.save(figure, path, title, curves.THIN_AND_BOLD)


def insert_tables(page: pathlib.Path, tables: Dict[str, str]) -> None:
  """Replaces what stands between the marks of a table in a Markdown page.

  Args:
    page: it has `<!-- runs: NAME -->` and, below the table, `<!-- end of runs -->`.
    tables: by NAME.
  """
  def replaced(found: 're.Match') -> str:
    if found[1] not in tables:
      raise config.ConfigError(f'{page} has a mark for the runs {found[1]!r}: expected '
                               f'one of {", ".join(sorted(tables))}')
    return f'<!-- runs: {found[1]} -->\n{tables[found[1]]}<!-- end of runs -->'

  text = page.read_text(encoding='utf-8')
  marks = re.findall('<!-- (runs|end of runs)', text)
  if marks != ['runs', 'end of runs'] * (len(marks) // 2):
    raise config.ConfigError(f'{page}: expected <!-- end of runs --> after each '
                             '<!-- runs: NAME -->, before the next')
  files.write_atomically(page, re.sub(
      r'<!-- runs: *([^\n]+?) *-->.*?<!-- end of runs -->', replaced, text,
      flags=re.DOTALL))
