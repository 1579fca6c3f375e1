"""Tests of the binaries that inspect runs, each in a process as a user starts it."""

import csv
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from unittest import mock

from absl.testing import absltest
import gin
import numpy as np
from PIL import Image
import pytest
import tensorflow as tf

from gtrxl_tf import testing
from gtrxl_tf.launch import history_runs_testing
from gtrxl_tf.launch import prepare
from gtrxl_tf.serving import export
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder

_ROOT = pathlib.Path(__file__).parents[1]
_SETTINGS = ['ActionRecall.delay = 2', 'TransformerXL.memory_length = 4']
_GIN_FILE = 'gin/gtrxl/action_recall_cpu.gin'


def _run(binary, **flags):
  """Runs a binary; `key=value` is the flag `--key=value`."""
  return subprocess.run(
      [sys.executable, '-m', f'binaries.{binary}',
       *(f'--{key}={value}' for key, value in flags.items())],
      cwd=_ROOT, env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'},
      capture_output=True, text=True, check=False)


def _contents(folder):
  return {path: path.read_bytes() for path in folder.root.rglob('*') if path.is_file()}


class BinariesTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self._temporary = pathlib.Path(self.create_tempdir().full_path)

  def _make_run(self, gin_file=_GIN_FILE, settings=tuple(_SETTINGS)
                ) -> run_folder.RunFolder:
    """A run after training, as far as the binaries can tell."""
    folder = run_folder.RunFolder(self._temporary / 'run')
    folder.root.mkdir()
    gin.clear_config()
    self.addCleanup(gin.clear_config)
    self._experiment = prepare.prepare([str(_ROOT / gin_file)], settings)
    folder.config.write_text(gin.operative_config_str())
    self._agent = self._experiment.make_agent()
    # Every checkpoint contains these, and its target network differs from the online
    # one.
    optimizer = self._experiment.make_optimizer()
    optimizer.apply_gradients(
        [(tf.ones_like(v), v) for v in self._agent.online.trainable_variables])
    saved = checkpoints.Checkpoints(
        folder.checkpoints, 1, kind='Experiment', agent=self._agent, optimizer=optimizer)
    saved.restore()
    saved.save(1)
    return folder

  @pytest.mark.long
  def test_evaluate_plays_the_runs_task_by_default(self):
    folder = self._make_run()
    export.save_policy(
        self._experiment.make_policy(self._agent.target), folder.policy)
    before = _contents(folder)
    done = _run('evaluate', root_dir=folder.root, num_episodes=7,
                gin_bindings='ActionRecall.delay = 3')
    self.assertEqual(_contents(folder), before)  # The run's own record.
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertStartsWith(done.stdout, 'Evaluation over 7 episodes: return ')
    self.assertIn('informed policy 1.00, success ', done.stdout)

  @pytest.mark.long
  def test_an_online_run_can_be_watched(self):
    folder = self._make_run('gin/gtrxl/t_maze_30_cpu.gin', [
        'TMaze.corridor_length = 4', 'TransformerXL.memory_length = 4'])
    export.save_policy(
        self._experiment.make_policy(self._agent.target), folder.policy)
    before = _contents(folder)
    done = _run('evaluate', root_dir=folder.root, num_episodes=7, video=True)
    self.assertEqual(done.returncode, 0, done.stderr)
    films, evaluation = done.stdout.splitlines()
    self.assertRegex(
        films, f'^Films: {folder.videos}/episode_0.gif \\(return [-.\\d]+\\), '
        f'{folder.videos}/episode_1.gif .*episode_2.gif')
    self.assertStartsWith(evaluation, 'Evaluation over 7 episodes: ')
    for i in range(3):
      with Image.open(folder.videos / f'episode_{i}.gif') as film:
        self.assertEqual(film.size, (480, 288))
        self.assertBetween(film.n_frames, 1, 7)
    self.assertNotEmpty(list((folder.summaries / 'films').glob('events*')))

    done = _run('attention', root_dir=folder.root)
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertRegex(done.stdout, f'^{folder.root}/attention/episode_0.png: [2-7] steps, '
                     r'attention goes \d\.\d steps back on average\n$')
    self.assertTrue((folder.root / 'attention/episode_0_heads.png').exists())
    after = _contents(folder)
    self.assertEqual({path: after[path] for path in before}, before)

  @pytest.mark.long
  def test_an_environment_that_cannot_be_drawn_is_not_filmed(self):
    folder = self._make_run()
    export.save_policy(
        self._experiment.make_policy(self._agent.target), folder.policy)
    done = _run('evaluate', root_dir=folder.root, video=True)
    self.assertEqual((done.returncode, done.stdout), (2, ''))
    self.assertRegex(done.stderr, r'Not started: ActionRecall cannot be drawn: '
                     r'expected a method render\(\) .*\n$')
    self.assertFalse(folder.videos.exists())

  @pytest.mark.long
  def test_an_error_of_the_environment_is_one_line_and_a_file(self):
    folder = self._make_run()
    export.save_policy(
        self._experiment.make_policy(self._agent.target), folder.policy)
    (self._temporary / 'broken_recall.py').write_text('''
import gin
from gtrxl_tf.environments import action_recall

class Broken(action_recall.ActionRecall):
  def step(self, action):
    return None

@gin.configurable
def BrokenRecall(seed):
  return Broken(delay=2, seed=seed)
''')
    settings = self._temporary / 'broken.gin'
    settings.write_text('import broken_recall\nExperiment.environment = @BrokenRecall\n')
    path = f'{self._temporary}{os.pathsep}{_ROOT}'
    with mock.patch.dict(os.environ, PYTHONPATH=path):
      done = _run('evaluate', root_dir=folder.root, gin_file=settings)
    self.assertEqual(done.returncode, 1)
    failure = folder.failures / 'evaluate.txt'
    self.assertIn('Stopped: evaluation: environment 0: returned None', done.stderr)
    self.assertIn(f'(traceback: {failure})\n', done.stderr)
    self.assertNotIn('Traceback', done.stderr)
    self.assertIn('Traceback', failure.read_text())

  @pytest.mark.long
  def test_export_writes_the_target_network_of_the_newest_checkpoint(self):
    folder = self._make_run()
    output_dir = self._temporary / 'exported'
    before = _contents(folder)
    done = _run('export', root_dir=folder.root, output_dir=output_dir, greedy=True)
    self.assertEqual(_contents(folder), before)
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertIn(f'saved_model_cli show --dir {output_dir}', done.stdout)
    self.assertRegex(
        done.stdout, r'^Inputs of the signature action, for any number of rows:\n'
        r'  0/discount +float32  \[rows\]\n  0/observation +float32  \[rows, 5\]\n'
        r'  0/reward +float32  \[rows\]\n  0/step_type +int32    \[rows\]\n  1/')

    exported = tf.saved_model.load(str(output_dir))
    policy = self._experiment.make_policy(self._agent.target, greedy=True)
    seen = testing.restart(tf.eye(3, *self._experiment.observation_spec.shape), 3)
    expected = policy.action(seen, policy.get_initial_state(3))
    step = exported.action(seen, exported.get_initial_state(3))
    tf.debugging.assert_near(
        step.info.policy.logits, expected.info.policy.logits, atol=1e-6)
    tf.debugging.assert_equal(step.action, expected.action)

  @pytest.mark.long
  def test_evaluate_can_play_greedily(self):
    folder = self._make_run()
    export.save_policy(
        self._experiment.make_policy(self._agent.target), folder.policy)
    sampled, again, greedy = (
        _run('evaluate', root_dir=folder.root, greedy=greedy)
        for greedy in (False, False, True))
    self.assertEqual(greedy.returncode, 0, greedy.stderr)
    self.assertStartsWith(greedy.stdout, 'Evaluation over 100 episodes: return ')
    self.assertEqual(sampled.stdout, again.stdout)
    self.assertNotEqual(sampled.stdout, greedy.stdout)

  @pytest.mark.long
  def test_export_overwrites_nothing(self):
    folder = run_folder.RunFolder(self._temporary)
    folder.config.touch()
    done = _run('export', root_dir=folder.root, output_dir=folder.root)
    self.assertEqual(done.returncode, 2)
    self.assertIn('--output_dir must name a new folder', done.stderr)
    self.assertTrue(folder.config.exists())

  @pytest.mark.long
  def test_runs_of_compare_save_when_it_is_interrupted_in_a_terminal(self):
    with open(self._temporary / 'compare.txt', 'wb') as log:
      process = subprocess.Popen(  # pylint: disable=consider-using-with
          [sys.executable, '-m', 'binaries.compare', f'--gin_file={_GIN_FILE}',
           f'--root_dir={self._temporary}/runs', '--models=lstm', '--seeds=1',
           '--gin_bindings=OnlineExperiment.environment_steps = 1000000000',
           '--gin_bindings=Checkpoints.period = 1000000000'],
          cwd=_ROOT, stdout=log, stderr=log, start_new_session=True)
    self.addCleanup(process.wait)
    self.addCleanup(process.kill)
    folder = run_folder.RunFolder(self._temporary / 'runs/lstm/seed_0')
    deadline = time.time() + 240  # On a busy machine, starting takes minutes.
    while metrics_csv.last_metrics(folder.metrics) is None and time.time() < deadline:
      time.sleep(0.1)
    self.assertFalse(folder.has_checkpoint)
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=120)
    said = (self._temporary / 'compare.txt').read_text()
    self.assertTrue(folder.has_checkpoint, said)
    self.assertIn('Run the same command to continue', said)


