"""Tests what restarts of the server cost an actor and a learner in memory.

All three are processes. The server is killed and comes back empty, again and again.
"""

import ctypes
import functools
import multiprocessing
import os
import signal
import threading
import time

from absl.testing import absltest
import portpicker
import reverb

from gtrxl_tf import cores
from gtrxl_tf import machine
from gtrxl_tf.agents import vmpo
from gtrxl_tf.environments import t_maze
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import torsos
from gtrxl_tf.replay import connection
from gtrxl_tf.replay import reverb_replay
from gtrxl_tf.replay import server
from gtrxl_tf.replay import server_lost
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import devices
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import trainer as training_lib
from gtrxl_tf.training.online import actor
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import trainer

_PR_SET_PDEATHSIG = 1  # From <sys/prctl.h>: sets the signal sent when the parent ends.
_SECONDS = 120  # To train on a few batches, with the start of the processes.
_FIRST, _RESTARTS = 3, 12  # What is made once is made in the first restarts.
# It was 0.4 to 0.7 and 2.9 before what a lost connection leaves was collected.
_MIB = {'actor': 0.25, 'learner': 1.0}
_THREADS = 6  # Some come and go. The learner had 3 more after each restart.


def _network(action_spec):
  return actor_critic.ActorCritic(
      action_spec, torsos.VectorTorso((8,)), cores.TransformerXL(
          num_layers=2, model_dim=32, num_heads=2, head_dim=16, memory_length=8),
      head_units=8)


def _experiment():
  return experiment_lib.OnlineExperiment(
      environment=lambda seed: t_maze.TMaze(3, seed=seed), network=_network,
      agent=functools.partial(vmpo.VMPOAgent, target_update_period=2),
      environment_steps=10**9, unroll_length=8, batch_size=8, environments_per_actor=4,
      checkpoints=checkpoints.Settings(period=10**6))


def _serve_again(port, pipe):
  """Serves; on each message, kills the server and starts another."""
  while True:
    # This process has imported TensorFlow: the server starts in less than a second.
    child = os.fork()
    if not child:
      ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
      _serve(port)
    pipe.recv()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _serve(port):
  server.serve(port, _experiment().layout).wait()


def _work(name, address, folder, pipe):
  """Runs an actor or a learner, which tells its memory and threads when asked."""
  devices.set_threads(1)
  machine.limit_heaps(2)
  threading.Thread(target=_answer, args=(pipe,), daemon=True).start()
  if name == 'actor':
    experiment = _experiment()
    replay = connection.connect(address, experiment.layout)
    actor.Actor(experiment, replay, 0, lambda: False).run()
  else:
    trainer.OnlineTrainer(
        _experiment(), training_lib.Process(
            run_folder.RunFolder(folder), devices.make_strategy('default'),
            lambda: False, address)).train()


def _answer(pipe):
  libc = ctypes.CDLL(None)
  libc.mallinfo2.restype = _Mallinfo2
  while True:
    pipe.recv()
    info = libc.mallinfo2()
    pipe.send(((info.uordblks + info.hblkhd) / 2**20, len(os.listdir('/proc/self/task'))))


class _Mallinfo2(ctypes.Structure):
  """What `malloc` has given out: `uordblks` in heaps and `hblkhd` apart, in bytes."""
  _fields_ = [(name, ctypes.c_size_t) for name in (
      'arena', 'ordblks', 'smblks', 'hblks', 'hblkhd', 'usmblks', 'fsmblks', 'uordblks',
      'fordblks', 'keepcost')]


class RestartsTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.port = portpicker.pick_unused_port()
    self.address = f'localhost:{self.port}'
    self.server = self.start(_serve_again, self.port)
    folder = self.create_tempdir().full_path
    self.parts = {
        name: self.start(_work, name, self.address, folder) for name in _MIB}
    self.wait_for_batches()

  def start(self, target, *args):
    """Starts a process; returns a pipe to it."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context('spawn').Process(
        target=target, args=(*args, theirs), daemon=True)
    process.start()
    self.addCleanup(process.join)
    self.addCleanup(process.kill)
    return ours

  def wait_for_batches(self):
    deadline = time.time() + _SECONDS
    while time.time() < deadline:
      try:
        with server_lost.converted():
          info = reverb.Client(self.address).server_info(timeout=5)
        if info[reverb_replay.UNROLLS].rate_limiter_info.sample_stats.completed > 10:
          return
      except server_lost.ServerLost:
        pass
      time.sleep(0.2)
    self.fail('no batches')

  def restart_server(self, times):
    for _ in range(times):
      self.server.send(None)
      time.sleep(0.5)  # Until it is killed.
      self.wait_for_batches()
      time.sleep(2)  # The learner looks every second whether its weights are lost.

  def resources(self):
    found = {}
    for name, pipe in self.parts.items():
      pipe.send(None)
      found[name] = pipe.recv()
    return found

  def test_memory_and_threads_do_not_grow(self):
    self.restart_server(_FIRST)
    before = self.resources()
    self.restart_server(_RESTARTS)
    after = self.resources()
    for name, most in _MIB.items():
      mib, threads = (y - x for x, y in zip(before[name], after[name]))
      print(f'{name}: {mib / _RESTARTS:.2f} MiB a restart, {threads} threads more')
      with self.subTest(name):
        self.assertLess(mib / _RESTARTS, most)
        self.assertLess(threads, _THREADS)


if __name__ == '__main__':
  absltest.main()
