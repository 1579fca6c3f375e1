"""Tests a run whose parts are killed, whose network is cut, and whose hosts vanish.

A part that dies is restarted with the same command, as Kubernetes does, while the run
continues. The run must solve its task; a killed learner must lose no more than the
steps since its last checkpoint; and no unroll may be trained on twice, according to a
journal that is independent of the learner's ledger (`faults_testing`).

  FAULTS_SEED=5 python -m pytest -s -o python_files='*_slow_test.py' \
      binaries/faults_slow_test.py

With FAULTS_PLACEMENT=inference an inference server acts for the actors, and has faults too.

A run that has not ended after FAULTS_LIMIT seconds (1,800 by default) fails, and prints
what the learner was waiting for, according to its watchdog.
"""

import collections
import os
import pathlib
import signal
import time
from typing import List, NamedTuple

from absl.testing import absltest
import gin
import numpy as np

from binaries import faults_soak_testing
from binaries import faults_testing
from gtrxl_tf.launch import hosts_testing
from gtrxl_tf.launch import parts_testing
from gtrxl_tf.launch import prepare
from gtrxl_tf.serving import exported
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder

_GIN_FILE = str(pathlib.Path(__file__).parents[1] / 'gin/gtrxl/t_maze_30_cpu.gin')
_CHECKPOINT_PERIOD = 50
_BINDINGS = ['TMaze.corridor_length = 10', 'TransformerXL.memory_length = 16',
             'OnlineExperiment.unroll_length = 16',
             'OnlineExperiment.environment_steps = 1000000',
             'OnlineExperiment.num_actors = 2',
             'OnlineExperiment.environments_per_actor = 32',
             f'Checkpoints.period = {_CHECKPOINT_PERIOD}',
             'OnlineExperiment.stall_seconds = 60']
_SEED = int(os.environ.get('FAULTS_SEED', '0'))
_KILLS = {'server': 4, 'learner': 5, 'actor_0': 6, 'actor_1': 6}
_CUTS = ['server', 'learner', 'actor_0', 'actor_1', 'learner']
_PAUSE_STEPS = 50
_PAUSE_SECONDS = 8.0
_CUT_SECONDS = (5.0, 15.0)
# Parts that are cut off before they are killed, for longer than the keepalive waits.
_VANISH = ['server', 'learner', 'actor_0']
if os.environ.get('FAULTS_PLACEMENT') == 'inference':
  _BINDINGS += ['OnlineExperiment.inference = @Inference()',
                'Inference.actors_per_process = 1']
  _KILLS['inference'] = 5
  _CUTS.append('inference')
  _VANISH.append('inference')
_VANISH_SECONDS = (35.0, 45.0)
_LIMIT_SECONDS = float(os.environ.get('FAULTS_LIMIT', '1800'))


class _Fault(NamedTuple):
  """A fault of a part, and its time."""
  name: str
  signum: int     # The signal that the part gets; 0 for none.
  is_cut: bool    # True if its network is cut before.
  steps: int      # Learner steps since the last fault; if 0, `seconds` counts.
  seconds: float  # Since the last fault.
  lasts: float    # Seconds that a cut lasts.


def _plan() -> List[_Fault]:
  """Returns faults in a random order, at random moments.

  One of four kills is a SIGTERM. Three of four faults come after a number of learner
  steps, because a learner that is killed before it takes a step tests nothing. The others
  come after some seconds, whether or not the part of the last fault is back.
  """
  random = np.random.default_rng(_SEED)
  faults = [(name, signal.SIGTERM if i % 4 == 3 else signal.SIGKILL, False)
            for name, count in _KILLS.items() for i in range(count)]
  faults += [(name, 0, True) for name in _CUTS]
  faults += [(name, signal.SIGKILL, True) for name in _VANISH]
  random.shuffle(faults)
  return [_Fault(name, int(signum), is_cut,
                 random.integers(1, _PAUSE_STEPS) if i % 4 < 3 else 0,
                 random.uniform(0, _PAUSE_SECONDS),
                 random.uniform(*(_VANISH_SECONDS if signum else _CUT_SECONDS)))
          for i, (name, signum, is_cut) in enumerate(faults)]


class AccountTest(absltest.TestCase):

  def test_steps_that_the_next_start_repeats_are_lost(self):
    starts = [{1: [10], 2: [20], 3: [11]}, {2: [21], 3: [20], 4: [22]}, {5: [12]}]
    self.assertEqual(faults_testing.account(starts), faults_testing.Account(
        lost=[2, 0], steps=[1, 2, 3, 4, 5], items=5, duplicates=0, duplicates_overall=1))

  def test_an_unroll_in_two_steps_that_stay_is_found(self):
    starts = [{1: [10, 20], 2: [21]}, {2: [20]}]
    self.assertEqual(faults_testing.account(starts), faults_testing.Account(
        lost=[1], steps=[1, 2], items=3, duplicates=1, duplicates_overall=1))


