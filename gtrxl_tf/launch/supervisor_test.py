"""Tests of supervisor.py: when it abandons a run, and what the run leaves behind."""

import math
import pathlib
import re
import signal
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from gtrxl_tf.launch import exit_codes
from gtrxl_tf.launch import parts
from gtrxl_tf.launch import supervisor
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder
from gtrxl_tf.training.online import placement

_FORGIVEN = 5


class _Process:
  """A process that runs until the test ends it."""

  def __init__(self, *, args, **_):
    self.main, _ = args
    self.exitcode = None

  def start(self):
    pass

  def is_alive(self):
    return self.exitcode is None


class _Stopping(_Process):
  """A process that takes some seconds to stop; `clock` is the test's."""

  def __init__(self, clock, seconds):
    super().__init__(args=(None, None))
    self._clock, self._seconds, self._told = clock, seconds, None

  def terminate(self):
    self._told = self._clock.now

  def join(self, timeout=math.inf):
    left = self._told + self._seconds - self._clock.now
    self._clock.now += max(0, min(left, timeout))
    if left <= timeout:
      self.exitcode = 0

  def kill(self):
    self.exitcode, self._seconds = -signal.SIGKILL, 0


class SupervisorTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = run_folder.RunFolder(self.create_tempdir().full_path)
    self.now, self.step, self.started = 0.0, 0, []
    self.enter_context(mock.patch.object(
        supervisor.time, 'monotonic', lambda: self.now))
    self.start()

  def start(self, **settings):
    """Starts all parts by a new supervisor."""
    self.supervisor = supervisor.Supervisor(
        '', str(self.folder.root), num_actors=2, evaluator=True, **settings)
    self.enter_context(mock.patch.object(
        self.supervisor, '_context', mock.Mock(Process=self.process)))
    self.supervisor.start()

  def process(self, **settings):
    self.started.append(_Process(**settings))
    return self.started[-1]

  def write(self, path, **row):
    self.step += 10
    metrics_csv.MetricsWriter(path).append({'learner_step': self.step, **row})

  def die(self, name, exit_code=-signal.SIGKILL, error=None, after=100.0):
    """Ends a part's process after some seconds, and calls `restart_the_dead`."""
    self.now += after
    if error is not None:
      self.folder.failures.mkdir(exist_ok=True)
      self.failure(name).write_text(f'{error}\n\nTraceback: the places\n')
    process = self.supervisor.processes[name]
    process.exitcode = exit_code
    with self.assertLogs('absl', 'WARNING') as logs:
      self.supervisor.restart_the_dead()
    self.assertIsNot(self.supervisor.processes[name], process)
    self.assertLen(logs.output, 1)
    return logs.output[0]

  def failure(self, name) -> pathlib.Path:
    return self.folder.failures / f'{name}.txt'

  def gives_up(self, message, *args, **kwargs):
    with self.assertRaisesRegex(exit_codes.RunFailed, message) as caught:
      with self.assertLogs('absl', 'WARNING'):
        self.die(*args, **kwargs)
    self.assertNotIn('\n', str(caught.exception))
    return str(caught.exception)

  @parameterized.parameters('server', 'learner', 'actor_1', 'evaluator')
  def test_a_part_that_dies_without_progress_ends_the_run(self, name):
    self.write(self.folder.metrics, **{'return': 0.5})
    for _ in range(_FORGIVEN):
      self.die(name, 1, 'it is broken')
    line = self.gives_up(
        f'^{name} died 6 times while the run made no progress: it is broken '
        rf'\(traceback: {re.escape(str(self.failure(name)))}\)$',
        name, 1, 'it is broken')
    reason, _, rest = self.failure(name).read_text().partition('\n')
    self.assertStartsWith(line, reason)
    self.assertIn('Traceback: the places', rest)

  def test_a_part_that_is_killed_while_the_run_makes_progress_does_not_end_it(self):
    for _ in range(5 * _FORGIVEN):
      self.write(self.folder.metrics, **{'return': math.nan})
      for name in 'server', 'learner', 'actor_0':
        self.assertIn(f'{name} died (SIGKILL); starting', self.die(name))

  def test_kills_without_progress_end_it(self):
    for _ in range(_FORGIVEN):
      self.die('learner')
    self.gives_up(
        '^learner died 6 times while the run made no progress: SIGKILL$', 'learner')
    self.assertStartsWith(self.failure('learner').read_text(), 'learner died 6 times')

  def test_progress_is_counted_from_the_farthest_step_of_all_starts(self):
    # A learner that always dies before its first checkpoint repeats its steps.
    for i in range(_FORGIVEN):
      self.step = 0 if i else 50
      self.write(self.folder.metrics, **{'return': 0.5})
      self.die('learner')
      self.folder.metrics.unlink()
    self.gives_up('learner died 6 times while the run made no progress', 'learner')

  def test_errors_of_an_actor_before_any_episode_has_ended(self):
    # The learner takes the unrolls of an environment that fails in every episode.
    for i in range(_FORGIVEN):
      self.write(self.folder.metrics, **{'return': math.nan})
      self.die('actor_0', 1, f'error {i}')
    self.write(self.folder.metrics, **{'return': math.nan})
    self.gives_up('actor_0 died 6 times while .* no progress: the last', 'actor_0', 1,
                  'the last')

  def test_errors_of_an_actor_between_episodes_are_survived(self):
    for _ in range(5 * _FORGIVEN):
      self.write(self.folder.metrics, **{'return': 0.5})
      self.die('actor_0', 1, 'seldom')

  def test_an_actor_that_fails_in_the_same_way_each_time_ends_the_run_soon(self):
    for i in range(2):
      self.write(self.folder.metrics, **{'return': 0.5})
      self.die('actor_0', 1, f'environment {i}: reward = nan (step 30{i})', after=25.0)
      self.die('actor_1', 1, f'another error {i}', after=1.0)
    self.write(self.folder.metrics, **{'return': 0.5})
    self.gives_up(
        r'^actor_0 died 3 times in the same way: environment 7: reward = nan \(step 9\)',
        'actor_0', 1, 'environment 7: reward = nan (step 9)', after=25.0)

  def test_errors_at_the_same_step_end_it_whenever_they_come(self):
    error = 'environment 0: reward = nan (episode 10, step 20)'
    for step in (20, 21, 22, 20):
      self.write(self.folder.metrics, **{'return': 0.5})
      self.die('actor_0', 1, error.replace('20', str(step)), after=500.0)
    self.gives_up('^actor_0 died 3 times in the same way: environment 0: reward = nan ',
                  'actor_0', 1, error, after=500.0)

  @parameterized.parameters(
      ('[-0. nan -0.]', '[ 0. nan 0.]', '[0. nan -1.5e-07]'), ('nan', '-inf', '3e+38'),
      ('[0.25 0.5 na', '[-0.1 nan 1.5e', '[ 1. 2. 3. -'))
  def test_errors_that_differ_in_numbers_are_the_same(self, *values):
    texts = [f'environment {i}: observation = {value}: expected finite numbers (episode '
             '1, step 7)' for i, value in enumerate(values)]
    for text in texts[:2]:  # The same step, at any time.
      self.assertIn(text, self.die('actor_0', 1, text, after=500.0))
    self.gives_up('actor_0 died 3 times in the same way', 'actor_0', 1, texts[2])

  def test_different_errors_of_an_actor_do_not_end_it_soon(self):
    for error in ('one', 'two', 'three') * 2:
      self.write(self.folder.metrics, **{'return': 0.5})
      self.die('actor_0', 1, error, after=25.0)

  def test_deaths_at_a_high_rate_end_it_in_spite_of_progress(self):
    for _ in range(_FORGIVEN):
      self.write(self.folder.metrics, **{'return': 0.5})
      self.die('actor_0', after=11.0)
    self.write(self.folder.metrics, **{'return': 0.5})
    self.gives_up('^actor_0 died 6 times within 60 s: SIGKILL$', 'actor_0', after=1.0)

  def test_an_evaluator_has_progress_of_its_own(self):
    for _ in range(5 * _FORGIVEN):
      self.write(self.folder.evaluations, **{'return': 0.5})
      self.die('evaluator', 1, 'seldom')
    for _ in range(_FORGIVEN - 1):
      self.write(self.folder.metrics, **{'return': 0.5})
      self.die('evaluator', 1, 'always')
    self.gives_up(
        'evaluator died 6 times while .* no progress', 'evaluator', 1, 'always')

  def test_damaged_metrics_are_no_progress_and_no_error(self):
    self.folder.metrics.write_bytes(bytes(range(256)))
    for _ in range(_FORGIVEN):
      self.die('server')
    self.gives_up('server died 6 times while .* no progress', 'server')

  def test_an_error_is_kept_until_the_part_dies_of_something_else(self):
    self.die('actor_0', 1, 'once')
    self.assertTrue(self.failure('actor_0').exists())
    self.die('actor_1')
    self.assertTrue(self.failure('actor_0').exists())
    self.die('actor_0')
    self.assertFalse(self.failure('actor_0').exists())

  def test_no_start_of_an_actor_repeats_an_earlier_one_of_the_run(self):
    self.die('actor_1')
    for _ in range(2):  # The run is interrupted and resumed.
      self.write(self.folder.metrics, **{'return': 0.5})
      self.start()
      self.die('actor_1')
    numbers = [tuple(process.main.keywords.values()) for process in self.started
               if process.main.args[-1] == 1]
    self.assertLen(numbers, 6)
    self.assertLen(set(numbers), 6)

  def test_a_run_that_begins_plays_the_episodes_of_its_seed(self):
    for _ in range(2):  # The first was interrupted before it learned anything.
      self.start()
    numbers = [process.main.keywords['start'] for process in self.started
               if 'start' in process.main.keywords]
    self.assertEqual(numbers, [0] * 6)

  def test_inference_servers_of_a_run_have_different_noise(self):
    self.start(inference=placement.Inference(num_servers=2))
    self.assertEqual(
        [process.main.keywords['start'] for process in self.started
         if process.main.func == parts.infer], [0, 1])

  def test_the_errors_of_an_earlier_attempt_are_removed(self):
    self.die('actor_0', 1, 'once')
    self.supervisor.start()
    self.assertFalse(self.folder.failures.exists())

  @parameterized.parameters(
      (False, 20, 250, 20, 270, []), (False, 20, 400, 20, 320, ['server']),
      (False, 40, 1, 1, 31, ['learner']), (True, 1, 250, 1, 6, ['server']),
      (False, 1, 1, 99, 6, ['actor_0', 'actor_1', 'evaluator']))
  def test_the_learner_and_the_server_have_time_to_write(
      self, done, learner, server, others, ends, killed):
    if done:
      self.folder.done.touch()
    times = {'learner': learner, 'server': server}
    self.supervisor.processes = {
        name: _Stopping(self, times.get(name, others)) for name in self.supervisor.processes}
    self.supervisor.stop(30.0)
    self.assertEqual(self.supervisor.killed, set(killed))
    self.assertAlmostEqual(self.now, ends, delta=0.5)


