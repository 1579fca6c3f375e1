"""Tests of compare.py with invented runs."""

import contextlib
import io
import pathlib
import shlex

from absl.testing import absltest
from absl.testing import flagsaver
import gin
import pytest

from binaries import compare  # No test may import another one: flags would clash.
from gtrxl_tf import testing
from gtrxl_tf.analysis import comparison_runs
from gtrxl_tf.analysis import runs as runs_lib
from gtrxl_tf.environments import t_maze
from gtrxl_tf.launch import prepare
from gtrxl_tf.settings import config
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder

_GIN = pathlib.Path(__file__).parents[1] / 'gin'
_GIN_FILE = str(_GIN / 'gtrxl/action_recall_cpu.gin')
_SAMPLED = ['VMPOAgent.epsilon_alpha = @epsilon_alpha/log_uniform()',
            'epsilon_alpha/log_uniform.low = 0.001',
            'epsilon_alpha/log_uniform.high = 0.1']


@config.configurable
def score_of_two_delays(returns):
  return {'score': 10 * returns['2'] + returns['3'], 'other': 0.}


class _MadeUpRun:
  """Stands in for the process that trains: writes a run into its folder at once."""

  def __init__(self, command):
    given = {'gin_file': [], 'gin_bindings': [], 'root_dir': []}
    for flag in command[command.index('train') + 1:]:
      name, value = flag[2:].split('=', 1)
      given[name].append(value)
    self.root = given['root_dir'][0]
    self.bindings = given['gin_bindings']
    self.files = given['gin_file']

  def terminate(self):
    pass

  def poll(self):
    self.returncode = self.end()
    return self.returncode

  def wait(self):
    return self.returncode

  def end(self):
    folder = run_folder.RunFolder(self.root)
    diverges = 'lstm' in self.files[-1] and 'ActionRecall.delay=3' in self.bindings
    metrics_csv.MetricsWriter(folder.metrics, 0).append(
        {'learner_step': 10, 'environment_steps': 1000, 'seconds': 60, 'return': 0.75,
         'success': 0.75})
    folder.config.write_text('\n'.join(self.bindings))
    if diverges:
      folder.diverged.write_text('loss is not finite\n')
    else:
      folder.scores.write_text('score,other\n117.6,89.1\n')
      folder.evaluation.write_text('episode,return,success,task\n0,0.5,0.5,0\n')
    return int(diverges)


class CompareTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    gin.clear_config()
    self.addCleanup(gin.clear_config)
    self.root = pathlib.Path(self.create_tempdir().full_path)
    self.runs = []

  def _compare(self, **given):
    """Runs compare; returns its output. `self.runs` are the runs that it started."""
    popen = comparison_runs.subprocess.Popen

    def start(command, **options):
      if 'train' not in command:
        return popen(command, **options)
      self.runs.append(_MadeUpRun(command))
      return self.runs[-1]

    self.runs.clear()
    self.enter_context(absltest.mock.patch.object(
        comparison_runs.subprocess, 'Popen', start))
    settings = {'gin_file': [_GIN_FILE], 'root_dir': str(self.root), 'seeds': 2,
                'models': ['gtrxl', 'lstm'], **given}
    printed = io.StringIO()
    with flagsaver.flagsaver(**settings), contextlib.redirect_stdout(printed):
      compare.main()
    return printed.getvalue()

  def _assert_refused(self, reason, code=2, **given):
    said = io.StringIO()
    with self.assertRaises(SystemExit) as refused, contextlib.redirect_stderr(said):
      self._compare(**given)
    self.assertEqual(refused.exception.code, code)
    self.assertRegex(said.getvalue(), reason if code == 1 else f'Not started: {reason}')

  def _write_settings(self):
    """Writes what the processes of `self.runs` would have written into their folders."""
    for run in self.runs:
      gin.clear_config()
      prepare.prepare(run.files, run.bindings)
      run_folder.RunFolder(run.root).config.write_text(config.operative_text())

  def _cells(self, line_start):
    text = (self.root / 'comparison.md').read_text()
    return [line.strip('| ').split(' | ') for line in text.splitlines()
            if line.startswith('| ' + line_start)]

  @pytest.mark.long
  def test_a_sweep_compares_at_each_value(self):
    printed = self._compare(sweep='ActionRecall.delay=2,3')
    self.assertEqual(
        [run.root for run in self.runs],
        [f'{self.root}/ActionRecall.delay={delay}/{core}/seed_{seed}'
         for seed in (0, 1) for delay in (2, 3) for core in ('gtrxl', 'lstm')])
    for run in self.runs:  # TensorBoard's HParams.
      self.assertLen(list(pathlib.Path(run.root, 'summaries').glob('events*')), 1)
    self.assertEqual(self.runs[2].bindings,
                     ['ActionRecall.delay=3', 'Experiment.seed = 0'])
    self.assertEndsWith(self.runs[1].files[-1], 'cores/lstm.gin')
    text = (self.root / 'comparison.md').read_text()
    self.assertIn(text, printed)
    self.assertEqual([line for line in text.splitlines() if line.startswith('#')],
                     ['## ActionRecall.delay = 2', '## ActionRecall.delay = 3',
                      '## Final return against ActionRecall.delay'])
    self.assertEqual(self._cells('2 |'),
                     [['2', *['0.50 ± 0.00 (0.50, 0.50)'] * 2, '1.00']])
    self.assertEqual(self._cells('3 |'), [
        ['3', '0.50 ± 0.00 (0.50, 0.50)', '0.00 ± 0.00 (diverged, diverged)', '1.00']])
    self.assertTrue((self.root / 'comparison.png').exists())

  @pytest.mark.long
  def test_a_sweep_over_files_gives_each_its_own_settings(self):
    files = [str(_GIN / 'gtrxl' / name) for name in
             ('action_recall_cpu.gin', 't_maze_30_cpu.gin')]
    self._compare(sweep=','.join(files), gin_file=[], seeds=1)
    self.assertEqual(
        [run.root for run in self.runs],
        [f'{self.root}/{stem}/{core}/seed_0'
         for stem in ('action_recall_cpu', 't_maze_30_cpu')
         for core in ('gtrxl', 'lstm')])
    self.assertEqual(self.runs[0].files[0], files[0])
    self.assertEqual(self.runs[2].files[0], files[1])
    self.assertLen(self._cells('t_maze_30_cpu |'), 1)

  @pytest.mark.medium
  def test_models_of_an_offline_experiment_are_gin_files(self):
    dataset = str(self.root / 'dataset')
    testing.write_informed_episodes(dataset, t_maze.TMaze(28, seed=0), 32)
    rate, dt = str(_GIN / 'rate/models/rate.gin'), str(_GIN / 'rate/models/dt.gin')
    pool = str(_GIN / 'rate/variants/memory_pool.gin')
    self._compare(
        gin_file=[str(_GIN / 'rate/t_maze_30_cpu.gin')], seeds=1,
        models=[dt, f'{rate}+{pool}'], gin_bindings=[
            f"dataset = '{dataset}'",
            "Experiment.tasks = {'corridor_length': (2, 3)}"])
    self.assertEqual([run.root for run in self.runs], [
        f'{self.root}/dt/seed_0', f'{self.root}/rate+memory_pool/seed_0'])
    self.assertEqual(self.runs[1].files[1:], [rate, pool])
    self.assertEqual(self.runs[1].bindings[-1], 'Experiment.seed = 0')
    for title in 'success 2', 'success 3':
      self.assertIn(title, self._cells('model')[0])

  @pytest.mark.long
  def test_resumes_where_it_stopped_and_reports_without_training(self):
    sweep = {'sweep': 'ActionRecall.delay=3'}
    self._compare(seeds=1, **sweep)
    self._write_settings()
    self._compare(**sweep)
    self.assertEqual([pathlib.Path(run.root).name for run in self.runs], ['seed_1'] * 2)
    (self.root / 'comparison.md').unlink()
    self._compare(only_report=True, **sweep)
    self.assertEmpty(self.runs)
    self.assertLen(self._cells('lstm | 1'), 1)

  @pytest.mark.medium
  def test_finished_runs_with_other_settings_need_another_folder(self):
    self._compare(seeds=1)
    self._write_settings()
    self._assert_refused(
        r'.*gtrxl/seed_0 was started with other settings: ActionRecall.delay = \d+ '
        r'\(now 3\); other settings need another --root_dir',
        gin_bindings=['ActionRecall.delay = 3'])
    self.assertEmpty(self.runs)

  @pytest.mark.long
  def test_runs_of_all_cores_draw_the_same_settings(self):
    printed = self._compare(gin_bindings=_SAMPLED)
    drawn = {(core, seed): self._cells(f'{core} | {seed}')[0][-1]
             for core in ('gtrxl', 'lstm') for seed in (0, 1)}
    self.assertEqual(drawn['gtrxl', 0], drawn['lstm', 0])
    self.assertEqual(drawn['gtrxl', 1], drawn['lstm', 1])
    self.assertNotEqual(drawn['gtrxl', 0], drawn['gtrxl', 1])
    self.assertBetween(float(drawn['gtrxl', 0]), 0.001, 0.1)
    self.assertIn('ranked.png', printed)
    self.assertTrue((self.root / 'ranked.png').exists())

  @pytest.mark.medium
  def test_runs_are_compared_by_their_stored_scores(self):
    self._compare(gin_bindings=[
        "Experiment.tasks = {'delay': (2, 3)}",
        'Experiment.score = @score_of_two_delays',
        "Experiment.reference_lines = {'score': {'MERLIN': 115.2}}"])
    [header] = self._cells('model')
    [row] = self._cells('gtrxl | 0')
    cells = dict(zip(header, row))
    self.assertEqual((cells['score'], cells['other'], cells['return']),
                     ('117.6', '89.1', '0.50'))
    self.assertEqual(self._cells('**gtrxl**')[0][2], '117.6 ± 0.0')
    self.assertFalse((self.root / 'ranked.png').exists())  # Nothing is sampled.
    index = runs_lib.read(self.root / 'runs.jsonl')
    self.assertEqual([(run.model, run.seed) for run in index.runs],
                     [('gtrxl', 0), ('gtrxl', 1), ('lstm', 0), ('lstm', 1)])
    self.assertIn('Experiment.seed = 1', index.runs[1].config)

  @pytest.mark.medium
  def test_jobs_train_side_by_side(self):
    end = _MadeUpRun.end
    counts = []
    self.enter_context(absltest.mock.patch.object(
        _MadeUpRun, 'end', lambda run: (counts.append(len(self.runs)), end(run))[1]))
    printed = self._compare(jobs=2)
    self.assertEqual(counts, [2, 2, 4, 4])
    self.assertRegex(printed, r'2 of 4 runs done, about \d+ minutes left: /')
    self.assertTrue((self.root / 'lstm/seed_1/logs/train.txt').exists())

  @pytest.mark.medium
  def test_a_run_that_fails_stops_the_others(self):
    self.enter_context(absltest.mock.patch.object(_MadeUpRun, 'end', lambda run: 1))
    self._assert_refused('^Stopped: the run in .*seed_0 failed.$', code=1)
    self.assertLen(self.runs, 1)

  @pytest.mark.medium
  def test_a_run_beside_others_that_fails_says_why(self):
    def fail(run):
      logs = pathlib.Path(run.root) / 'logs'
      (logs / 'train.txt').write_text('Trains.\nStopped: no doors', encoding='utf-8')
      return 1

    self.enter_context(absltest.mock.patch.object(_MadeUpRun, 'end', fail))
    self._assert_refused('^Stopped: the run in .* failed: Stopped: no', code=1, jobs=2)

  def test_the_seed_is_set_by_its_own_flag(self):
    self._assert_refused('Experiment.seed differs .*: expected --seeds and --first_seed',
                         gin_bindings=['Experiment.seed = 7'])

  @pytest.mark.medium
  def test_prints_a_command_for_each_unfinished_run(self):
    self._compare(seeds=1, first_seed=7)
    self.assertEqual([pathlib.Path(run.root).name for run in self.runs], ['seed_7'] * 2)
    self._write_settings()
    printed = self._compare(first_seed=7, print_commands=True)
    self.assertEmpty(self.runs)
    commands = [shlex.split(line) for line in printed.splitlines()]
    self.assertEqual([command[-1] for command in commands], [
        f'--root_dir={self.root}/{core}/seed_8' for core in ('gtrxl', 'lstm')])
    self.assertEqual(commands[0][:3], ['gtrxl', 'train', f'--gin_file={_GIN_FILE}'])
    self.assertIn('--gin_bindings=Experiment.seed = 8', commands[0])

  @pytest.mark.medium
  def test_a_value_that_does_not_fit_stops_it_before_the_first_run(self):
    self._assert_refused('ActionRecall.delay = -1: expected an integer >= 0',
                         sweep='ActionRecall.delay=2,-1')
    self.assertEmpty(self.runs)

  @pytest.mark.long
  def test_a_setting_without_effect_stops_it_before_the_first_run(self):
    for given, setting in (
        ({'sweep': 'DeepGRU.hidden_dim=8,16'}, 'DeepGRU.hidden_dim would'),
        ({'models': ['gtrxl+DeepLSTM.hidden_dim=8']}, 'DeepLSTM.hidden_dim would'),
        ({'sweep': 'Experiment.seed=1,2'}, 'Experiment.seed differs')):
      self._assert_refused(setting, **given)
    self.assertEmpty(self.runs)
    self._compare(sweep='DeepLSTM.hidden_dim=8,16', seeds=1)  # One model uses it.
    self.assertLen(self.runs, 4)

  @pytest.mark.medium
  def test_a_run_that_ends_before_its_first_row_has_its_evaluation(self):
    self._compare(seeds=1, models=['gtrxl'])
    run_folder.RunFolder(self.runs[0].root).metrics.unlink()
    self._compare(seeds=1, models=['gtrxl'], only_report=True)
    self.assertEqual(self._cells('gtrxl')[0][:4], ['gtrxl', '0', '0.50', '0.50'])


if __name__ == '__main__':
  absltest.main()