class SoakTest(absltest.TestCase):

  def samples(self, growth, gained=0):
    """Samples of one part with two starts; the second begins with less memory."""
    return [faults_soak_testing.Sample(
        10.0 * i, 'learner', i // 200,
        500 - 90 * (i // 200) + (i % 200) * growth / 360 + i % 2,
        30 + gained * (i % 200 > 100), 9) for i in range(400)]

  def test_constant_memory_passes(self):
    lines, wrong = faults_soak_testing.summarize(self.samples(0))
    self.assertEmpty(wrong)
    self.assertRegex(lines[-1], r'\| learner \| 2 \| \d+ \| -?0.\d ± 0.\d \| 0 \| 0 ')

  def test_growth_is_found(self):
    lines, wrong = faults_soak_testing.summarize(self.samples(40, gained=20))
    self.assertRegex(lines[-1], r' \| (39|40)\.\d ± 0\.\d \| 20 \| 0 ')
    self.assertLen(wrong, 2)

  def test_this_process_has_memory_descriptors_and_threads(self):
    mib, descriptors, threads = faults_soak_testing.look(os.getpid())
    self.assertGreater(mib, 10)
    self.assertGreater(min(descriptors, threads), 0)


class FaultsTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self._temporary = pathlib.Path(self.create_tempdir().full_path)
    self._folder = run_folder.RunFolder(self._temporary / 'run')
    self._journal = self._temporary / 'journal'
    self._cut = {}  # The parts whose network is cut, and until when.
    os.environ['JOURNAL'] = str(self._journal)

  def test_a_run_survives_kills_and_cuts(self):
    names = list(_KILLS)
    settings = [f'--gin_file={_GIN_FILE}',
                *(f'--gin_bindings={binding}' for binding in _BINDINGS)]
    with hosts_testing.Hosts(names) as self._hosts:
      self._parts = parts_testing.Parts(
          self._hosts, self._folder, self._temporary, settings, num_actors=2,
          flags={'learner': ['--gin_bindings=import binaries.faults_testing']})
      started = time.time()
      self._deadline = started + _LIMIT_SECONDS
      for name in names:
        self._parts.start(name)
      # Waits until the run has begun: earlier faults would test nothing new.
      self._watch(lambda: self._folder.metrics.exists())
      begun = time.time()
      terminated = self._do(_plan())
      faults_over = time.time()
      self._watch(self._folder.done.exists)
      for name in names[1:]:
        self._watch(lambda name=name: self._parts.processes[name].poll() is not None)
        self.assertEqual(self._parts.processes[name].returncode, 0, self._tails())
      self.assertEqual(self._parts.end('server', signal.SIGTERM), 0, self._tails())

    account = faults_testing.account(faults_testing.read(self._journal))
    last = metrics_csv.last_metrics(self._folder.metrics)
    gin.clear_config()
    self.addCleanup(gin.clear_config)
    experiment = prepare.prepare([_GIN_FILE], _BINDINGS)
    played = experiment.make_evaluator(
        exported.load(self._folder.policy)).evaluate()
    success = np.mean(played.successes)
    print(f'''
Seed {_SEED}; killed: {_KILLS}, {sum(_KILLS.values())} in all; cut: {len(_CUTS)} times; \
vanished: {_VANISH}
Exit codes on SIGTERM: {terminated}
Learner steps: {len(account.steps)}; lost with each start of the learner that took any: \
{account.lost}, of {_CHECKPOINT_PERIOD} allowed
Unrolls trained on twice: {account.duplicates}; with the steps that were lost: \
{account.duplicates_overall}
In the ledger of the last start: stale {last["unrolls_stale"]:.0f}, duplicate \
{last["unrolls_duplicate"]:.0f}, oldest {last["oldest_unroll"]:.0f} of \
{last["oldest_allowed"]:.0f} allowed
Seconds: {begun - started:.0f} to begin, {faults_over - begun:.0f} of faults, \
{time.time() - faults_over:.0f} after them
Times that the learner had no usable unroll for a minute: \
{len(self._parts.find("learner", "no usable unroll for"))}
Success: {success:.2f}''')
    self.assertGreaterEqual(success, 0.95)
    self.assertLessEqual(max(account.lost), _CHECKPOINT_PERIOD)
    self.assertGreater(sum(account.lost), 0, 'no kill lost a learner step')
    self.assertEqual(account.steps, list(range(1, len(account.steps) + 1)))
    self.assertGreaterEqual(account.items, len(account.steps))
    self.assertEqual(account.duplicates, 0)
    self.assertLessEqual(last['oldest_unroll'], last['oldest_allowed'])

  def _do(self, plan: List[_Fault]):
    """Makes the faults happen; returns the exit codes of parts that got a SIGTERM."""
    codes = collections.defaultdict(list)
    for fault in plan:
      steps, over = self._steps() + fault.steps, time.time() + fault.seconds
      self._watch(lambda fault=fault, steps=steps, over=over: (
          self._steps() >= steps if fault.steps else time.time() > over))
      self.assertFalse(self._folder.done.exists(), 'the run ended before the faults')
      if fault.is_cut:
        self._hosts.cut(fault.name)
        self._cut[fault.name] = time.time() + fault.lasts
      if fault.signum:
        code = self._parts.end(fault.name, fault.signum)
        if fault.signum == signal.SIGTERM:
          codes[fault.name].append(code)
          # SIGTERM if the part did not handle signals yet.
          self.assertIn(code, (0, -signal.SIGTERM), self._parts.tail(fault.name))
    return dict(codes)

  def _steps(self) -> int:
    """Returns the learner steps that were taken in all its starts."""
    return sum(map(len, faults_testing.read(self._journal)))

  def _watch(self, until) -> None:
    """Restarts parts that die and repairs cut networks, until `until()` is true."""
    while not until():
      if time.time() > self._deadline or self._folder.diverged.exists():
        self.fail('\n'.join([
            f'seed {_SEED}: the run has not ended after {_LIMIT_SECONDS:.0f} s',
            *self._parts.find('learner', 'no usable unroll for'), self._tails()]))
      self._parts.restart_the_dead()
      for name in [name for name, over in self._cut.items() if time.time() > over]:
        self._hosts.heal(name)
        del self._cut[name]
      time.sleep(0.2)

  def _tails(self) -> str:
    return '\n'.join(map(self._parts.tail, _KILLS))


if __name__ == '__main__':
  absltest.main()