class SavedTest(parameterized.TestCase):

  @parameterized.parameters(0, -signal.SIGTERM)
  def test_a_learner_that_saved_or_had_not_begun(self, exit_code):
    supervisor._check_saved(exit_code, self.folder, False)

  def setUp(self):
    super().setUp()
    self.folder = run_folder.RunFolder(self.create_tempdir().full_path)

  def save(self):
    self.folder.checkpoints.mkdir()
    (self.folder.checkpoints / 'ckpt-10.index').touch()

  def test_a_learner_whose_exit_code_is_lost_may_have_saved(self):
    with self.assertRaisesRegex(
        exit_codes.RunFailed, 'the fork server, .* was killed: the newest checkpoint is in '
        '.*/checkpoints. Run the same command'):
      supervisor._check_saved(255, self.folder, False)

  @parameterized.parameters(
      (1, False, 'the reason is above'), (-signal.SIGKILL, False, 'it was killed by SIGKILL'),
      (-signal.SIGKILL, True, 'its learner step did not end in time, and it was killed'))
  def test_a_lost_save_is_an_error(self, exit_code, killed, why):
    with self.assertRaisesRegex(
        exit_codes.RunFailed, rf'^the learner did not save \({why}\): all its steps are '
        'lost, since there is no checkpoint yet. Run the same command to begin again.$'):
      supervisor._check_saved(exit_code, self.folder, killed)
    self.save()
    with self.assertRaisesRegex(
        exit_codes.RunFailed, rf'^the learner did not save \({why}\): its steps since '
        'the newest checkpoint in .*/checkpoints are lost. Run the same command to cont'):
      supervisor._check_saved(exit_code, self.folder, killed)

  def test_the_error_of_a_lost_save_is_in_the_line(self):
    with self.assertRaisesRegex(
        exit_codes.RunFailed, r'^the learner did not save \(no space\): all its steps'):
      supervisor._check_saved(1, self.folder, False, 'no space\n\nTraceback')

  @parameterized.parameters((None, 30), (math.nan, 30), (0.0, 30), (0.1, 50))
  def test_a_learner_with_long_steps_has_time_to_end_one(self, speed, seconds):
    if speed is not None:
      metrics_csv.MetricsWriter(self.folder.metrics).append(
          {'learner_step': 1, 'learner_steps_per_second': speed})
    self.assertEqual(supervisor._seconds_to_save(self.folder), seconds)


if __name__ == '__main__':
  absltest.main()
