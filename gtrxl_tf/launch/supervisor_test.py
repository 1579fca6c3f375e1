"""Tests of supervisor.py: when it abandons a run, and what the run leaves behind."""

import math
import pathlib
import re
import signal
import types
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from gtrxl_tf.launch import exit_codes
from gtrxl_tf.launch import parts
from gtrxl_tf.launch import supervisor
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder
from gtrxl_tf.training.online import placement


class _Process:
  """A process that runs until the test ends it."""

  def __init__(self, main):
    self.main = main
    self.exitcode = None

  def is_alive(self):
    return self.exitcode is None


class _Stopping(_Process):
  """A process that takes some seconds to stop; `clock` is the test's."""

  def __init__(self, clock, seconds):
    super().__init__(None)
    self._clock, self._seconds, self._told = clock, seconds, None

  def terminate(self):
    self._told = self._clock.now

  def join(self, timeout=math.inf):
    left = self._told + self._seconds - self._clock.now
    self._clock.now += max(0, min(left, timeout))
    if left <= timeout and self.exitcode is None:
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
    experiment = types.SimpleNamespace(**{**dict(
        num_actors=2, evaluator=True, inference=None, transport='reverb', batch_size=1,
        unroll_length=1, acting_network=types.SimpleNamespace(trainable_variables=[])),
        **settings})
    self.supervisor = supervisor.Supervisor(experiment, self.folder)
    self.enter_context(mock.patch.object(supervisor.processes, 'start', self.process))
    self.supervisor.start()

  def process(self, main, settings, *args, name, log):
    del name, log
    self.started.append(_Process((main, settings, args)))
    return self.started[-1]

  def mains(self):
    return [process.main for process in self.started]

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
  def test_a_part_that_fails_too_often_ends_the_run(self, name):
    for _ in range(2):
      self.assertRegex(self.die(name, 1, 'reward = nan', after=1.0), 'reward = nan')
      self.die(name, -signal.SIGKILL, after=1.0)  # A kill is no error of the part.
      self.die('actor_0' if name != 'actor_0' else 'learner', after=1.0)
    self.gives_up(f'^{name} failed 3 times in ten minutes: reward = nan '
                  rf'\(traceback: {re.escape(str(self.failure(name)))}\)$',
                  name, 1, 'reward = nan', after=1.0)
    self.assertIn('Traceback: the places', self.failure(name).read_text())

  def test_a_part_that_is_killed_again_and_again_ends_the_run(self):
    for _ in range(20):
      self.assertRegex(self.die('actor_0', after=1.0), 'actor_0 died: SIGKILL .*; start')
    self.gives_up('^actor_0 died 21 times: SIGKILL', 'actor_0', after=1.0)

  def test_an_error_is_survived_if_it_is_seldom(self):
    for _ in range(20):
      self.die('actor_0', 1, 'seldom', after=400.0)

  def test_no_start_of_an_actor_repeats_an_earlier_one_of_the_run(self):
    self.die('actor_1')
    for _ in range(2):  # The run is interrupted and resumed.
      self.write(self.folder.metrics, **{'return': 0.5})
      self.start()
      self.die('actor_1')
    numbers = [settings.start for _, settings, args in self.mains() if args[-1] == 1]
    self.assertLen(numbers, 6)
    self.assertLen(set(numbers), 6)

  def test_a_run_that_begins_plays_the_episodes_of_its_seed(self):
    for _ in range(2):  # The first was interrupted before it learned anything.
      self.start()
    self.assertEqual({settings.start for _, settings, _ in self.mains()}, {0})

  def test_inference_servers_of_a_run_have_different_noise(self):
    self.start(inference=placement.Inference(num_servers=2))
    self.assertEqual(
        [settings.start for main, settings, _ in self.mains() if main == parts.infer],
        [0, 1])

  def test_the_errors_of_an_earlier_attempt_are_removed(self):
    self.die('actor_0', 1, 'once')
    self.supervisor.start()
    self.assertFalse(self.folder.failures.exists())

  @parameterized.parameters(
      (20, 4, 20, []), (40, 1, 30, ['learner']),
      (1, 99, 5, ['actor_0', 'actor_1', 'evaluator', 'server']))
  def test_the_learner_has_time_to_save(self, learner, others, ends, killed):
    self.supervisor.processes = {
        name: _Stopping(self, learner if name == 'learner' else others)
        for name in self.supervisor.processes}
    self.supervisor.stop(30.0)
    self.assertCountEqual(
        [name for name, x in self.supervisor.processes.items() if x.exitcode], killed)
    self.assertAlmostEqual(self.now, ends, delta=0.5)

  @parameterized.parameters(
      (1, 'no space'), (-signal.SIGKILL, 'its learner step did not end in time'))
  def test_a_lost_save_is_an_error(self, exit_code, why):
    self.supervisor.processes['learner'].exitcode = exit_code
    self.folder.failures.mkdir()
    self.failure('learner').write_text('no space\n\nTraceback')
    with self.assertRaisesRegex(
        exit_codes.RunFailed, rf'^the learner did not save \({why}.*: its steps'):
      self.supervisor.check_saved()
    self.supervisor.processes['learner'].exitcode = 0
    self.supervisor.check_saved()


if __name__ == '__main__':
  absltest.main()
