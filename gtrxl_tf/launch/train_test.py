"""Tests of train.py: what is refused, and small runs with all their processes."""

# pylint: disable=protected-access

import contextlib
import io
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import time
from typing import Tuple
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import gin
import pytest

from gtrxl_tf import testing
from gtrxl_tf.environments import action_recall
from gtrxl_tf.environments import t_maze
from gtrxl_tf.launch import parts
from gtrxl_tf.launch import prepare
from gtrxl_tf.launch import resuming
from gtrxl_tf.launch import supervisor as supervisor_lib
from gtrxl_tf.launch import train
from gtrxl_tf.settings import config
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import evaluation
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder
from gtrxl_tf.training.online import experiment as experiment_lib

_ROOT = pathlib.Path(__file__).parents[2]
_GIN_FILE = str(_ROOT / 'gin/gtrxl/action_recall_cpu.gin')
_OFFLINE_FILES = [str(_ROOT / 'gin' / 'rate' / name)
                  for name in ('t_maze_30_cpu.gin', 'models/rate.gin')]
_TINY = ['ActionRecall.delay = 2', 'TransformerXL.memory_length = 4',
         'OnlineExperiment.unroll_length = 8', 'OnlineExperiment.batch_size = 16',
         'OnlineExperiment.environments_per_actor = 16', 'Experiment.log_period = 2',
         'Experiment.evaluation_episodes = 10']


@gin.configurable
class BrokenMaze(t_maze.TMaze):
  resets = 0

  def reset(self):
    self.resets += 1
    return super().reset()

  def step(self, action):  # Not when the settings are checked.
    return super().step(action) if self.resets < 2 else None


@gin.configurable
class CountedRecall(action_recall.ActionRecall):
  calls = []

  def reset(self):
    self.calls.append('reset')
    return super().reset()

  def step(self, action):
    self.calls.append('step')
    print('a step')
    return super().step(action)

  def close(self):
    self.calls.append('close')


class ThreadsTest(parameterized.TestCase):

  @parameterized.parameters(([], 1), (['OnlineExperiment.batch_size = 512'], 0))
  def test_a_learner_has_threads_by_the_size_of_its_steps(self, bindings, expected):
    gin.clear_config()
    self.addCleanup(gin.clear_config)
    experiment = prepare.prepare([_GIN_FILE], bindings, check=False)
    threads = supervisor_lib.threads_of_learner(experiment)
    self.assertEqual(threads, expected)
    supervisor = supervisor_lib.Supervisor(experiment, run_folder.RunFolder('root'))
    self.addCleanup(supervisor.stop)
    settings = {name: own for name, (_, own, _) in supervisor._parts.items()}
    self.assertEqual({name: x.threads for name, x in settings.items()},
                     {'learner': expected, 'actor_0': 1})

  @parameterized.parameters(
      (1, ['inference_0'] * 3), (2, ['inference_0', 'inference_1', 'inference_0']),
      (0, ['learner'] * 3))
  @pytest.mark.medium
  def test_a_setting_places_the_policy(self, num_servers, acts_for):
    gin.clear_config()
    self.addCleanup(gin.clear_config)
    experiment = prepare.prepare([_GIN_FILE], [
        'OnlineExperiment.num_actors = 5', 'OnlineExperiment.inference = @Inference()',
        f'Inference.num_servers = {num_servers}'], check=False)
    supervisor = supervisor_lib.Supervisor(experiment, run_folder.RunFolder('root'))
    self.addCleanup(supervisor.stop)
    arguments = {name: args for name, (_, _, args) in supervisor._parts.items()}
    servers = [f'inference_{i}' for i in range(num_servers)]
    self.assertEqual(list(arguments), [
        'learner', *servers, 'actor_0', 'actor_1', 'actor_2'])
    at = {f'localhost:{arguments[name][1]}': name for name in servers}
    local = arguments['learner'][2]
    if local:
      at[f'localhost:{local.port}'] = 'learner'
    self.assertEqual([at[arguments[f'actor_{i}'][0]] for i in range(3)], acts_for)
    self.assertEqual([arguments[f'actor_{i}'][1] for i in range(3)], [0, 1, 2])


class RefusedTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    gin.clear_config()
    self.addCleanup(gin.clear_config)
    self.temporary = pathlib.Path(self.create_tempdir().full_path)

  def refused(self, files, bindings) -> str:
    """Returns the one line on stderr, and checks that nothing else has happened."""
    root = self.temporary / 'run'
    stderr = io.StringIO()
    with contextlib.redirect_stderr(stderr):
      code = train.train(files, bindings, str(root))
    self.assertEqual(code, 2)
    self.assertFalse(root.exists())
    line, = stderr.getvalue().splitlines()
    self.assertStartsWith(line, 'Not started: ')
    return line.removeprefix('Not started: ')

  @pytest.mark.medium
  def test_a_run_through_a_server_says_what_to_install(self):
    with mock.patch.dict(sys.modules, reverb=None):
      line = self.refused([_GIN_FILE], ["OnlineExperiment.transport = 'reverb'"])
    self.assertRegex(line, r"^OnlineExperiment.transport = 'reverb' .*reverb, which is not "
                     r'installed: .*\[online\].* Python 3.10 or 3.11$')

  @parameterized.parameters(
      (None, '--server: expected the address .* if there are actors'),
      ('nowhere', '--server=nowhere: expected HOST:PORT'))
  @pytest.mark.medium
  def test_a_learner_needs_a_server_if_there_are_actors(self, server, message):
    stderr = io.StringIO()
    with contextlib.redirect_stderr(stderr):
      code = train.train_as_learner(
          parts.Settings([_GIN_FILE]), str(self.temporary / 'run'), server)
    self.assertEqual(code, 2)
    self.assertFalse((self.temporary / 'run').exists())
    self.assertRegex(stderr.getvalue(), f'^Not started: {message}')

  @parameterized.parameters(
      ('Experiment.environment_steps = 1',
       "Experiment doesn't have a parameter named 'environment_steps'.*"
       "Did you mean OnlineExperiment.environment_steps"),
      ('OfflineExperiment.dataset = "x"',
       'OfflineExperiment.dataset is set, but train.experiment = @OnlineExperiment: '
       'expected train.experiment = @OfflineExperiment'),
      ('OnlineExperiment.batch_size = 65',
       'OnlineExperiment.batch_size = 65: expected a multiple of '
       'OnlineExperiment.environments_per_actor = '),
      ('ActorCritic.core = @TransformerXL',
       r'ActorCritic.core = .*: expected a Core \(@Name\(\) with'),
      ('ActorCritic.torso = @PixelTorso()', 'observation: expected one image'),
      ('ActorCritic.core = @SegmentTransformer()', 'ActorCritic.core = SegmentTransformer '
       'works in segments: expected a core that does'),
      ('Experiment.network = @ActionRecall', 'ActionRecall got an unexpected keyword '
       "argument 'action_spec'"),
      ("Experiment.tasks = {'doors': (1, 2)}", "unexpected keyword argument 'doors'"),
      ('train.experiment = @train', 'train.experiment makes a function: expected one of '
       '@OnlineExperiment, @OfflineExperiment, @HistoryExperiment'),
      ('x = %y\ny = %x\nExperiment.seed = %x', 'refer to themselves, as macros in a circle'))
  @pytest.mark.medium
  def test_a_setting_that_cannot_be_used(self, binding, expected):
    self.assertRegex(self.refused([_GIN_FILE], [binding]), expected)

  def failed(self, files=(), bindings=()) -> Tuple[str, str]:
    """The one line on stderr, without its ends, and the traceback; nothing was begun."""
    root, stderr = self.temporary / 'run', io.StringIO()
    with contextlib.redirect_stderr(stderr):
      code = train.train([_GIN_FILE, *files], bindings, str(root))
    self.assertEqual(code, 1)
    failure = root / 'failures' / 'preparation.txt'
    self.assertEqual([x for x in root.rglob('*') if x.is_file()], [failure])
    line, = stderr.getvalue().splitlines()
    begin, end = 'Stopped: preparation: ', f' (traceback: {failure})'
    self.assertStartsWith(line, begin)
    self.assertEndsWith(line, end)
    return line.removeprefix(begin).removesuffix(end), failure.read_text()

  @parameterized.parameters(
      ('KeyError', "episode 1, step 14: KeyError: 14 (WORLD, line 15)"),
      ('NaN', 'observation = [ 0. nan]: expected finite numbers (episode 1, step 7) (WORLD, '
       'line 11)'),
      ('Action', 'ValueError: no such door (WORLD, line 17)'))
  def test_what_fails_late_or_with_one_action_fails_at_once(self, fault, expected):
    world = self.temporary / f'late_{fault.lower()}.py'
    world.write_text(f"""
import gymnasium
import numpy as np
class Late{fault}(gymnasium.Env):
  observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
  action_space = gymnasium.spaces.Discrete(9)
  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self.steps = 0
    return np.zeros(2, np.float32), {{}}
  def step(self, action):
    self.steps += 1
    print('printed', self.steps)
    if {fault == 'KeyError'}:
      {{x: x for x in range(14)}}[self.steps]
    if {fault == 'Action'} and action == 5:
      raise ValueError('no such door')
    isnan = {fault == 'NaN'} and self.steps == 7
    return np.float32([0, np.nan if isnan else 0]), 0, self.steps == 20, False, {{}}
""")
    settings = self.temporary / 'world.gin'
    settings.write_text(f'import {world.stem}\nExperiment.environment = @Late{fault}\n')
    with contextlib.redirect_stdout(io.StringIO()) as stdout:
      line, _ = self.failed([str(settings)])
    self.assertStartsWith(line, 'environment 0')
    self.assertEndsWith(line, expected.replace('WORLD', str(world)))
    self.assertStartsWith(stdout.getvalue(), 'printed 1\nprinted 2\n')

  def test_a_constructor_that_fails_is_found_in_the_user_s_file(self):
    world = self.temporary / 'world_unmade.py'
    world.write_text("""
def unmade(seed):
  raise ValueError('no doors left')
""")
    settings = self.temporary / 'world.gin'
    settings.write_text('import world_unmade\nExperiment.environment = @unmade\n')
    line, traceback = self.failed([str(settings)])
    self.assertEqual(line, 'making Experiment.environment = unmade: ValueError: no doors '
                     f'left ({world}, line 3)')
    self.assertIn('in unmade', traceback)

  @pytest.mark.medium
  def test_preparation_plays_an_episode_and_closes_the_environment(self):
    for check in True, False:
      gin.clear_config()
      CountedRecall.calls.clear()
      with contextlib.redirect_stdout(io.StringIO()) as stdout:
        prepare.prepare(
            [_GIN_FILE], [*_TINY, 'Experiment.environment = @CountedRecall'], check)
      # An episode has 4 actions, and the reset of the next takes a step.
      self.assertEqual(
          CountedRecall.calls,
          ['reset', *['step'] * 4, 'step', 'reset', 'close'] if check else ['close'])
      self.assertEqual(stdout.getvalue(), '')

  @parameterized.parameters('file', 'file/run')
  @pytest.mark.medium
  def test_a_folder_that_cannot_be_made(self, path):
    (self.temporary / 'file').touch()
    stderr = io.StringIO()
    with contextlib.redirect_stderr(stderr):
      code = train.train([_GIN_FILE], _TINY, f'{self.temporary}/{path}')
    self.assertEqual(code, 2)
    self.assertRegex(stderr.getvalue(), rf'^Not started: {self.temporary}/{path}: .*: '
                     r'expected a folder of its own for the run, .*\n$')

  def test_settings_without_an_environment(self):
    self.assertIn(
        'Experiment.environment is not set', self.refused([], ['Experiment.seed = 1']))

  def test_a_dataset_that_is_not_there(self):
    self.assertRegex(self.refused(
        _OFFLINE_FILES, ['OfflineExperiment.dataset = "nowhere"']),
                     'OfflineExperiment.dataset: /.*/nowhere: no dataset')


