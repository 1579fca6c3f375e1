"""Tests of figures.py and of the index in runs.py."""

import math
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from gtrxl_tf import files
from gtrxl_tf.analysis import comparison
from gtrxl_tf.analysis import figures
from gtrxl_tf.analysis import runs as runs_lib
from gtrxl_tf.settings import config
from gtrxl_tf.training import curves

pytest.importorskip('rliable', reason='needs the extra `figures`')


def _run(model, seed, final, diverged=False, samples=None, lines=()):
  """A run with a row every 1000 environment steps, whose return ends at `final`."""
  return runs_lib.Run(
      model, seed, [{'environment_steps': 1000. * i, 'seconds': 60. * i,
                     'return': final * i / 300 if i > 1 else math.nan, 'queue': 3.,
                     'entropy': 1., 'gradient_norm': 0.5}
                    for i in range(1, 301)],
      [] if diverged else [{'episode': i, 'return': final + i, 'success': math.nan,
                            'task': 0.} for i in (-1, 1)],
      diverged, samples or {}, config='\n'.join(['A.a = 1', 'B.b = 2', *lines]))


def _index(setting='Core.num_layers', finals=(1., 2., 9.)):
  points = [runs_lib.Point(value, [
      *(_run('gtrxl+Adam.learning_rate=1e-3', seed, final, lines=[f'Core.n = {value}'])
        for seed, final in enumerate(finals)),
      _run('lstm+Adam.learning_rate=2', 0, 4., samples={'rate': 0.1}),
      _run('lstm+Adam.learning_rate=2', 1, 0., diverged=True, samples={'rate': 0.2})], 10.)
            for value in ('2', '8')]
  return runs_lib.Index('gtrxl compare --seeds=3', '0.1.0 abc', setting,
                         points if setting else points[:1])


class RunIndexTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.create_tempdir().full_path) / 'depth.jsonl'

  def test_an_index_has_what_tables_are_made_of(self):
    runs_lib.write(self.path, _index())
    read = runs_lib.read(self.path)
    self.assertEqual(comparison.tables(read),
                     comparison.tables(_index()))

  def test_a_score_that_is_not_known_stays_so(self):
    index = _index(None)
    runs = [run._replace(scores={'score': 5., 'score_memory': math.nan})
            for run in index.points[0].runs]
    point = index.points[0]._replace(runs=runs, scores=('score', 'score_memory'))
    index = index._replace(points=[point])
    runs_lib.write(self.path, index)
    self.assertEqual(comparison.tables(runs_lib.read(self.path)),
                     comparison.tables(index))

  def test_curves_are_thinned_and_keep_their_ends(self):
    runs_lib.write(self.path, _index())
    run = runs_lib.read(self.path).points[0].runs[1]
    self.assertLen(run.metrics, runs_lib.MOST_ROWS)
    self.assertTrue(math.isnan(run.metrics[0]['return']))
    self.assertEqual(run.metrics[-1], {
        'environment_steps': 300_000, 'seconds': 18_000, 'return': 2, 'entropy': 1,
        'gradient_norm': 0.5})

  def test_the_lowest_return_of_a_run_that_diverged_is_kept(self):
    rows = [{'learner_step': 20. * i, 'return': -95. if i == 7 else -10.}
            for i in range(301)]
    run = runs_lib.Run('ed', 0, rows, [], True, {})
    runs_lib.write(self.path, runs_lib.Index(
        'c', 'v', None, [runs_lib.Point('', [run], None)]))
    read, = runs_lib.read(self.path).points[0].runs
    self.assertEqual(read.floor('return'), -95)

  def test_settings_of_several_lines_stay_whole(self):
    long = '\n'.join(['X.a = \\', '    [{},', '     2]'])
    runs = [_run('gtrxl', seed, 4., lines=[long.format(seed)]) for seed in (0, 1)]
    runs_lib.write(self.path, runs_lib.Index(
        'c', 'v', None, [runs_lib.Point('', runs, None)]))
    for run, read in zip(runs, runs_lib.read(self.path).points[0].runs):
      self.assertEqual(read.config, run.config)

  def test_another_file_is_no_index(self):
    for text in ('', '{"points": []}\n', 'return,success\n1,1\n'):
      self.path.write_text(text)
      with self.assertRaisesRegex(files.DamagedFile, r'depth\.jsonl is not an index'):
        runs_lib.read(self.path)

  def test_indexes_cannot_be_joined_by_hand(self):
    runs_lib.write(self.path, _index())
    text = self.path.read_text('utf-8')
    head, first, *rest = text.splitlines(keepends=True)
    for changed in text + text, head + rest[-1] + ''.join(rest), head + first:
      self.path.write_text(changed, 'utf-8')
      with self.assertRaisesRegex(files.DamagedFile, 'is not an index of runs'):
        runs_lib.read(self.path)


class FiguresTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.create_tempdir().full_path) / 'depth.jsonl'

  def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end(self):
    mean, low, high = comparison.estimate((0., 4., 6., 100.))
    self.assertEqual(mean, 5.)
    self.assertBetween(low, 0., 5.)
    self.assertBetween(high, 5., 100.)
    self.assertEqual(comparison.estimate((3.,)), (3., 3., 3.))

  @pytest.mark.medium
  def test_an_interval_is_the_same_in_every_process_and_leaves_other_draws_alone(self):
    values = tuple(math.exp(0.37 * i) for i in range(12))
    np.random.seed(3)
    expected, first = np.random.random(), comparison.estimate(values)
    comparison.estimate.cache_clear()
    np.random.seed(3)
    self.assertEqual(comparison.estimate(values), first)
    self.assertEqual(np.random.random(), expected)
    comparison.estimate.cache_clear()
    self.assertEqual(comparison.estimate(values), first)

  @pytest.mark.medium
  def test_a_table_has_a_row_for_each_model_and_a_column_for_each_point(self):
    text = comparison.summary(_index().short())
    self.assertIn('| return; Core.num_layers = | 2 | 8 |', text)
    self.assertRegex(text, r'\| gtrxl \| \*\*\S+\*\* \[1, 9\] \(1, 2, 9\) \|')
    self.assertRegex(text, r'\| lstm \| \*\*2\*\* \[0, 4\] \(4, 0\) \|')
    self.assertIn('or as their lowest value below 0: 2.', text)
    self.assertIn("The informed policy's is 10. ", text)
    self.assertIn('Drawn for each seed: rate 0.1, 0.2. ', text)
    self.assertIn('\n    gtrxl compare --seeds=3\n', text)

  def test_draws_that_differ_by_model_are_left_out(self):
    runs = [_run('gtrxl', 1, 4., samples={'rate': 0.2, 'bound': 3.}),
            _run('gtrxl', 0, 4., samples={'rate': 0.1, 'bound': 2.}),
            _run('lstm', 0, 4., samples={'rate': 0.5, 'bound': 2.}),
            _run('lstm', 1, 4., samples={'rate': 0.6, 'bound': 3.})]
    text = comparison.summary(_index(None)._replace(points=[runs_lib.Point('', runs, None)]))
    self.assertIn('Drawn for each seed: bound 2, 3.', text)

  @pytest.mark.medium
  def test_runs_that_learn_while_they_act_have_a_table_for_each_way_to_act(self):
    rows = [{'learner_step': 1., 'return': 9., 'source_return': 9., 'normalized': x,
             'greedy_normalized': x / 2, 'tuned_normalized': x + 0.125}
            for x in (0.25, 0.75)]
    points = [runs_lib.Point('dr', [
        runs_lib.Run('ed', seed, [row], [{'return': 9.}], False, {})
        for seed, row in enumerate(rows)], None)]
    text = comparison.summary(runs_lib.Index('command', 'version', 'file', points))
    for measure, finals in (('normalized', '0.25, 0.75'),
                            ('greedy_normalized', '0.125, 0.375'),
                            ('tuned_normalized', '0.375, 0.875')):
      self.assertRegex(
          text, rf'\| {measure}; file = \| dr \|\n.*\n\| ed \| .*\({finals}\) \|')

  @pytest.mark.medium
  def test_runs_with_several_tasks_have_a_column_for_each(self):
    row = {'learner_step': 9., 'seconds': 8., 'return': 6.}
    played = [{'return': 6., 'success': x, 'task': float(task)}
              for task, x in enumerate((0.25, 0.75))]
    index = runs_lib.Index('c', 'v', None, [runs_lib.Point(
        '', [runs_lib.Run('dt', seed, [row], played, False, {}) for seed in range(2)],
        None, ('28', '58'), lines={'success': {'random agent': 0.}})])
    self.assertRegex(comparison.summary(index), r'\| success; task = \| 28 \| 58 \|\n.*\n'
                     r'\| dt \| .*\(0.25, 0.25\) \| .*\(0.75, 0.75\) \|')
    runs_lib.write(self.path, index)
    self.assertEqual([path.name for path in figures.write(self.path)],
                     ['depth.md', 'depth.png', 'depth.svg'])

  def test_a_table_of_success_counts_the_runs_that_succeed(self):
    # The interquartile mean of the second column is 0.99.
    lengths = ([0.95, 0.94, 0.5], [1., 0.96, 1., 0.45, 0.5, 1., 1., 1., 1., 1.])
    for values, cell in zip(lengths, ('**1 of 3**; 0.80 ± 0.15 (0.95, 0.94, 0.5)',
                                      '**8 of 10**; 0.89 ± 0.07 (1, 0.96, 1, 0.45, ')):
      runs = [runs_lib.Run(
          'rate', seed, [{'learner_step': 9., 'return': 6.}],
          [{'return': 6., 'success': x, 'task': float(task)} for task in range(2)], False, {})
              for seed, x in enumerate(values)]
      text = comparison.summary(runs_lib.Index('c', 'v', None, [
          runs_lib.Point('', runs, None, ('58', '298'))]))
      self.assertIn(f'| rate | {cell}', text)
      self.assertIn('at least 95 % of their episodes', text)

  @pytest.mark.medium
  def test_a_sweep_of_offline_runs_has_their_progress(self):
    row = {'learner_step': 9., 'seconds': 8., 'cpu_seconds': 7., 'return': 6.}
    runs_lib.write(self.path, runs_lib.Index('c', 'v', 'file', [runs_lib.Point(
        'dr', [runs_lib.Run('ed', 0, [row], [{'return': 6., 'success': 1.}], False, {})],
        None)]))
    self.assertLessEqual({'depth_progress.png', 'depth_progress.svg'},
                         {path.name for path in figures.write(self.path)})

  @parameterized.parameters(
      (['gtrxl+gate=input', 'gtrxl+gate=output'], ['gtrxl+gate=input', 'gtrxl+gate=output']),
      (['a+rate=1', 'b+rate=2', 'a+rate=1+width=3'], ['a', 'b', 'a+width=3']),
      (['gate=input'], ['gate=input']))
  def test_names_lose_settings_that_all_have_and_keep_those_that_tell_them_apart(
      self, models, short):
    runs = [runs_lib.Run(model, 0, [], [], False) for model in models]
    index = runs_lib.Index('c', 'v', None, [runs_lib.Point('', runs, None)])
    self.assertEqual(index.short().models, short)

  @parameterized.parameters(
      (['"a-Easy-v0"', '"a-Hard-v0"'], 'name = a-*-v0', ['Easy', 'Hard']),
      (['"x"', '"y"'], 'name = *', ['x', 'y']),
      (['"x"', '"xy"'], 'name', ['"x"', '"xy"']), (['10', '12'], 'name', ['10', '12']),
      (['"a"'], 'name', ['"a"']))
  def test_what_quoted_values_share_is_in_the_settings_name(self, values, name, short):
    runs = [runs_lib.Run('a', 0, [], [], False)]
    index = runs_lib.Index('c', 'v', 'name', [
        runs_lib.Point(value, runs, None) for value in values]).short()
    self.assertEqual(index.setting, name)
    self.assertEqual([point.value for point in index.points], short)

  @pytest.mark.long
  def test_pictures_are_the_same_each_time(self):
    runs_lib.write(self.path, _index())
    written = figures.write(self.path)
    self.assertCountEqual([path.name for path in written], [
        'depth.md', *(f'depth{part}{suffix}' for part in ('', '_curves', '_training', '_ranked')
                      for suffix in ('.png', '.svg'))])
    before = [path.read_bytes() for path in written]
    self.assertEqual([path.read_bytes() for path in figures.write(self.path)], before)

  @pytest.mark.medium
  def test_without_a_sweep_there_is_one_picture_of_curves(self):
    runs_lib.write(self.path, _index(setting=None))
    self.assertContainsSubset(
        {'depth.md', 'depth.png'}, {path.name for path in figures.write(self.path)})
    self.assertIn('| model | return | each run |',
                  self.path.with_suffix('.md').read_text())

  @pytest.mark.medium
  def test_runs_without_curves_have_a_picture_of_their_final_values(self):
    played = [{'return': 6., 'success': math.nan, 'task': 0.}]
    for scores, labels in (
        ({}, ['final return']),
        ({'normalized': 0.5, 'tuned_normalized': 0.75},
         ['final normalized', 'final tuned_normalized', 'transitions'])):
      row = {'learner_step': 9., 'seconds': 8., 'return': 6., **scores}
      runs_lib.write(self.path, runs_lib.Index('c', 'v', None, [runs_lib.Point(
          '', [runs_lib.Run(model, seed, [row], played * (model == 'dt'), False, {})
               for model in ('dt', 'rate') for seed in range(2)], None)]))
      with mock.patch.object(curves, 'save', wraps=curves.save) as save:
        figures.write(self.path)
      panels = save.call_args.args[0].axes
      self.assertEqual([panel.get_xlabel() for panel in panels], labels)
      self.assertEqual([label.get_text() for label in panels[0].get_yticklabels()],
                       ['dt', 'rate'])

  def test_a_page_with_a_single_mark_is_refused_and_stays_as_it_is(self):
    page = self.path.with_name('page.md')
    for text in ('a\n<!-- runs: depth -->\nb\n', 'a\n<!-- end of runs -->\nb\n',
                 '<!-- runs: depth -->\nprose\n<!-- runs: x -->\n<!-- end of runs -->\n'):
      page.write_text(text)
      with self.assertRaisesRegex(config.ConfigError, 'page.md'):
        figures.insert_tables(page, {'depth': 'new\n', 'x': 'new\n'})
      self.assertEqual(page.read_text(), text)

  def test_tables_go_where_a_page_has_their_marks(self):
    page = self.path.with_name('page.md')
    page.write_text('a\n<!-- runs:my depth -->\nold\n<!-- end of runs -->\nb\n')
    for _ in range(2):
      figures.insert_tables(page, {'my depth': 'new\n', 'other': 'x\n'})
      self.assertEqual(page.read_text(), 'a\n<!-- runs: my depth -->\nnew\n'
                       '<!-- end of runs -->\nb\n')
    with self.assertRaisesRegex(config.ConfigError, "runs 'my depth'"):
      figures.insert_tables(page, {'other': 'x\n'})


if __name__ == '__main__':
  absltest.main()
