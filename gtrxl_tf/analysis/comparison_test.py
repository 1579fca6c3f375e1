"""Tests of comparison.py, and of what runs.py tells about runs."""

import math
import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from gtrxl_tf.analysis import comparison
from gtrxl_tf.analysis import runs as runs_lib
from gtrxl_tf.training import curves
from gtrxl_tf.training.offline import history_curves


def _run(model, seed, returns, evaluation=(), success=1., diverged=False, samples=None):
  """A run with a row every 1000 environment steps and every minute."""
  return runs_lib.Run(
      model, seed,
      [{'environment_steps': 1000. * i, 'seconds': 60. * i, 'return': value}
       for i, value in enumerate(returns, 1)],
      [{'return': value, 'success': success} for value in evaluation],
      diverged, samples or {})


def _index(*points, setting=None):
  return runs_lib.Index('command', 'version', setting, list(points))


def _ranked(runs, steps):
  """The ranks of runs of one model."""
  return comparison.ranked(runs_lib.Point('', runs, None), runs[0].model, steps)


def _cells(markdown, number=0):
  """The rows of a table in a text, each by the titles of the columns."""
  tables = [part for part in markdown.split('\n\n') if part.startswith('|')]
  lines = tables[number].splitlines()
  header, _, *rows = [line[2:-2].split(' | ') for line in lines]
  return [dict(zip(header, row)) for row in rows]


class TableTest(absltest.TestCase):

  def _rows(self, runs, informed=10.):
    """Cells of the table, by model and seed, or model and `mean`."""
    return {(row['model'].strip('*'), row['seed']): row
            for row in _cells(comparison.table(
                runs_lib.Point('', runs, informed)))}

  def test_a_row_has_final_values_and_when_a_run_had_learned(self):
    rows = self._rows([_run('gtrxl', 0, [math.nan, 2, 8.9, 9, 8, 9.5], [9, 10])])
    self.assertEqual(rows['gtrxl', '0'], {
        'model': 'gtrxl', 'seed': '0', 'return': '9.50', 'success': '1.00',
        'steps': '6,000', 'minutes': '6.0', 'steps to 90%': '4,000',
        'minutes to 90%': '4.0', 'diverged': '0'})

  def test_a_model_has_the_mean_of_its_seeds(self):
    rows = self._rows([_run('gtrxl', 0, [9], [8]), _run('lstm', 0, [1], [1]),
                       _run('gtrxl', 1, [1, 2, 9], [9])])
    self.assertEqual(rows['gtrxl', 'mean']['return'], '8.50 ± 0.50')
    self.assertEqual(rows['gtrxl', 'mean']['steps to 90%'], '2,000')
    self.assertEqual(rows['lstm', 'mean']['return'], '1.00')

  def test_a_mean_says_how_many_seeds_it_leaves_out(self):
    rows = self._rows([_run('gtrxl', 0, [1, 9], [9]), _run('gtrxl', 1, [1, 2])])
    self.assertEqual(rows['gtrxl', '1']['return'], '-')
    self.assertEqual(rows['gtrxl', '1']['steps to 90%'], '-')
    self.assertEqual(rows['gtrxl', 'mean']['return'], '9.00 (1 of 2)')
    self.assertEqual(rows['gtrxl', 'mean']['minutes to 90%'], '2.0 (1 of 2)')

  def test_a_run_that_diverged_counts_as_0_and_is_counted(self):
    rows = self._rows([
        _run('trxl_i', 0, [1, 9], [9]), _run('trxl_i', 1, [1, 9.5], diverged=True),
        _run('trxl_i', 2, [], diverged=True), _run('trxl_i', 3, [1, 3], [3])])
    self.assertEqual(rows['trxl_i', '1']['return'], '0.00')
    self.assertEqual(rows['trxl_i', '1']['success'], '0.00')
    self.assertEqual(rows['trxl_i', '1']['diverged'], '1')
    self.assertEqual(rows['trxl_i', '2']['steps'], '0')
    self.assertEqual(rows['trxl_i', 'mean']['return'], '3.00 ± 2.12')
    self.assertEqual(rows['trxl_i', 'mean']['diverged'], '50%')

  def test_shows_what_each_run_has_drawn(self):
    rows = self._rows([
        _run('gtrxl', 0, [1], [1], samples={'epsilon_alpha': 0.0123456}),
        _run('lstm', 0, [1], [1],
             samples={'epsilon_alpha': 2e-5, 'learning_rate': 1e-4})])
    self.assertEqual(rows['gtrxl', '0']['epsilon_alpha'], '0.0123')
    self.assertEqual(rows['gtrxl', '0']['learning_rate'], '-')
    self.assertEqual(rows['gtrxl', 'mean']['epsilon_alpha'], '')
    self.assertEqual(rows['lstm', '0']['epsilon_alpha'], '2e-05')
    self.assertEqual(rows['lstm', '0']['learning_rate'], '0.0001')


