"""Tables that compare the runs of several models on an experiment, seed by seed.

From the point where a run diverged, its return counts as 0, as in *GTrXL* (Table 3), or
as its lowest one before if that is below 0, so that divergence never counts as good.
"""

import math
import statistics
import types
from typing import Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

from gtrxl_tf.training import curves
from gtrxl_tf.training.offline import history_curves

# A task counts as learned at this share of the informed policy's return.
_LEARNED = 0.9


class Run(NamedTuple):
  """The run of a model with a seed.

  Attributes:
    model: name of the model.
    seed: the run's seed.
    metrics: rows of `metrics.csv`; none if the run diverged before the first.
    evaluation: rows of `evaluation.csv`; none if the run is not done.
    diverged: whether the loss or a gradient was not finite.
    samples: the settings that were drawn for the run.
    processes: curves of `learning_process.csv`; none if the run's policy does not learn
      while it acts.
    scores: the scores of the evaluation; none if the experiment has no score, or the
      run is not done.
    config: the run's operative gin config.
  """
  model: str
  seed: int
  metrics: curves.Rows
  evaluation: curves.Rows
  diverged: bool
  samples: Mapping[str, float]
  processes: Mapping[str, history_curves.Curve] = types.MappingProxyType({})
  scores: Mapping[str, float] = types.MappingProxyType({})
  config: str = ''


