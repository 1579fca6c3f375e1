"""Tables of the runs of several models on an experiment, seed by seed, in Markdown."""

import statistics
from typing import Callable, List, NamedTuple, Optional, Sequence

from gtrxl_tf.analysis import runs as runs_lib
from gtrxl_tf.training import curves

_LEARNED = 0.9  # The share of the informed policy's return at which a task is learned.

_FINALS = ('Mean ± its standard error, and in brackets the {} of each run after training. A run '
           'that diverged counts as 0, or as its lowest value below 0. -: not evaluated.')


class _Column(NamedTuple):
  title: str
  value: Callable[[runs_lib.Run], Optional[float]]
  format: str = '.2f'
  mean_format: Optional[str] = ''  # If empty, `format`; if None, no mean is shown.
  error: bool = False  # True if the mean is shown with its standard error.


def tables(index: runs_lib.Index) -> str:
  """Returns all tables of a comparison: of each run, of tasks, and of a sweep."""
  texts = [table(point) for point in index.points]
  if index.setting is None:
    return texts[0]
  _, places = index.places()
  measures = sorted(dict.fromkeys(['return', *index.measures]), key=lambda x: x != 'score')
  return '\n'.join(
      [f'## {index.setting} = {point.value}\n\n{text}'
       for point, text in zip(index.points, texts)]
      + [f'## Final {measure} against {index.setting}\n\n'
         + _finals(index, places, measure)
         for measure in measures])


def _finals(index: runs_lib.Index, places: Sequence[runs_lib.Place], measure: str) -> str:
  """Returns a table of final values: a row per place, a column per model."""
  informed = ['informed policy'] * (measure == 'return')
  rows = [[str(index.setting), *index.models, *informed],
          ['--:'] * (1 + len(index.models) + len(informed))]
  rows += [[name, *(_runs_cell(point.by_model.get(model, []), measure)
                    for model in index.models),
            *[_cell(point.informed, '.2f')] * len(informed)] for name, point, _ in places]
  return f'{markdown(rows)}\n\n{_FINALS.format(measure)}\n'


def table(point: runs_lib.Point) -> str:
  """Returns a table with a row for each run and each model's mean.

  The means of returns, successes and scores have their standard error over runs.
  """
  columns = _columns(point)
  rows = [['model', 'seed', *(column.title for column in columns)],
          ['---'] + ['--:'] * (1 + len(columns))]
  for model, runs in point.by_model.items():
    for run in runs:
      rows.append([model, str(run.seed),
                   *(_cell(column.value(run), column.format) for column in columns)])
    rows.append([f'**{model}**', 'mean', *(_mean_cell(runs, column) for column in columns)])
  return f'{markdown(rows)}\n\n{_caption(point)}\n'


def _columns(point: runs_lib.Point) -> List[_Column]:
  """Returns the columns of `table` after model and seed."""
  def final(title, measure, form='.2f', task=None, error=False):
    return _Column(title, lambda run: run.final(measure, task), form, error=error)

  def reported(title, column):
    return _Column(title, lambda run: run.reported(column))

  goal, steps, measure = _goal(point), point.steps, point.measure
  time = curves.time_column(point.metrics)
  minutes = curves.AXES[time][1]
  columns = [
      *(final(name, name, '.1f', error=True) for name in point.scores),
      final('return', 'return', error=True),
      final('success', 'success', error=True) if measure == 'success' else
      _Column('success', lambda run: None)]
  if point.normalized:
    columns += [
        reported("source's return", 'source_return'),
        reported('random return', 'random_return'), final('normalized', 'normalized'),
        reported('greedy return', 'greedy_return'),
        final('greedy normalized', 'greedy_normalized')]
  if 'tuned_normalized' in point.normalized:
    columns += [reported('temperature', 'temperature'),
                reported('return at it', 'tuned_return'),
                final('normalized at it', 'tuned_normalized')]
  if len(point.tasks) > 1:
    columns += [final(f'{measure} {name}', measure, task=task, error=True)
                for task, name in enumerate(point.tasks)]
  columns += [_Column('steps', lambda run: run.last(steps), ',.0f'),
              _Column(minutes, lambda run: run.last(time) / 60, '.1f')]
  if goal is not None:
    columns += [
        _Column(f'steps to {_LEARNED:.0%}', lambda run: first(run, goal, steps), ',.0f'),
        _Column(f'{minutes} to {_LEARNED:.0%}', lambda run: first(run, goal, time, 60),
                '.1f')]
  return [*columns, _Column('diverged', lambda run: float(run.diverged), '.0f', '.0%'), *(
      _Column(name, lambda run, name=name: run.samples.get(name), '.3g', None)
      for name in _sampled(point))]


