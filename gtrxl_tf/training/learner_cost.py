"""What a learner step costs: its time, and the memory that training takes."""

from concurrent import futures
import multiprocessing
import os
import resource
import statistics
import time
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from gtrxl_tf.environments import dmlab_testing
from gtrxl_tf.training import learner as learner_lib
from gtrxl_tf.training import offline
from gtrxl_tf.training import tasks
from gtrxl_tf.training import train

TITLES = ('model', 'parameters', 'batch', 'first step, s', 'step, s', 'CPU, s',
          'tensors, MiB', 'less by', 'process, MiB')

CAPTION = (
    'Batch: rows x steps, and the steps of memory before them. First step: with '
    'tracing. Step, CPU: median wall and CPU time of a learner step. Tensors: what the '
    "device's allocator had given out at most, variables and batch included; less by: "
    "the first model's over this one's. Process: its resident set at its largest, with "
    'the libraries, and what was freed and not given back.')


class Cost(NamedTuple):
  """Of learner steps."""
  parameters: int       # Of a network.
  batch: str            # Rows and steps.
  first_step: float     # s
  step: float           # s, median.
  cpu: float            # s, median.
  tensors: float        # MiB, at most, after the first step; see `measure_apart`.
  process: float        # MiB, resident at most.


def measure(gin_files: Sequence[str], gin_bindings: Sequence[str],
            batch_size: Optional[int], repeat: int) -> Cost:
  """Takes 1 + `repeat` learner steps of an experiment.

  Args:
    gin_files: its settings.
    gin_bindings: its settings.
    batch_size: rows of a batch, if not as many as the experiment has.
    repeat: steps to measure.
  """
  network, learner, batch, size = prepare(gin_files, gin_bindings, batch_size)
  started = time.time()
  learner.step(batch)
  first_step = time.time() - started

  device = 'GPU:0' if tf.config.list_logical_devices('GPU') else 'CPU:0'
  tf.config.experimental.reset_memory_stats(device)
  wall, cpu = [], []
  for _ in range(repeat):
    started, cpu_started = time.time(), time.process_time()
    metrics = learner.step(batch)
    float(metrics['loss'])  # Waits for it.
    wall.append(time.time() - started)
    cpu.append(time.process_time() - cpu_started)
  return Cost(
      sum(v.shape.num_elements() for v in network.variables), size, first_step,
      statistics.median(wall), statistics.median(cpu),
      tf.config.experimental.get_memory_info(device)['peak'] / 2**20,
      resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10)


def prepare(gin_files: Sequence[str], gin_bindings: Sequence[str],
            batch_size: Optional[int]
            ) -> Tuple[tf.keras.layers.Layer, learner_lib.Learner, Any, str]:
  """Of an experiment: a network that learns, its learner, a batch, its size in words.

  For the arguments see `measure`.
  """
  with dmlab_testing.deepmind_lab():
    experiment = train.prepare(gin_files, gin_bindings)
  agent = experiment.make_agent()
  is_offline = isinstance(experiment, offline.OfflineExperiment)
  learner = learner_lib.Learner(
      agent, experiment.make_optimizer(), tf.distribute.get_strategy(),
      experiment.clip_norm if is_offline else None)
  network = agent.network if is_offline else agent.online
  return network, learner, *_batch(experiment, agent, batch_size)


def _batch(experiment: tasks.TaskExperiment, agent: Any, batch_size: Optional[int]
           ) -> Tuple[Any, str]:
  """A batch, and its size in words."""
  if isinstance(experiment, offline.OfflineExperiment):
    batch = experiment.make_scheme(agent).batch(0)
    rows, steps = batch.valid.shape
    rows = batch_size or rows
  else:
    batch = experiment.blank_batch()
    rows = batch_size or experiment.batch_size
    steps = f'{experiment.unroll_length} + {experiment.memory_length}'
  repeated = lambda x: tf.gather(x, tf.range(rows) % x.shape[0])
  return tf.nest.map_structure(repeated, batch), f'{rows} x {steps}'


def measure_apart(num_processes: int, *what) -> Cost:
  """`measure(*what)` in new processes, which find no memory or caches of another.

  Returns:
    The medians.

  Raises:
    process.BrokenProcessPool: one was killed, as where memory does not suffice.
  """
  # Read where a process first makes a tensor. This allocator counts all that it gives
  # out; the usual one of a CPU counts large tensors alone, or nothing.
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
  """A row of the table with `TITLES`.

  Args:
    model: its label.
    cost: its cost.
    first: the cost that it is compared with.
  """
  return [model, f'{cost.parameters:,}', cost.batch, f'{cost.first_step:.1f}',
          f'{cost.step:.3g}', f'{cost.cpu:.3g}', f'{cost.tensors:,.0f}',
          f'{first.tensors / cost.tensors:.2f}', f'{cost.process:,.0f}']