class LearningProcessesTest(absltest.TestCase):
  """Tests on a run whose policy would learn while it acts, but is untrained."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls._folder = history_runs_testing.make_run(
        cls.enter_context(tempfile.TemporaryDirectory()), 'ed')

  @pytest.mark.long
  def test_evaluate_plays_them_at_each_point_of_a_sweep(self):
    done = _run('evaluate', root_dir=self._folder.root,
                sweep='DistillationPolicy.temperature=1.0,0.0')
    self.assertEqual(done.returncode, 0, done.stderr)
    first, misses, second, _, picture = done.stdout.splitlines()
    self.assertStartsWith(first, 'DistillationPolicy.temperature=1.0: In the last')
    self.assertStartsWith(misses, 'DistillationPolicy.temperature=1.0: Share of episodes')
    self.assertStartsWith(second, 'DistillationPolicy.temperature=0.0: In the last')
    self.assertNotEqual(first.partition(': ')[2], second.partition(': ')[2])
    self.assertEqual(picture, f'Learning processes: {self._folder.root}/evaluation.png')
    self.assertTrue((self._folder.root / 'evaluation.png').exists())

  @pytest.mark.long
  def test_evaluate_names_the_setting_for_a_number_of_episodes(self):
    done = _run('evaluate', root_dir=self._folder.root, num_episodes=7)
    self.assertEqual((done.returncode, done.stdout), (2, ''))
    self.assertIn('HistoryCollector.num_evaluation', done.stderr)

  @pytest.mark.long
  def test_export_takes_the_policys_settings(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    greedy = _run('export', root_dir=self._folder.root, output_dir=folder / 'greedy',
                  greedy=True)
    self.assertEqual(greedy.returncode, 0, greedy.stderr)
    random = _run('export', root_dir=self._folder.root, output_dir=folder / 'random',
                  gin_bindings='DistillationPolicy.temperature = 100.0')
    self.assertEqual(random.returncode, 0, random.stderr)
    kinds = []
    for name in ('greedy', 'random'):
      policy = tf.saved_model.load(str(folder / name))
      spec = next(x for x in policy.signatures['action'].structured_input_signature[1]
                  .values() if x.name == '0/observation')
      step = policy.action(
          testing.restart(tf.zeros([100, *spec.shape[1:]], spec.dtype), 100),
          policy.get_initial_state(100))
      kinds.append(len(set(step.action.numpy())))
    self.assertEqual(kinds, [1, 5])

  @pytest.mark.long
  def test_attention_draws_the_share_of_the_recurrence(self):
    done = _run('attention', root_dir=self._folder.root)
    self.assertEqual(done.returncode, 0, done.stderr)
    picture = self._folder.root / 'attention' / 'recurrence.png'
    self.assertStartsWith(done.stdout, f'{picture}: 0.000 at the start, ')
    self.assertTrue(picture.exists())
    with open(picture.with_suffix('.csv'), encoding='utf-8') as file:
      rows = list(csv.DictReader(file))
    # 30 steps contain 7 whole segments.
    self.assertEqual([row['transitions'] for row in rows],
                     [str(4 * i) for i in range(1, 8)])
    # Attention is even at first: 4 keys of memory for 1 to 4 of the segment's.
    shares = [float(row['share']) for row in rows]
    self.assertEqual(shares[0], 0)
    np.testing.assert_allclose(
        shares[1:], np.mean([4 / (4 + i) for i in range(1, 5)]), atol=0.05)


if __name__ == '__main__':
  absltest.main()