def _caption(point: runs_lib.Point) -> str:
  """Returns the text below `table`, which explains its columns."""
  steps, goal = point.steps, _goal(point)
  caption = ('Return, success and scores: of the evaluation after training. Steps: of the '
             f'{steps.partition("_")[0]}. -: not reached, or not evaluated. ±: standard '
             'error of the mean over runs.')
  if point.normalized:
    caption += (' Episodes: those in the last fifth of learning processes. Normalized: '
                'the return on a scale where random actions have 0 and the source 1.')
  if 'tuned_normalized' in point.normalized:
    caption += ' Temperature: the best in tasks of training.'
  if goal is not None:
    returns = ('of up to 100 training episodes, the last,' if steps == 'environment_steps'
               else 'in an evaluation')
    caption += (f' To {_LEARNED:.0%}: until the mean return {returns} first is '
                f'{goal:.2f}; the informed policy\'s is {point.informed:.2f}.')
  caption += (' Diverged: 1 if loss or gradient was not finite, and the share of such '
              'runs; their success counts as 0, and their return as 0 or, if it was ever '
              'below 0, as the lowest.')
  names = _sampled(point)
  return caption + f' Drawn by the seed: {", ".join(names)}.' if names else caption


def _goal(point: runs_lib.Point) -> Optional[float]:
  """Returns the mean return at which a task counts as learned; None if not known."""
  return _LEARNED * point.informed if (point.informed or 0) > 0 else None


def _sampled(point: runs_lib.Point) -> List[str]:
  """Returns the names of the settings that were drawn for any of the runs."""
  return list(dict.fromkeys(name for run in point.runs for name in run.samples))


def first(run: runs_lib.Run, goal: float, column: str, unit: float = 1) -> Optional[float]:
  """Returns `column` where the return first reaches `goal`."""
  return next((row[column] / unit for row in run.metrics if row['return'] >= goal), None)


def _cell(value: Optional[float], spec: str) -> str:
  return '-' if value is None else format(value, spec)


def _mean_cell(runs: Sequence[runs_lib.Run], column: _Column) -> str:
  """Returns the mean of the known values, and their number if some are missing."""
  if column.mean_format is None:
    return ''
  spec = column.mean_format or column.format
  known = [value for value in map(column.value, runs) if value is not None]
  if not known:
    return '-'
  cell = (curves.mean_and_error(known, spec) if column.error else
          format(statistics.mean(known), spec))
  return cell + (f' ({len(known)} of {len(runs)})' if len(known) < len(runs) else '')


def _runs_cell(runs: Sequence[runs_lib.Run], measure: str) -> str:
  """Returns the mean of runs' final values, its error, and the value of each run."""
  values = [run.final(measure) for run in runs]
  known = [value for value in values if value is not None]
  each = ', '.join('diverged' if run.diverged else _cell(value, '.2f')
                   for run, value in zip(runs, values))
  return f'{curves.mean_and_error(known)} ({each})' if known else '-'


def markdown(rows: Sequence[Sequence[str]]) -> str:
  """Returns a Markdown table of cells."""
  return '\n'.join('| ' + ' | '.join(row) + ' |' for row in rows)