class PointRuns(NamedTuple):
  """The runs at one point of a sweep; without a sweep, all runs.

  Attributes:
    value: the value of the setting that the sweep varies.
    runs: the runs of all models.
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
  lines: Mapping[str, Mapping[str, float]] = types.MappingProxyType({})


class _Column(NamedTuple):
  title: str
  value: Callable[[Run], Optional[float]]
  format: str
  mean_format: Optional[str]  # None: no mean is shown.
  error: bool = False  # True if the mean is shown with its standard error.


def tables(setting: Optional[str], points: Sequence[PointRuns]) -> str:
  """Returns all Markdown tables of a comparison.

  Args:
    setting: the setting that a sweep varies; None without a sweep.
    points: the points of the sweep; one without a sweep.
  """
  texts = []
  for point in points:
    text = table(point)
    texts.append(f'{text}\n{task_table(point)}' if len(point.tasks) > 1 else text)
  if setting is None:
    return texts[0]
  measures = [*(['score'] if all('score' in point.scores for point in points) else []),
              'return',
              *normalized_measures([run for point in points for run in point.runs])]
  return '\n'.join(
      [f'## {setting} = {point.value}\n\n{text}' for point, text in zip(points, texts)]
      + [f'## Final {measure} against {setting}\n\n'
         f'{sweep_table(setting, points, measure)}' for measure in measures])


def table(point: PointRuns) -> str:
  """Returns a Markdown table with a row for each run and each model's mean.

  The means of returns, successes and scores have their standard error over runs.
  """
  columns = _columns(point)
  rows = [['model', 'seed', *(column.title for column in columns)],
          ['---'] + ['--:'] * (1 + len(columns))]
  for model, seeds in group_by_model(point.runs).items():
    values = [[column.value(run) for column in columns] for run in seeds]
    for run, row in zip(seeds, values):
      rows.append([model, str(run.seed), *(
          '-' if value is None else format(value, column.format)
          for column, value in zip(columns, row))])
    rows.append([f'**{model}**', 'mean', *(
        '' if column.mean_format is None
        else _mean_cell(column_values, column.mean_format, column.error)
        for column, column_values in zip(columns, zip(*values)))])
  return f'{markdown(rows)}\n\n{_caption(point)}\n'


def _columns(point: PointRuns) -> List[_Column]:
  """Returns the columns of `table` after model and seed."""
  runs, goal = point.runs, _goal(point)
  steps, measure = steps_column(runs), measure_of(runs)
  time = curves.time_column(metrics_of(runs))
  minutes = curves.AXES[time][1]

  def column(title: str, value: Callable[[Run], Optional[float]], form: str) -> _Column:
    return _Column(title, value, form, form)

  columns = [
      column(name, lambda run, name=name: _final(run, name), '.1f')
      for name in point.scores]
  columns += [
      column('return', _final, '.2f'),
      column('success', lambda run: (
          _final(run, 'success') if measure == 'success' else None), '.2f')]
  columns = [shown._replace(error=True) for shown in columns]
  if learns(runs):
    columns += [
        column("source's return", lambda run: _found(run, 'source_return'), '.2f'),
        column('random return', lambda run: _found(run, 'random_return'), '.2f'),
        column('normalized', lambda run: _final(run, 'normalized'), '.2f'),
        column('greedy return', lambda run: _found(run, 'greedy_return'), '.2f'),
        column('greedy normalized',
               lambda run: _final(run, 'greedy_normalized'), '.2f')]
  if 'tuned_normalized' in normalized_measures(runs):
    columns += [
        column('temperature', lambda run: _found(run, 'temperature'), '.2f'),
        column('return at it', lambda run: _found(run, 'tuned_return'), '.2f'),
        column('normalized at it',
               lambda run: _final(run, 'tuned_normalized'), '.2f')]
  if len(point.tasks) > 1:
    columns += [column(f'{measure} {name}',
                       lambda run, task=task: _final(run, measure, task), '.2f')
                for task, name in enumerate(point.tasks)]
  columns += [
      column('steps', lambda run: last(run, steps), ',.0f'),
      column(minutes, lambda run: last(run, time) / 60, '.1f')]
  if goal is not None:
    columns += [
        column(f'steps to {_LEARNED:.0%}',
               lambda run: _first(run, goal, steps), ',.0f'),
        column(f'{minutes} to {_LEARNED:.0%}',
               lambda run: _first(run, goal, time, 60), '.1f')]
  columns.append(
      _Column('diverged', lambda run: float(run.diverged), '.0f', '.0%'))
  return columns + [
      _Column(name, lambda run, name=name: run.samples.get(name), '.3g', None)
      for name in _sampled(runs)]


def _caption(point: PointRuns) -> str:
  """Returns the text below `table`, which explains its columns."""
  steps, goal = steps_column(point.runs), _goal(point)
  caption = ('Return and success: means over the episodes of the evaluation after '
             f'training. Steps: of the {steps.partition("_")[0]}. -: not reached, or '
             'not evaluated. ±: standard error of the mean over runs.')
  if point.scores:
    caption = (f'{", ".join(point.scores)}: `Experiment.score` of the mean return of '
               f'each task in the evaluation after training. {caption}')
  if learns(point.runs):
    caption += (' Episodes: those in the last fifth of learning processes. Normalized: '
                'the return on a scale where random actions have 0 and the source 1.')
  if 'tuned_normalized' in normalized_measures(point.runs):
    caption += ' Temperature: the best in tasks of training.'
  if goal is not None:
    returns = ('of up to 100 training episodes, the last,' if steps == 'environment_steps'
               else 'in an evaluation')
    caption += (f' To {_LEARNED:.0%}: until the mean return {returns} first is '
                f'{goal:.2f}; the informed policy\'s is {point.informed:.2f}.')
  caption += (' Diverged: 1 if loss or gradient was not finite, and the share of such '
              'runs; their success counts as 0, and their return as 0 or, if it was ever '
              'below 0, as the lowest.')
  names = _sampled(point.runs)
  return caption + f' Drawn by the seed: {", ".join(names)}.' if names else caption


def _goal(point: PointRuns) -> Optional[float]:
  """Returns the mean return at which a task counts as learned; None if not known."""
  return _LEARNED * point.informed if (point.informed or 0) > 0 else None


def _sampled(runs: Sequence[Run]) -> List[str]:
  """Returns the names of the settings that were drawn for any of the runs."""
  return list(dict.fromkeys(name for run in runs for name in run.samples))


def task_table(point: PointRuns) -> str:
  """Returns a Markdown table of final values: a row per task, a column per model.

  The values are successes, or returns if the environment has no success.
  """
  measure = measure_of(point.runs)
  by_model = group_by_model(point.runs)
  rows = [[f'{measure} in task', *by_model], ['--:'] * (1 + len(by_model))]
  for task, name in enumerate(point.tasks):
    rows.append([name, *(_finals_cell(runs, measure, task)
                         for runs in by_model.values())])
  return f'{markdown(rows)}\n\n{_finals_caption(measure)}\n'


def learns(runs: Sequence[Run]) -> bool:
  """Returns whether runs were compared with a source by their learning processes."""
  return bool(normalized_measures(runs))


def normalized_measures(runs: Sequence[Run]) -> List[str]:
  """Returns which measures the runs have on the scale from random actions to source."""
  names = ['normalized', 'greedy_normalized', 'tuned_normalized']
  return [name for name in names
          if any(name in row for run in runs for row in run.metrics[-1:])]


def sweep_table(setting: str, points: Sequence[PointRuns], measure: str = 'return'
                ) -> str:
  """Returns a Markdown table of final values: a row per value, a column per model.

  Args:
    setting: the setting that the sweep varies.
    points: the points of the sweep.
    measure: 'return', 'score', or one of `normalized_measures`.
  """
  models = models_of(points)
  rows = [[setting, *models, 'informed policy'], ['--:'] * (2 + len(models))]
  for point in points:
    seeds = group_by_model(point.runs)
    rows.append([
        point.value,
        *(_finals_cell(seeds.get(model, []), measure) for model in models),
        '-' if point.informed is None else format(point.informed, '.2f')])
  if measure != 'return':
    rows = [row[:-1] for row in rows]
  return f'{markdown(rows)}\n\n{_finals_caption(measure)}\n'


def ranked(runs: Sequence[Run], steps: float) -> List[float]:
  """Returns the returns or scores of runs at one point of their training, best first.

  Args:
    runs: the runs to rank. Those that have not reached the point, or had not finished
      an episode by then, are left out.
    steps: the point in environment steps, or in learner steps if runs count only these.
  """
  returns = []
  column, measure = steps_column(runs), curves.measure_column(metrics_of(runs))
  for run in runs:
    reached = last(run, column)
    if run.diverged and reached <= steps:
      returns.append(floor(run, measure))
    # The last row of a run that is done is a few learner steps from its end.
    elif run.evaluation or reached >= steps:
      returns += [row[measure] for row in run.metrics if row[column] <= steps
                  and not math.isnan(row.get(measure, math.nan))][-1:]
  return sorted(returns, reverse=True)


def models_of(points: Sequence[PointRuns]) -> List[str]:
  """Returns the names of all models, in order."""
  return list(dict.fromkeys(run.model for point in points for run in point.runs))


def group_by_model(runs: Sequence[Run]) -> Dict[str, List[Run]]:
  """Returns each model's runs, in order."""
  grouped = {}
  for run in runs:
    grouped.setdefault(run.model, []).append(run)
  return grouped