def _offline_run(model, seed, successes, diverged=False):
  """A run evaluated on two tasks, with its share of successes in each."""
  return runs_lib.Run(
      model, seed,
      [{'learner_step': 400. * i, 'seconds': 60. * i, 'return': value}
       for i, value in enumerate([math.nan, 0.5, math.nan, 0.95], 1)],
      [{'return': -1., 'success': success, 'task': task}
       for task, share in enumerate(successes) for success in (0., 2 * share)],
      diverged, {})


class OfflineTest(absltest.TestCase):
  """Steps are the learner's, rows may have no return, and there are several tasks."""

  def setUp(self):
    super().setUp()
    self.point = runs_lib.Point('', [
        _offline_run('rate', 0, [1, 0.9]), _offline_run('rate', 1, [1, 0.5]),
        _offline_run('dt', 0, [0.8, 0.4]), _offline_run('dt', 1, [], diverged=True)],
                                      1., ['28', '298'])

  def test_table_shows_the_success_of_each_task(self):
    row = _cells(comparison.table(self.point))[0]
    self.assertEqual(row, {
        'model': 'rate', 'seed': '0', 'return': '-1.00', 'success': '0.95',
        'success 28': '1.00', 'success 298': '0.90', 'steps': '1,600', 'minutes': '4.0',
        'steps to 90%': '1,600', 'minutes to 90%': '4.0', 'diverged': '0'})


def _learning_run(model, seed, returns, source, tuned=None):
  """A run that is evaluated by a learning process of two parts."""
  def curve(last):
    return history_curves.Curve(
        np.array([10., 20.]), np.array([math.nan, last]), np.array([math.nan, 0.1]))

  random = 0. if source > 0 else -28.
  return runs_lib.Run(
      model, seed,
      [{'learner_step': 400., 'seconds': 60., 'cpu_seconds': 90., 'return': returns,
        'source_return': source, 'random_return': random,
        'normalized': history_curves.normalized(returns, random, source),
        'greedy_return': -18., 'greedy_normalized': 0.5,
        **({} if tuned is None else {
            'temperature': 0.25, 'tuned_return': -9., 'tuned_normalized': tuned})}],
      [{'return': returns, 'success': 0.5}], False, {},
      {'policy': curve(returns), 'source': curve(source)})


class LearningTest(absltest.TestCase):

  def test_table_has_the_scale_from_random_play_to_the_source(self):
    runs = [_learning_run('ed', 0, -20., -8.), _learning_run('ed', 1, -10., -8.),
            runs_lib.Run('ed', 2, [], [], True, {})]
    table = comparison.table(runs_lib.Point('', runs, -6.))
    self.assertIn('Normalized: the return on a scale where random actions', table)
    rows = _cells(table)
    self.assertEqual(
        [[row["source's return"], row['normalized'], row['greedy normalized']]
         for row in rows],
        [['-8.00', '0.40', '0.50'], ['-8.00', '0.90', '0.50'], ['-', '0.00', '0.00'],
         ['-8.00 (2 of 3)', '0.43', '0.33']])
    self.assertEqual([rows[0]['random return'], rows[0]['greedy return']],
                     ['-28.00', '-18.00'])
    self.assertEqual([row['CPU minutes of training'] for row in rows], ['1.5', '1.5', '0.0', '1.0'])
    self.assertNotIn('temperature', rows[0])
    # If returns are costs, there is no goal of 90 %.
    self.assertNotIn('steps to 90%', rows[0])
    text = comparison.tables(_index(runs_lib.Point('2', runs, -6.), setting='x'))
    self.assertEqual(
        _cells(text, 2), [{'x': '2', 'ed': '0.43 ± 0.26 (0.40, 0.90, diverged)'}])

  def test_table_has_the_temperature_that_was_chosen_and_the_return_at_it(self):
    runs = [_learning_run('ed', 0, -20., -8., 0.75),
            _learning_run('ed', 1, -10., -8., 0.25)]
    point = runs_lib.Point('2', runs, -6.)
    rows = _cells(comparison.table(point))
    self.assertEqual(
        [[row[name] for name in ('temperature', 'return at it', 'normalized at it')]
         for row in rows],
        [['0.25', '-9.00', '0.75'], ['0.25', '-9.00', '0.25'],
         ['0.25', '-9.00', '0.50']])
    text = comparison.tables(_index(point, setting='x'))
    for title, cell in (
        ('normalized', '0.65 ± 0.25 (0.40, 0.90)'),
        ('greedy_normalized', '0.50 ± 0.00 (0.50, 0.50)'),
        ('tuned_normalized', '0.50 ± 0.25 (0.75, 0.25)')):
      self.assertIn(
          f'## Final {title} against x\n\n| x | ed |\n| --: | --: |\n| 2 | {cell} |',
          text)