class ChangedSettingsTest(parameterized.TestCase):
  """A folder whose run was started, or is done, with `_TINY`."""

  def setUp(self):
    super().setUp()
    self.addCleanup(gin.clear_config)
    self.folder = run_folder.RunFolder(self.create_tempdir().full_path)
    with self.claimed():
      pass
    self.folder.evaluation.write_text('the evaluation')
    self.folder.scores.write_text('the scores')
    self.folder.curve.write_text('the curve')
    self.folder.done.touch()

  def claimed(self, *bindings, allow_changes=False):
    gin.clear_config()
    experiment = prepare.prepare([_GIN_FILE], [*_TINY, *bindings])
    return resuming.claimed(self.folder, experiment, allow_changes)

  def contents(self):
    return {path.name: path.read_bytes() for path in self.folder.root.iterdir()}

  def refused(self, message, *bindings, allow_changes=False):
    """Checks that a run is refused with one line, and that nothing was changed."""
    before, stderr = self.contents(), io.StringIO()
    gin.clear_config()
    with contextlib.redirect_stderr(stderr):
      code = train.train([_GIN_FILE], [*_TINY, *bindings], str(self.folder.root),
                         allow_changes=allow_changes)
    self.assertEqual(code, 2)
    self.assertEqual(self.contents(), before)
    line, = stderr.getvalue().splitlines()
    self.assertRegex(line, '^Not started: .* was started with other settings: '
                     f'{message}$')

  @pytest.mark.medium
  def test_other_settings_are_refused(self):
    for allow_changes in (True, False):
      self.refused(
          r'ActionRecall.delay = 2 \(now 5\), Experiment.seed = 0 \(now 5\), '
          r'OnlineExperiment.num_epochs = 1 \(now 2\); other settings need another '
          'folder', 'ActionRecall.delay = 5', 'Experiment.seed = 5',
          'OnlineExperiment.num_epochs = 2', 'OnlineExperiment.environment_steps = 70',
          allow_changes=allow_changes)

  @pytest.mark.medium
  def test_a_change_on_purpose_needs_the_flag(self):
    self.refused(
        r'Experiment.evaluation_episodes = 10 \(now 11\); --allow_changes continues .*',
        'Experiment.evaluation_episodes = 11')

  @pytest.mark.medium
  def test_the_same_settings_are_not_a_change(self):
    before = self.contents()
    with self.claimed('Experiment.seed = 0', 'DeepLSTM.num_layers = 9') as begins:
      self.assertEqual(self.contents(), before)
      self.assertFalse(begins)

  @pytest.mark.medium
  def test_the_earlier_record_is_kept(self):
    before = self.contents()
    for number, episodes in (1, 11), (2, 12):
      with contextlib.redirect_stdout(io.StringIO()) as stdout, self.claimed(
          f'Experiment.evaluation_episodes = {episodes}', allow_changes=True):
        pass
      self.assertRegex(stdout.getvalue(), fr'\(now {episodes}\).*config.{number}.gin')
    after = self.contents()
    self.assertEqual(after['config.1.gin'], before['config.gin'])
    self.assertEqual(after['evaluation.1.csv'], before['evaluation.csv'])
    self.assertEqual(after['scores.1.csv'], before['scores.csv'])
    self.assertIn(b'evaluation_episodes = 11', after['config.2.gin'])
    self.assertIn(b'evaluation_episodes = 12', after['config.gin'])
    self.assertIn('done', after)

  @pytest.mark.medium
  def test_a_run_that_is_done_continues_if_it_gets_more_steps(self):
    with contextlib.redirect_stdout(io.StringIO()), self.claimed(
        'OnlineExperiment.environment_steps = 123456', allow_changes=True) as begins:
      self.assertTrue(begins)
      for path in self.folder.done, self.folder.evaluation, self.folder.scores:
        self.assertFalse(path.exists())
    self.assertTrue(self.folder.evaluation.with_suffix('.1.csv').exists())

  @pytest.mark.medium
  def test_a_run_that_has_not_learned_yet_may_start_with_other_settings(self):
    self.folder.done.unlink()
    with self.claimed('Experiment.seed = 5') as begins:
      self.assertTrue(begins)
    self.assertIn('Experiment.seed = 5', self.folder.config.read_text())
    self.folder.metrics.write_text('learner_step\n2\n')
    self.refused(r'Experiment.seed = 5 \(now 0\); other settings need another folder')

  @pytest.mark.medium
  def test_a_run_that_goes_on_says_from_where(self):
    self.folder.done.unlink()
    gin.clear_config()
    experiment = prepare.prepare([_GIN_FILE], _TINY)
    saved = checkpoints.Checkpoints(
        self.folder.checkpoints, 1, kind=experiment.kind, agent=experiment.make_agent())
    saved.restore()
    saved.save(3210)
    with contextlib.redirect_stdout(io.StringIO()) as stdout, self.claimed():
      pass
    self.assertEqual(stdout.getvalue(), 'Going on from learner step 3,210.\n')
    self.folder.done.touch()
    with contextlib.redirect_stdout(io.StringIO()) as stdout, self.claimed():
      pass
    self.assertEqual(stdout.getvalue(), '')

  @parameterized.parameters('policy', 'config.gin')
  @pytest.mark.medium
  def test_a_folder_of_something_else_is_refused(self, name):
    self.folder = run_folder.RunFolder(self.create_tempdir().full_path)
    (self.folder.root / name).write_text('# My settings.\nAdam.learning_rate = 1e-3\n')
    with self.assertRaisesRegex(
        config.ConfigError, f'{name}: no run has written it'), self.claimed():
      pass
    self.assertStartsWith((self.folder.root / name).read_text(), '# My settings.')

  @pytest.mark.medium
  def test_a_config_that_cannot_be_read_is_refused(self):
    self.folder.config.write_bytes(b'\xff')
    with self.assertRaisesRegex(config.ConfigError, 'config.gin'), self.claimed():
      pass


class OfflineRunTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    gin.clear_config()
    self.addCleanup(gin.clear_config)

  def test_scores_are_stored_with_an_evaluation(self):
    folder = run_folder.RunFolder(
        f'{self.create_tempdir().full_path}/a folder with a name')
    metrics_csv.MetricsWriter(folder.metrics).append(
        {'learner_step': 1, 'seconds': 1, 'return': 2, 'score': 3})
    experiment = experiment_lib.OnlineExperiment(
        environment=lambda corridor_length, seed: t_maze.TMaze(corridor_length, seed),
        tasks={'corridor_length': (3, 4)},
        score=lambda returns: {'score': returns['3'] + 10 * returns['4'], 'other': 7})
    with contextlib.redirect_stdout(io.StringIO()) as stdout:
      train._show(experiment, folder, evaluation.Evaluation(
          [1., 2., 5.], [1., 1., 1.], [0, 0, 1], {}), None)
    self.assertEqual(metrics_csv.read_metrics(folder.scores),
                     [{'score': 51.5, 'other': 7}])
    self.assertLen(metrics_csv.read_metrics(folder.evaluation), 3)
    self.assertIn('score 51.5, other 7.0', stdout.getvalue())
    self.assertIn(f"evaluate --root_dir='{folder.root}'\n", stdout.getvalue())

  @pytest.mark.long
  def test_an_error_of_an_environment_in_training_is_one_line_and_a_file(self):
    temporary = pathlib.Path(self.create_tempdir().full_path)
    dataset, folder = temporary / 'mazes', run_folder.RunFolder(temporary / 'run')
    testing.write_informed_episodes(
        dataset, t_maze.TMaze(corridor_length=4, seed=0), 20)
    bindings = [f'OfflineExperiment.dataset = "{dataset}"',
                'OfflineExperiment.learner_steps = 1', 'Experiment.log_period = 1',
                'OfflineExperiment.batch_size = 2', 'Experiment.evaluation_episodes = 2',
                'Experiment.environment = @BrokenMaze']
    stderr, stdout = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(stderr), contextlib.redirect_stdout(
        stdout):
      code = train.train_as_learner(
          parts.Settings(_OFFLINE_FILES, bindings), str(folder.root), None)
    self.assertEqual(code, 1)
    failure = folder.failures / 'learner.txt'
    # The environments are reset once before the first episode that is played.
    line = stderr.getvalue().splitlines()[-1]
    self.assertRegex(line, r'^Stopped: learner: environment 0.*episode 2, step 1')
    self.assertIn(f'(traceback: {failure})', line)
    self.assertNotIn('Traceback', stderr.getvalue())
    self.assertIn('Traceback', failure.read_text())

  @pytest.mark.long
  def test_a_run_leaves_its_pictures_and_tables(self):
    temporary = pathlib.Path(self.create_tempdir().full_path)
    dataset, folder = temporary / 'mazes', run_folder.RunFolder(temporary / 'run')
    testing.write_informed_episodes(
        dataset, t_maze.TMaze(corridor_length=4, seed=0), 20)
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout):
      code = train.train(_OFFLINE_FILES, [
          f'OfflineExperiment.dataset = "{dataset}"',
          'OfflineExperiment.learner_steps = 4', 'Experiment.log_period = 2',
          'OfflineExperiment.batch_size = 2', 'OfflineExperiment.evaluation_period = 2',
          'Experiment.tasks = {"corridor_length": (3, 4)}',
          'Experiment.evaluation_episodes = 2'], str(folder.root))
    self.assertEqual(code, 0)
    self.assertRegex(stdout.getvalue(), 'Training in .* on the 20 episodes of')
    self.assertRegex(stdout.getvalue(), '3: .* over 2 episodes, success')
    rows = metrics_csv.read_metrics(folder.metrics)
    self.assertEqual([row['learner_step'] for row in rows], [2, 4])
    self.assertContainsSubset(
        ['return', 'success_3', 'success_4', 'loss', 'gradient_norm'], rows[0])
    for path in (folder.config, folder.done, folder.curve, folder.evaluation,
                 folder.policy / 'saved_model.pb'):
      self.assertTrue(path.exists(), path)

    # The folder is this run's.
    before, stderr = folder.config.read_bytes(), io.StringIO()
    gin.clear_config()
    with contextlib.redirect_stderr(stderr):
      code = train.train(_OFFLINE_FILES, [
          f'OfflineExperiment.dataset = "{dataset}"', 'RATE.num_memory_tokens = 3'],
          str(folder.root))
    self.assertEqual(code, 2)
    self.assertRegex(
        stderr.getvalue(), r'^Not started: .* RATE.num_memory_tokens = 5 \(now 3\).*\n$')
    self.assertEqual(folder.config.read_bytes(), before)

    drawn = subprocess.run(
        [sys.executable, '-m', 'binaries.attention', f'--root_dir={folder.root}',
         '--episode=3'], cwd=_ROOT, capture_output=True, text=True, check=False)
    self.assertIn('segment_0.png: cache 0.000, read 0.', drawn.stdout, drawn.stderr)
    self.assertTrue((folder.root / 'attention' / 'segment_0.png').exists())


class RunTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = run_folder.RunFolder(
        pathlib.Path(self.create_tempdir().full_path) / 'run')
    self.files = [_GIN_FILE]

  def start(self, *bindings, allow_changes=False) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, '-m', 'binaries.train',
         *(f'--gin_file={file}' for file in self.files),
         f'--root_dir={self.folder.root}', f'--allow_changes={allow_changes}',
         *(f'--gin_bindings={binding}' for binding in (*_TINY, *bindings))],
        cwd=_ROOT, env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    self.addCleanup(process.kill)
    return process

  def test_a_script_without_the_guard_is_told_if_another_module_calls(self):
    script = self.folder.root.parent / 'script.py'
    script.write_text('import contextlib\nfrom gtrxl_tf.launch import train\n'
                      'with contextlib.ExitStack() as stack:\n'
                      f'  stack.callback(train.train, ["none.gin"], [], "{self.folder.root}")')
    shown = io.StringIO()
    with mock.patch.object(os, '_exit', side_effect=SystemExit), (
        contextlib.redirect_stdout(shown)), self.assertRaises(SystemExit):
      runpy.run_path(str(script), run_name='__mp_main__')
    self.assertIn("expected it below `if __name__ == '__main__':`", shown.getvalue())

  @parameterized.parameters('memory', 'reverb')
  @pytest.mark.long
  def test_a_run_is_interrupted_and_resumed(self, transport):
    world = self.folder.root.parent / 'recorded_world.py'
    world.write_text(f'''
import multiprocessing
from gtrxl_tf.environments import action_recall
class RecordedRecall(action_recall.ActionRecall):
  def __init__(self, seed):
    super().__init__(delay=2, seed=seed)
    with open({str(self.folder.root.parent / 'seeds.txt')!r}, 'a') as file:
      print(multiprocessing.current_process().name, seed, file=file)
''')
    settings = self.folder.root.parent / 'world.gin'
    settings.write_text(
        f'import {world.stem}\nExperiment.environment = @RecordedRecall\n'
        f'OnlineExperiment.transport = "{transport}"\n')
    self.files.append(str(settings))
    process = self.start('OnlineExperiment.environment_steps = 1000000000')
    deadline = time.time() + 240  # On a busy machine, starting takes minutes.
    while (metrics_csv.last_metrics(self.folder.metrics) is None
           and time.time() < deadline):
      time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)
    self.assertEqual(process.returncode, 130, stderr)
    self.assertIn('Run the same command to continue from', stdout)
    self.assertFalse(self.folder.done.exists())
    before = metrics_csv.last_metrics(self.folder.metrics)

    steps = before['environment_steps'] + 2000
    process = self.start(
        f'OnlineExperiment.environment_steps = {steps:.0f}', allow_changes=True)
    stdout, stderr = process.communicate(timeout=240)
    self.assertEqual(process.returncode, 0, stderr)
    rows = metrics_csv.read_metrics(self.folder.metrics)
    self.assertEqual([row['learner_step'] for row in rows],
                     [2 * (i + 1) for i in range(len(rows))])
    self.assertGreater(len(rows), before['learner_step'] / 2)
    self.assertRegex(
        stdout, r'^Settings .*\nGoing on from learner step [\d,]+\.\nTraining in ')
    self.assertRegex(stdout, r'Evaluation over 10 episodes: return .* success ')
    self.assertRegex(
        stdout, rf'gtrxl evaluate --root_dir={self.folder.root}\n')
    for line in stderr.splitlines():  # The messages of libraries are in the logs.
      self.assertStartsWith(line, 'WARNING: ')
    self.assertCountEqual(
        [path.name for path in self.folder.logs.iterdir()],
        ['train.log', 'learner.log', 'actor_0.log',
         *(['server.log'] if transport == 'reverb' else [])])
    self.assertRegex((self.folder.logs / 'learner.log').read_text(),
                     r'(?m)^[-\d]+ [:,\d]+ INFO learner: resuming from .*ckpt-\d+$')
    for path in (self.folder.config, self.folder.done, self.folder.curve,
                 self.folder.evaluation, self.folder.policy / 'saved_model.pb'):
      self.assertTrue(path.exists(), path)
    self.assertFalse(self.folder.diverged.exists())
    seeds = [line.split() for line in
             (self.folder.root.parent / 'seeds.txt').read_text().splitlines()]
    of_specs = {seed for name, seed in seeds if name == 'learner'}
    played = [seed for name, seed in seeds if name == 'actor_0' and seed not in of_specs]
    self.assertLen(played, 2 * 16)
    self.assertLen(set(played), 2 * 16, 'a resumed run plays the same episodes again')

  @pytest.mark.long
  def test_a_save_that_a_full_disk_prevents_is_reported(self):
    disk = testing.small_disk(self, 14 * 1024)
    self.folder = run_folder.RunFolder(disk / 'run')
    process = self.start('OnlineExperiment.environment_steps = 1000000000',
                         'Checkpoints.period = 20')
    deadline = time.time() + 240
    while time.time() < deadline and not list(self.folder.checkpoints.glob('*.index')):
      time.sleep(0.1)
    with testing.full(disk):
      time.sleep(1)  # For another learner step.
      process.send_signal(signal.SIGTERM)
      stdout, stderr = process.communicate(timeout=120)
    self.assertEqual(process.returncode, 1, stderr)
    self.assertNotIn('Interrupted', stdout)
    self.assertNotIn('Traceback', stderr)
    self.assertRegex(
        stderr, r'Stopped: checkpoint \d+ was not saved in .*No space left on device.*; '
        r'the newest is .*/ckpt-\d+')
    self.assertRegex(stderr, r'Stopped: the learner did not save \(.*\): its steps '
                     'since the newest checkpoint')


if __name__ == '__main__':
  absltest.main()