def metrics_of(runs: Sequence[Run]) -> Dict[str, List[curves.Rows]]:
  """Returns the metrics of each model's runs."""
  return {model: [run.metrics for run in seeds]
          for model, seeds in group_by_model(runs).items()}


def steps_column(runs: Sequence[Run]) -> str:
  """Returns the column of steps, see `curves.steps_column`."""
  return curves.steps_column(metrics_of(runs))


def last(run: Run, column: str) -> float:
  """Returns `column` of the last row; 0 if the run diverged before its first row."""
  return run.metrics[-1][column] if run.metrics else 0.


def floor(run: Run, measure: str) -> float:
  """Returns what a diverged run counts as: 0, or its lowest value if that is below."""
  return min([0., *(row[measure] for row in run.metrics if row.get(measure, 0) < 0)])


def measure_of(runs: Sequence[Run]) -> str:
  """Returns the measure of a task: 'success', or 'return' if there is no success."""
  unknown = any(math.isnan(row['success']) for run in runs for row in run.evaluation)
  return 'return' if unknown else 'success'


def _final(run: Run, measure: str = 'return', task: Optional[int] = None
           ) -> Optional[float]:
  """Returns the final value of a run in a task, or in all; None if it is not known."""
  if run.diverged:
    return floor(run, measure)
  if measure.endswith('normalized'):
    return _found(run, measure)
  if measure not in ('return', 'success'):
    return _mean([run.scores], measure) if measure in run.scores else None
  rows = [row for row in run.evaluation if task in (None, row.get('task'))]
  return _mean(rows, measure)


def _found(run: Run, column: str) -> Optional[float]:
  """Returns `column` of the evaluation after training; None if it is not known."""
  return _mean(run.metrics[-1:], column) if run.evaluation else None


def finals(point: PointRuns, model: str, measure: str,
           task: Optional[int] = None) -> List[float]:
  """Returns the known values of a measure at the end of a model's runs."""
  return _known(_final(run, measure, task)
                for run in group_by_model(point.runs).get(model, []))


def _known(values: Iterable[Optional[float]]) -> List[float]:
  return [value for value in values if value is not None]


def final_measure(points: Sequence[PointRuns]) -> str:
  """Returns what final values are compared by: 'normalized', 'score' or 'return'."""
  if all(learns(point.runs) for point in points):
    return 'normalized'
  return 'score' if all('score' in point.scores for point in points) else 'return'


def _mean(rows: curves.Rows, column: str) -> Optional[float]:
  values = [row.get(column, math.nan) for row in rows]
  if not values or any(map(math.isnan, values)):
    return None
  return sum(values) / len(values)


def _first(run: Run, goal: float, column: str, unit: float = 1) -> Optional[float]:
  """Returns `column` where the return first reaches `goal`."""
  return next((row[column] / unit for row in run.metrics if row['return'] >= goal),
              None)


def _mean_cell(values: Sequence[Optional[float]], spec: str, error: bool) -> str:
  """Returns the mean of the known values, and their number if some are missing."""
  known = _known(values)
  if not known:
    return '-'
  cell = (curves.mean_and_error(known, spec) if error else
          format(statistics.mean(known), spec))
  missing = f' ({len(known)} of {len(values)})' if len(known) < len(values) else ''
  return cell + missing


def _finals_cell(runs: Sequence[Run], measure: str, task: Optional[int] = None) -> str:
  """Returns the mean of runs' final values, its error, and the value of each run."""
  values = [_final(run, measure, task) for run in runs]
  each = ', '.join(
      'diverged' if run.diverged else '-' if value is None else format(value, '.2f')
      for run, value in zip(runs, values))
  known = _known(values)
  return f'{curves.mean_and_error(known)} ({each})' if known else '-'


def _finals_caption(measure: str) -> str:
  return (f'Mean over the runs ± its standard error, and in brackets the {measure} of '
          'each in the evaluation after training, in the order of their seeds. A run '
          'that diverged counts as 0, or as its lowest value below 0. -: not evaluated, '
          'and not in the mean.')


def markdown(rows: Sequence[Sequence[str]]) -> str:
  """Returns a Markdown table of cells."""
  return '\n'.join('| ' + ' | '.join(row) + ' |' for row in rows)
