"""How a run's parts keep up with each other, and what goes over the network."""

import multiprocessing
import statistics
import tempfile
import time
from typing import List, NamedTuple, Sequence

import gin
import numpy as np
import portpicker
import psutil
import reverb
import tensorflow as tf

from gtrxl_tf.replay import server as server_lib
from gtrxl_tf.replay import unroll as unroll_lib
from gtrxl_tf.replay import writer as writer_lib
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import rollout as rollout_lib
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import supervisor as supervisor_lib
from gtrxl_tf.training import train

TITLES = ('actors', 'environments', 'environment steps/s', 'learner steps/s',
          'learner idle', 'data age, learner steps', 'oldest', 'allowed',
          'refused as stale', 'queue')
CAPTION = (
    'Idle: the share of time in which the learner waits for unrolls. Data age: mean '
    "number of learner steps since an unroll's weights were the newest target network. "
    'Refused: the share of unrolls that came when they were too old. Queue: items that '
    'waited, median.')
_WARM_UP_ROWS = 3


def measure(gin_files: Sequence[str], gin_bindings: Sequence[str], num_actors: int,
            seconds: float) -> List[str]:
  """A row of the table with `TITLES`: a run with so many actors, for so long.

  Args:
    gin_files: settings.
    gin_bindings: settings.
    num_actors: actors.
    seconds: to measure, from the third row of metrics on.
  """
  gin.clear_config()
  experiment = train.prepare(gin_files, [
      *gin_bindings, f'Experiment.num_actors = {num_actors}',
      f'Experiment.environment_steps = {10**12}'])
  with tempfile.TemporaryDirectory() as root:
    folder = run_folder.RunFolder(root)
    supervisor = supervisor_lib.Supervisor(gin.config_str(), root, num_actors)
    supervisor.start()
    rows = []
    try:
      while len(rows) <= _WARM_UP_ROWS + 1 or (
          rows[-1]['seconds'] - rows[_WARM_UP_ROWS]['seconds'] < seconds):
        time.sleep(0.5)
        supervisor.restart_the_dead()
        rows = run_folder.read_metrics(folder.metrics)
    finally:
      supervisor.stop()
  first, *measured = rows[_WARM_UP_ROWS:]
  last = measured[-1]
  gone = lambda name: last[name] - first[name]
  median = lambda name: statistics.median(row[name] for row in measured)
  elapsed = gone('seconds')
  return [
      f'{num_actors}', f'{num_actors * experiment.environments_per_actor}',
      f'{gone("environment_steps") / elapsed:,.0f}',
      f'{gone("learner_step") / elapsed:.1f}',
      f'{statistics.mean(row["learner_idle"] for row in measured):.2f}',
      f'{statistics.mean(row["data_age"] for row in measured):.1f}',
      f'{last["oldest_unroll"]:.0f}', f'{last["oldest_allowed"]:.0f}',
      f'{gone("unrolls_stale") / (gone("unrolls_stale") + gone("unrolls")):.3f}',
      f'{median("queue_length"):.0f}']


class Traffic(NamedTuple):
  """Bytes, before Reverb compresses them."""
  row: int      # That an actor writes for each step of each environment.
  unroll: int   # That the learner gets for each unroll of a batch: also its memory.
  weights: int  # That an actor takes at each update of the target network.


def traffic(experiment: experiment_lib.Experiment) -> Traffic:
  """What an online experiment sends through Reverb."""
  size = lambda nest: sum(
      spec.shape.num_elements() * spec.dtype.size for spec in tf.nest.flatten(nest))
  row = experiment.row_spec()
  signature = unroll_lib.signature(
      row, experiment.unroll_length, experiment.memory_length)
  num = experiment.environments_per_actor
  return Traffic(size(row) // num, size(signature) // num,
                 size([tf.TensorSpec(v.shape, v.dtype)
                       for v in experiment.acting_network.variables]))


class Rate(NamedTuple):
  """Of unrolls through a Reverb server on this machine."""
  write: float         # CPU seconds an unroll, of who writes,
  server_write: float  # and of the server meanwhile.
  read: float          # CPU seconds an unroll, of who samples,
  server_read: float   # and of the server meanwhile.


def measure_reverb(experiment: experiment_lib.Experiment, num_unrolls: int) -> Rate:
  """Writes and samples unrolls of random numbers, which do not compress.

  Args:
    experiment: whose unrolls are of as many environments as an actor has.
    num_unrolls: items to write and to sample.
  """
  row = experiment.row_spec()
  port = portpicker.pick_unused_port()
  process = multiprocessing.get_context('spawn').Process(
      target=_serve, daemon=True, args=(
          port, row, experiment.unroll_length, experiment.memory_length, num_unrolls))
  process.start()
  server = psutil.Process(process.pid)
  client = reverb.Client(f'localhost:{port}')
  client.server_info(timeout=60)
  random = np.random.default_rng(0)
  draw = lambda spec: random.integers(0, 256, (*spec.shape, spec.dtype.size), np.uint8
                                      ).view(spec.dtype.as_numpy_dtype)[..., 0]
  rows = [tf.nest.map_structure(draw, row) for _ in range(32)]
  writer = writer_lib.UnrollWriter(
      client, row, experiment.unroll_length, experiment.memory_length)
  writer.open()

  def cpu(work) -> Sequence[float]:
    of = lambda: (time.process_time(), sum(server.cpu_times()[:2]))
    before = of()
    work()
    return [(y - x) / num_unrolls for x, y in zip(before, of())]

  def write():
    items = number = 0
    while items < num_unrolls:
      items += writer.append(rows[number % len(rows)])
      number += 1
    while not writer.wait(0, 10_000):
      pass

  def read():
    for _ in client.sample(writer_lib.TABLE, num_unrolls, emit_timesteps=False):
      pass

  rate = Rate(*cpu(write), *cpu(read))
  writer.close()
  process.kill()
  process.join()
  return rate


def _serve(port: int, row: unroll_lib.Unroll, unroll_length: int, memory_length: int,
           queue_size: int) -> None:
  server_lib.serve(port, row, unroll_length, memory_length, queue_size, []).wait()


def measure_acting(experiment: experiment_lib.Experiment, num_steps: int) -> float:
  """Median CPU seconds of an actor's step in all its environments, which is theirs and
  the network's."""
  num = experiment.environments_per_actor
  policy = experiment.make_policy(experiment.acting_network, with_record=True)
  action = lambda time_step, state: policy.action(
      time_step, state, seed=tf.constant([0, 1], tf.int64))
  rollout = rollout_lib.Rollout(
      experiment.make_environments(num, 2), action, policy.get_initial_state(num),
      jit_compile=True)
  seconds = []
  for _ in range(2 + num_steps):
    started = time.process_time()
    rollout.step()
    seconds.append(time.process_time() - started)
  return statistics.median(seconds[2:])  # The first ones compile.
