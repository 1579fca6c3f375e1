"""Tests a run on one machine whose parts are killed and stopped, and whose disk is full.

`gtrxl train` starts the parts again. The run must solve its task; a killed learner must
lose no more than the steps since its last checkpoint, and those on a full disk, where it
saves none; and no unroll may be trained on twice, according to a journal that is
independent of the learner's ledger (`faults_testing`). The full disk is a small file
system of its own, which needs root.

  FAULTS_SEED=5 python -m pytest -s binaries/shared_faults_slow_test.py
"""

import os
import pathlib
import signal
import subprocess
import time

from absl.testing import absltest
import gin
import numpy as np

from binaries import faults_testing
from gtrxl_tf.launch import prepare
from gtrxl_tf.launch import supervisor as supervisor_lib
from gtrxl_tf.serving import exported
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder

_GIN_FILE = str(pathlib.Path(__file__).parents[1] / 'gin/gtrxl/t_maze_30_cpu.gin')
_CHECKPOINT_PERIOD = 50
_BINDINGS = ['import binaries.faults_testing',
             'TMaze.corridor_length = 10', 'TransformerXL.memory_length = 16',
             'OnlineExperiment.unroll_length = 16',
             'OnlineExperiment.environment_steps = 1000000',
             'OnlineExperiment.num_actors = 2',
             'OnlineExperiment.environments_per_actor = 32',
             f'Checkpoints.period = {_CHECKPOINT_PERIOD}']
_SEED = int(os.environ.get('FAULTS_SEED', '0'))
_KILL, _STOP, _FILL = 'kill', 'stop', 'fill'
_FAULTS = [(_KILL, 'learner')] * 5 + [(_KILL, 'actor_0'), (_KILL, 'actor_1')] * 4 + [
    (_STOP, name) for name in ('learner', 'learner', 'actor_0', 'actor_1')] + [
        (_FILL, 'disk')] * 3
_PAUSE_STEPS, _PAUSE_SECONDS = 40, 5.0
_LASTS_SECONDS = (1.0, 8.0)  # How long a part is stopped, or the disk is full.
_LIMIT_SECONDS = 1800
_DISK = '48m'


class SharedFaultsTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.temporary = pathlib.Path(self.create_tempdir().full_path)
    os.environ['JOURNAL'] = str(self.temporary / 'journal')
    self.addCleanup(os.environ.pop, 'JOURNAL')
    self.disk = self.temporary / 'disk'
    self.disk.mkdir()
    self.has_disk = subprocess.run(
        ['mount', '-t', 'tmpfs', '-o', f'size={_DISK}', 'gtrxl', self.disk],
        check=False, stderr=subprocess.DEVNULL).returncode == 0
    if self.has_disk:
      self.addCleanup(subprocess.run, ['umount', '-l', self.disk], check=True)
    self.folder = run_folder.RunFolder(self.disk / 'run')
    self.steps_on_full_disk = 0

  def test_a_run_survives_kills_stops_and_full_disks(self):
    gin.clear_config()
    self.addCleanup(gin.clear_config)
    random = np.random.default_rng(_SEED)
    faults = [fault for fault in _FAULTS if self.has_disk or fault[0] != _FILL]
    random.shuffle(faults)
    experiment = prepare.prepare([_GIN_FILE], _BINDINGS)
    self.folder.root.mkdir()
    self.supervisor = supervisor_lib.Supervisor(experiment, self.folder)
    self.deadline = time.time() + _LIMIT_SECONDS
    self.supervisor.start()
    try:
      self.watch(self.folder.metrics.exists)
      for kind, name in faults:
        steps, over = self.steps(), time.time() + random.uniform(0, _PAUSE_SECONDS)
        wanted = random.integers(0, _PAUSE_STEPS)
        self.watch(lambda steps=steps, over=over, wanted=wanted: (
            self.steps() >= steps + wanted and time.time() > over))
        self.assertFalse(self.folder.done.exists(), 'the run ended before the faults')
        self.make(kind, name, random.uniform(*_LASTS_SECONDS))
      self.watch(self.folder.done.exists)
    finally:
      self.supervisor.stop()

    account = faults_testing.account(faults_testing.read(self.temporary / 'journal'))
    last = metrics_csv.last_metrics(self.folder.metrics)
    played = experiment.make_evaluator(exported.load(self.folder.policy)).evaluate()
    success = np.mean(played.successes)
    print(f'''
Seed {_SEED}: {len(faults)} faults, {[f"{kind} {name}" for kind, name in faults]}
Learner steps: {len(account.steps)}; lost with each start of the learner that took any: \
{account.lost}, of {2 * _CHECKPOINT_PERIOD} and {self.steps_on_full_disk} on a full disk allowed
Unrolls trained on twice: {account.duplicates}; stale {last["unrolls_stale"]:.0f}, \
duplicate {last["unrolls_duplicate"]:.0f}, oldest {last["oldest_unroll"]:.0f} of \
{last["oldest_allowed"]:.0f}; success: {success:.2f}''')
    self.assertGreaterEqual(success, 0.95)
    # The period in which the disk becomes full is lost, and the one in which it has room.
    self.assertLessEqual(
        max(account.lost), 2 * _CHECKPOINT_PERIOD + self.steps_on_full_disk)
    self.assertEqual(account.steps, list(range(1, len(account.steps) + 1)))
    self.assertGreaterEqual(account.items, len(account.steps))
    self.assertEqual(account.duplicates, 0)
    self.assertLessEqual(last['oldest_unroll'], last['oldest_allowed'])

  def make(self, kind, name, lasts):
    """Makes a fault that lasts some seconds, unless it is a kill."""
    filler, before = self.disk / 'filler', self.steps()
    if kind == _FILL:
      with open(filler, 'wb', buffering=0) as file:
        try:
          while file.write(bytes(2**16)):
            pass
        except OSError:
          pass
    else:
      os.kill(self.supervisor.processes[name].pid,
              signal.SIGKILL if kind == _KILL else signal.SIGSTOP)
      if kind == _KILL:
        return
    over = time.time() + lasts
    self.watch(lambda: time.time() > over)
    if kind == _FILL:
      filler.unlink()
      self.steps_on_full_disk += self.steps() - before
    else:
      os.kill(self.supervisor.processes[name].pid, signal.SIGCONT)

  def steps(self):
    """Returns the learner steps that were taken in all its starts."""
    return sum(map(len, faults_testing.read(self.temporary / 'journal')))

  def watch(self, until):
    """Starts parts that die again, until `until()` is true."""
    while not until():
      self.assertLess(time.time(), self.deadline, 'the run does not end')
      self.assertFalse(self.folder.diverged.exists())
      self.supervisor.restart_the_dead()
      time.sleep(0.2)


if __name__ == '__main__':
  absltest.main()