def _scored_run(model, seed, scores, diverged=False):
  """A run whose returns and scores rank in opposite order."""
  score, capped = scores
  return runs_lib.Run(
      model, seed,
      [{'environment_steps': 1000. * i, 'seconds': 60. * i, 'return': 200 - score,
        'score': score * i / 2, 'score_capped': capped * i / 2} for i in (1, 2)],
      [] if diverged else [{'return': 200 - score, 'success': math.nan, 'task': 0}],
      diverged, {}, scores={} if diverged else dict(score=score, score_capped=capped))


_SCORED = runs_lib.Point(
    '', [_scored_run('gtrxl', 0, (117, 89)), _scored_run('gtrxl', 1, (119, 90)),
         _scored_run('trxl', 0, (5, 5)), _scored_run('trxl', 1, (9, 9), diverged=True)],
    None, scores=('score', 'score_capped'),
    lines={'score': {'human': 100, 'MERLIN': 115.2}, 'score_capped': {'MERLIN': 89.4}})


class ScoreTest(absltest.TestCase):

  def test_the_table_has_all_scores_with_their_standard_errors(self):
    rows = _cells(comparison.table(_SCORED))
    cells = [(row['seed'], row['score'], row['score_capped']) for row in rows]
    self.assertEqual(cells, [
        ('0', '117.0', '89.0'), ('1', '119.0', '90.0'),
        ('mean', '118.0 ± 1.0', '89.5 ± 0.5'),
        ('0', '5.0', '5.0'), ('1', '0.0', '0.0'), ('mean', '2.5 ± 2.5', '2.5 ± 2.5')])
    self.assertEqual(rows[2]['return'], '82.00 ± 1.00')

  def test_runs_are_ranked_by_their_scores(self):
    self.assertEqual(_ranked(_SCORED.runs[:2], 2000), [119, 117])


class SweepTest(absltest.TestCase):

  def test_table_has_a_row_for_each_value_and_a_column_for_each_model(self):
    rows = _cells(comparison.tables(_index(*[
        runs_lib.Point('2', [
            _run('gtrxl', 0, [1], [9, 10]), _run('gtrxl', 1, [1], [8.5]),
            _run('lstm', 0, [1], [6]), _run('lstm', 1, [1], diverged=True),
            _run('lstm', 2, [1])], 10.),
        runs_lib.Point(
            '3', [_run('gtrxl', 0, [1], [4]), _run('trxl', 0, [1])], None)],
                                           setting='Numpad.size')), 2)
    self.assertEqual(rows, [
        {'Numpad.size': '2', 'gtrxl': '9.00 ± 0.50 (9.50, 8.50)',
         'lstm': '3.00 ± 3.00 (6.00, diverged, -)', 'trxl': '-',
         'informed policy': '10.00'},
        {'Numpad.size': '3', 'gtrxl': '4.00 (4.00)', 'lstm': '-', 'trxl': '-',
         'informed policy': '-'}])


class RankedTest(parameterized.TestCase):

  @parameterized.parameters((1000, [3, 2, 1]), (2500, [5, 2, -4]), (4000, [7, 4, -6]))
  def test_best_runs_come_first_at_any_point_of_training(self, steps, returns):
    runs = [_run('gtrxl', 0, [1, -4, -5, -6]), _run('gtrxl', 1, [2, 5, 6, 7]),
            _run('gtrxl', 2, [3, 2, 3, 4])]
    self.assertEqual(_ranked(runs, steps), returns)

  def test_a_run_has_0_from_where_it_diverged(self):
    runs = [_run('gtrxl', 0, [1, 1, 1]), _run('gtrxl', 1, [9, 9], diverged=True),
            _run('gtrxl', 2, [], diverged=True)]
    self.assertEqual(_ranked(runs, 1500), [9, 1, 0])
    self.assertEqual(_ranked(runs, 3000), [1, 0, 0])

  def test_divergence_does_not_raise_returns_below_0(self):
    runs = [_run('gtrxl', 0, [-9, -8, -7]), _run('gtrxl', 1, [-8, -9], diverged=True)]
    self.assertEqual(_ranked(runs, 3000), [-7, -9])
    for score, ranked in ((5., [5, 0]), (-5., [-5, -5])):
      scored = [run._replace(metrics=[{**row, 'score': score} for row in run.metrics])
                for run in runs]
      self.assertEqual(_ranked(scored, 3000), ranked)

  def test_a_run_that_has_not_reached_the_point_has_no_rank(self):
    runs = [_run('gtrxl', 0, [1, 2]), _run('gtrxl', 1, [1, 3], [3])]
    self.assertEqual(_ranked(runs, 2000), [3, 2])
    self.assertEqual(_ranked(runs, 2100), [3])  # The other is done.


