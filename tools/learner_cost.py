"""The cost of a learner step: its time, and the memory that training takes."""

from concurrent import futures
import multiprocessing
import os
import resource
import statistics
import time
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from gtrxl_tf.environments import dmlab_testing
from gtrxl_tf.launch import prepare as prepare_lib
from gtrxl_tf.settings import config
from gtrxl_tf.training import learner as learner_lib

TITLES = ('model', 'parameters', 'batch', 'first step, s', 'step, s', 'CPU, s',
          'tensors, MiB', 'less by', 'process, MiB')

CAPTION = (
    'Batch: rows x steps, and the steps of memory before them. First step: with '
    'tracing. Step, CPU: median wall and CPU time of a learner step. Tensors: the '
    'maximum that the device allocated, with variables and batch; less by: the first '
    "model's divided by this one's. Process: the maximum resident set, with the "
    'libraries and memory that was freed but not returned.')


class Cost(NamedTuple):
  """The cost of learner steps."""
  parameters: int       # The network's.
  batch: str            # Rows and steps.
  first_step: float     # Seconds.
  step: float           # Seconds, median.
  cpu: float            # Seconds, median.
  tensors: float        # MiB, maximum after the first step; see `measure_apart`.
  process: float        # MiB, maximum resident.


def measure(gin_files: Sequence[str], gin_bindings: Sequence[str],
            batch_size: Optional[int], repeat: int) -> Cost:
  """Takes 1 + `repeat` learner steps of an experiment, and measures them.

  Args:
    gin_files: files of settings.
    gin_bindings: single settings.
    batch_size: rows of a batch; None for the experiment's.
    repeat: steps to measure.
  """
  network, learner, batch, size = prepare(gin_files, gin_bindings, batch_size)
  started = time.monotonic()
  learner.step(batch)
  first_step = time.monotonic() - started

  device = 'GPU:0' if tf.config.list_logical_devices('GPU') else 'CPU:0'
  tf.config.experimental.reset_memory_stats(device)
  wall, cpu = [], []
  for _ in range(repeat):
    started, cpu_started = time.monotonic(), time.process_time()
    metrics = learner.step(batch)
    float(metrics['loss'])  # Waits for the step.
    wall.append(time.monotonic() - started)
    cpu.append(time.process_time() - cpu_started)
  return Cost(
      sum(v.shape.num_elements() for v in network.variables), size, first_step,
      statistics.median(wall), statistics.median(cpu),
      tf.config.experimental.get_memory_info(device)['peak'] / 2**20,
      resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10)


def prepare(gin_files: Sequence[str], gin_bindings: Sequence[str],
            batch_size: Optional[int]
            ) -> Tuple[tf.keras.layers.Layer, learner_lib.Learner, Any, str]:
  """Makes the inputs of an experiment's learner step; for the arguments see `measure`.

  Returns:
    A network like the one that learns, the learner, a batch, and its size in words.
  """
  with dmlab_testing.deepmind_lab():
    experiment = prepare_lib.prepare(gin_files, gin_bindings)
  rows = batch_size or experiment.batch_size
  if rows % experiment.num_minibatches:
    raise config.ConfigError(
        f'a batch of {rows} rows: expected a multiple of the experiment\'s '
        f'{experiment.num_minibatches} minibatches')
  agent = experiment.make_agent()
  learner = learner_lib.Learner(
      agent, experiment.make_optimizer(), tf.distribute.get_strategy(),
      experiment.optimizer.clip_norm, experiment.num_epochs,
      experiment.num_minibatches, experiment.seed)
  batch = experiment.make_batch(agent)
  repeated = tf.nest.map_structure(
      lambda x: tf.gather(x, tf.range(rows) % x.shape[0]), batch)
  size = f'{rows} x {experiment.describe_row(batch)}'
  return experiment.learned_network(agent), learner, repeated, size


def measure_apart(num_processes: int, *what) -> Cost:
  """Runs `measure(*what)` in new processes, which share no memory or caches.

  Returns:
    The medians.

  Raises:
    process.BrokenProcessPool: a process was killed, for example when memory ran out.
  """
  # A process reads this when it first makes a tensor. This allocator counts everything;
  # the usual allocator of a CPU counts large tensors only, or nothing.
  os.environ['TF_CPU_ALLOCATOR_USE_BFC'] = 'true'
  costs = []
  for _ in range(num_processes):
    with futures.ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context('spawn')) as pool:
      costs.append(pool.submit(measure, *what).result())
  return costs[0]._replace(**{
      name: statistics.median(getattr(cost, name) for cost in costs)
      for name in Cost._fields if name != 'batch'})


def cells(model: str, cost: Cost, first: Cost) -> List[str]:
  """Returns a row of the table with `TITLES`.

  Args:
    model: the model's label.
    cost: the model's cost.
    first: the cost that it is compared with.
  """
  return [model, f'{cost.parameters:,}', cost.batch, f'{cost.first_step:.1f}',
          f'{cost.step:.3g}', f'{cost.cpu:.3g}', f'{cost.tensors:,.0f}',
          f'{first.tensors / cost.tensors:.2f}', f'{cost.process:,.0f}']
