"""The cost of a learner step: its time, and the memory that training takes."""

import os
import resource
import statistics
import time
from typing import Any, Dict, Optional, Sequence, Tuple

import tensorflow as tf

from gtrxl_tf.environments import dmlab_testing
from gtrxl_tf.launch import prepare as prepare_lib
from gtrxl_tf.settings import config
from gtrxl_tf.training import learner as learner_lib
import tools

_REPEAT = 3  # Steps that are timed, after the first.

# The columns of the table, and their formats.
COLUMNS = {
    'parameters': ',', 'batch': '', 'first step, s': '.1f', 'step, s': '.3g',
    'CPU, s': '.3g', 'tensors, MiB': ',.0f', 'less by': '.2f', 'process, MiB': ',.0f'}

CAPTION = (
    'Batch: rows x steps, and the steps of memory before them. First step: with '
    'tracing. Step, CPU: median wall and CPU time of a learner step. Tensors: the '
    'maximum that the device allocated, with variables and batch; less by: the first '
    "model's divided by this one's. Process: the maximum resident set, with the "
    'libraries and memory that was freed but not returned.')


def measure(gin_files: Sequence[str], gin_bindings: Sequence[str],
            batch_size: Optional[int]) -> Dict[str, Any]:
  """Takes learner steps of an experiment; returns its `COLUMNS` without `less by`.

  Args:
    gin_files: files of settings.
    gin_bindings: single settings.
    batch_size: rows of a batch; None for the experiment's.
  """
  network, learner, batch, size = prepare(gin_files, gin_bindings, batch_size)
  started = time.monotonic()
  learner.step(batch)
  first_step = time.monotonic() - started

  device = 'GPU:0' if tf.config.list_logical_devices('GPU') else 'CPU:0'
  tf.config.experimental.reset_memory_stats(device)
  wall, cpu = [], []
  for _ in range(_REPEAT):
    started, cpu_started = time.monotonic(), time.process_time()
    metrics = learner.step(batch)
    float(metrics['loss'])  # Waits for the step.
    wall.append(time.monotonic() - started)
    cpu.append(time.process_time() - cpu_started)
  return {
      'parameters': sum(v.shape.num_elements() for v in network.variables), 'batch': size,
      'first step, s': first_step, 'step, s': statistics.median(wall),
      'CPU, s': statistics.median(cpu),
      'tensors, MiB': tf.config.experimental.get_memory_info(device)['peak'] / 2**20,
      'process, MiB': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10}


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


def measure_apart(num_processes: int, *what) -> Dict[str, Any]:
  """Runs `measure(*what)` in new processes, and returns the medians."""
  # A process reads this when it first makes a tensor. This allocator counts everything;
  # the usual allocator of a CPU counts large tensors only, or nothing.
  os.environ['TF_CPU_ALLOCATOR_USE_BFC'] = 'true'
  costs = [tools.call_apart(measure, *what) for _ in range(num_processes)]
  return {title: value if title == 'batch' else statistics.median(
      cost[title] for cost in costs) for title, value in costs[0].items()}