class PicturesTest(parameterized.TestCase):
  """Checks the content of pictures, not how they look."""

  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.create_tempdir().full_path) / 'picture.png'
    self.figure = None
    save = curves.save

    def keep(figure, *args):
      self.figure = figure
      save(figure, *args)

    self.enter_context(absltest.mock.patch.object(curves, 'save', keep))

  def _draw(self, name, setting, points):
    """Draws a picture of points, or of one."""
    points = [points] if isinstance(points, runs_lib.Point) else points
    draw = comparison.draw_curves if name == 'curves' else comparison.draw_ranked
    draw(_index(*points, setting=setting), 'x', self.path)

  def _lines(self, panel):
    return {line.get_label(): line.get_ydata() for line in panel.get_lines()}

  @pytest.mark.medium
  def test_scores_are_drawn_with_their_lines_of_reference(self):
    self._draw('curves', None, _SCORED)
    score, minutes, capped = self.figure.axes
    for panel in (score, minutes):
      self.assertEqual(self._lines(panel)['gtrxl'][-1], 118)
      self.assertEqual(self._lines(panel)['trxl'][-1], 2.5)
      self.assertEqual(self._lines(panel)['MERLIN'][0], 115.2)
      self.assertEqual(self._lines(panel)['human'][0], 100)
    self.assertStartsWith(score.get_ylabel(), 'score')
    self.assertEqual(self._lines(capped)['gtrxl'][-1], 89.5)
    self.assertEqual(self._lines(capped)['MERLIN'][0], 89.4)
    self._draw('curves', 'x', [_SCORED])
    curve, final = self.figure.axes
    self.assertIn('MERLIN', self._lines(curve))
    self.assertEqual(self._lines(final)['gtrxl'][0], 118)
    self._draw('ranked', None, [_SCORED])
    panel = self.figure.axes[-1]
    self.assertEqual(list(self._lines(panel)['gtrxl']), [119, 117])
    self.assertIn('human', self._lines(panel))

  def test_a_diverged_run_is_0_to_the_end_and_in_the_mean(self):
    self._draw('curves', None, runs_lib.Point('', [
        _run('trxl', 0, [math.nan, 2, 4]), _run('trxl', 1, [6, 6], diverged=True),
        _run('lstm', 0, [1, 1, 1, 1])], 10.))
    steps, minutes = self.figure.axes
    self.assertStartsWith(self.path.read_bytes(), b'\x89PNG')
    for panel, end in ((steps, 0.004), (minutes, 4)):
      diverged = panel.get_lines()[1]
      self.assertEqual(diverged.get_xdata()[-1], end)
      np.testing.assert_array_equal(diverged.get_ydata(), [6, 6, 0, 0])
      self.assertEqual(self._lines(panel)['trxl'][-1], 2)

  @parameterized.parameters((8., 0.75, True), (None, 6, False), (0., 6, False))
  @pytest.mark.medium
  def test_final_returns_are_relative_to_the_informed_policy(
      self, informed, expected, relative):
    self._draw('curves', 'Numpad.size', [
        runs_lib.Point('2', [_run('gtrxl', 0, [1], [10])], 10.),
        runs_lib.Point(
            '3', [_run('gtrxl', 0, [1], [4]), _run('gtrxl', 1, [1], [8]),
                  _run('lstm', 0, [1])], informed)])
    *values, final = self.figure.axes
    self.assertEqual([panel.get_title() for panel in values],
                     ['Numpad.size = 2', 'Numpad.size = 3'])
    self.assertEqual(self._lines(final)['gtrxl'][1], expected)
    self.assertEqual('informed policy' in self._lines(final), relative)
    self.assertTrue(np.isnan(self._lines(final)['lstm']).all())

  def test_ranks_are_drawn_at_a_quarter_half_and_the_end_of_each_value(self):
    returns = [[1, 5, 2, 8], [3, 4, 6, 7]]
    runs = [_run('gtrxl', seed, x, [1]) for seed, x in enumerate(returns)]
    self._draw('ranked', 'Numpad.size', [
        runs_lib.Point('2', runs, 10.),
        runs_lib.Point('3', runs[:1], None)])
    self.assertEqual([list(self._lines(panel)['gtrxl']) for panel in self.figure.axes],
                     [[3, 1], [5, 4], [8, 7], [1], [5], [8]])

  @pytest.mark.medium
  def test_each_task_is_drawn_beside_the_curves_and_below_them_in_a_sweep(self):
    point = runs_lib.Point('2', [
        _offline_run('rate', 0, [1, 0.9]), _offline_run('rate', 1, [1, 0.5]),
        _offline_run('dt', 0, [], diverged=True)], 1., ['28', '298'],
        lines={'success': {'persistent agent': 0.5, 'random agent': 0.}})
    self._draw('curves', None, point)
    steps, minutes, tasks = self.figure.axes
    np.testing.assert_allclose(steps.get_lines()[2].get_xdata(), [0.8, 1.6])
    self.assertEqual(minutes.get_ylim(), steps.get_ylim())
    self.assertEqual([tick.get_text() for tick in tasks.get_xticklabels()],
                     ['28', '298'])
    np.testing.assert_allclose(self._lines(tasks)['rate'], [1, 0.7])
    np.testing.assert_allclose(self._lines(tasks)['dt'], [0, 0])
    for label, value in ('persistent agent', 0.5), ('random agent', 0):
      np.testing.assert_allclose(self._lines(tasks)[label], [value, value])
      self.assertNotIn(label, self._lines(steps))
    self._draw('curves', 'x', [point, runs_lib.Point('3', point.runs[:1], 1.)])
    titles = [panel.get_title() for panel in self.figure.axes]
    self.assertEqual(titles[2:5], ["final return / informed policy's", 'final success',
                                   'final success'])

  def test_learning_processes_are_drawn_with_their_source(self):
    point = runs_lib.Point('dr', [
        _learning_run('adf', 0, 0.8, 1.), _learning_run('ed', 0, 0.5, 1.),
        _learning_run('ed', 1, 0.7, 1.)], 1.)
    self._draw('curves', None, point)
    steps, cpu, greedy, processes = self.figure.axes
    self.assertEqual(steps.get_ylabel(), 'return: random 0, source 1')
    self.assertEqual(cpu.get_xlabel(), 'CPU minutes of training')
    np.testing.assert_allclose(cpu.get_lines()[0].get_xdata(), [1.5])
    np.testing.assert_allclose(self._lines(steps)['adf'], [0.8])
    self.assertEqual(greedy.get_ylabel(), 'greedy_normalized')
    lines = self._lines(processes)
    self.assertEqual({name: lines[name][-1] for name in ('adf', 'ed', 'source')},
                     {'adf': 0.8, 'ed': 0.6, 'source': 1.})
    self._draw('curves', 'setting', [point])
    processes, final = self.figure.axes
    self.assertIn('source', self._lines(processes))
    np.testing.assert_allclose(self._lines(final)['ed'], [0.6])

  @parameterized.parameters((1, 1), (3, 1), (4, 2), (8, 3), (11, 3))
  @pytest.mark.medium
  def test_many_values_wrap_into_rows(self, num_values, num_rows):
    self._draw('curves', 'experiment', [
        runs_lib.Point(f'of_a_long_name_{i}', [_run('gtrxl', 0, [1, i], [i])], 1.)
        for i in range(num_values)])
    panels = self.figure.axes
    self.assertLen(panels, num_values + 1)
    self.assertEqual([panel.get_title() for panel in panels[:-1]],
                     [f'experiment = of_a_long_name_{i}' for i in range(num_values)])
    self.assertEqual(panels[-1].get_lines()[0].get_linestyle(), 'None')
    width, height = self.figure.get_size_inches()
    self.assertLen({panel.get_subplotspec().rowspan.start for panel in panels},
                   num_rows)
    self.assertLess(width, 20)
    self.assertLess(width / height, 4)

  def test_can_be_drawn_when_all_have_diverged_before_the_first_row(self):
    point = runs_lib.Point('2', [_run('trxl', 0, [], diverged=True)], None)
    self._draw('curves', None, point)
    self._draw('curves', 'Numpad.size', [point])
    self._draw('ranked', None, [point])
    self.assertTrue(self.path.exists())


if __name__ == '__main__':
  absltest.main()
