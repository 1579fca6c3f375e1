"""The time that a memory core takes to learn and to act, beside the machine's peaks.

The sizes match those of a program that times the GTrXLs of other packages.
"""

import statistics
import time
from typing import Any, Callable, Dict, NamedTuple, Sequence

import dm_env
import numpy as np
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import environments
from gtrxl_tf.agents import policy
from gtrxl_tf.training import rollout as rollout_lib
from gtrxl_tf.training.online import actor

_WIDTH = 2048              # Rows of the matrices to multiply, which exceed caches.
_MATRIX_BYTES = 4 * 2**26  # Size of the matrix to read.


class Sizes(NamedTuple):
  """Sizes of a core and its inputs."""
  num_layers: int
  model_dim: int
  num_heads: int
  head_dim: int
  mlp_dim: int
  memory_length: int
  unroll_length: int
  batch_size: int  # For the training step; acting is timed for one environment.


SIZES = {
    'tiny': Sizes(2, 64, 2, 32, 64, 32, 16, 2),
    'small': Sizes(4, 256, 8, 64, 512, 128, 95, 8),
    # The paper's sizes for Numpad and Memory Maze; it does not give the MLP's.
    'paper': Sizes(12, 256, 8, 64, 512, 512, 95, 2),
}


# The sizes of the small twins, for all cores.
ALIKE_SIZES = Sizes(2, 64, 4, 16, 64, 32, 32, 64)

_ATTENTION = dict(num_layers=2, model_dim=64, num_heads=4, head_dim=16, mlp_dim=64)
_SEGMENTS = dict(_ATTENTION, segment_length=16)  # Two in an unroll.

# Every core with two layers of 64, so that their costs can be compared.
ALIKE = {
    'TransformerXL': lambda: cores.TransformerXL(**_ATTENTION, memory_length=32),
    "TransformerXL, variant = 'trxl_i'": lambda: cores.TransformerXL(
        **_ATTENTION, memory_length=32, variant='trxl_i'),
    'DeepLSTM': lambda: cores.DeepLSTM(num_layers=2, hidden_dim=64),
    'DeepGRU': lambda: cores.DeepGRU(num_layers=2, hidden_dim=64),
    'Mamba': lambda: cores.Mamba(num_layers=2, model_dim=64),
    'MERLIN': lambda: cores.MERLIN(
        num_rows=64, latent_dim=32, num_layers=2, hidden_dim=64),
    'MambaDM': lambda: cores.MambaDM(num_layers=2, model_dim=64),
    'RATE': lambda: cores.RATE(**_SEGMENTS),
    "SegmentTransformer, recurrence = 'same_layer'": lambda: cores.SegmentTransformer(
        **_SEGMENTS, recurrence='same_layer', memory_length=16, dropout=0.0,
        attention_dropout=0.0),
    'Memoryless': lambda: cores.Memoryless(num_layers=2, hidden_dim=64),
}


def make_core(sizes: Sizes) -> cores.TransformerXL:
  """Makes a GTrXL with variables; its inputs are as wide as the model."""
  core = cores.TransformerXL(
      num_layers=sizes.num_layers, model_dim=sizes.model_dim,
      num_heads=sizes.num_heads, head_dim=sizes.head_dim, mlp_dim=sizes.mlp_dim,
      memory_length=sizes.memory_length)
  core.build(tf.TensorShape([None, None, sizes.model_dim]))
  return core


def full_state(core: cores.Core, batch_size: int) -> Any:
  """Makes a state whose memory is full of steps of the present episode.

  Records cannot restore the state of a core that works in segments. For such a core it
  is the initial state, whose tensors have the same shapes.
  """
  if core.segment_length > 1:
    return core.initial_state(batch_size)
  past = (batch_size, core.memory_length)
  record = core.record(core.initial_cache(batch_size))
  records = tf.nest.map_structure(
      lambda x: tf.cast(tf.random.normal((*past, *x.shape[1:])), x.dtype), record)
  return core.restore(records, tf.zeros(past, tf.bool))


def training_step(core: cores.Core, sizes: Sizes, xla: bool) -> Callable[[], None]:
  """Makes a call that runs the core forward and backward over a batch of unrolls."""
  shape = (sizes.batch_size, sizes.unroll_length)
  inputs = tf.random.normal((*shape, sizes.model_dim))
  is_first = tf.zeros(shape, tf.bool)
  state = full_state(core, sizes.batch_size)

  @tf.function(autograph=False, jit_compile=xla)
  def gradients(inputs, is_first, state):
    with tf.GradientTape() as tape:
      outputs, state = core(inputs, is_first, state)
      loss = tf.reduce_mean(tf.square(outputs))
    return tape.gradient(loss, core.trainable_variables), state

  def call():
    gradients(inputs, is_first, state)[0][0].numpy()

  return call


def acting_step(core: cores.Core, sizes: Sizes, xla: bool, batch_size: int = 1
                ) -> Callable[[], None]:
  """Makes a call that takes the next step in `batch_size` environments, as actors do."""
  inputs = tf.random.normal((batch_size, sizes.model_dim))

  def action(time_step: dm_env.TimeStep, cache: Any) -> policy.PolicyStep:
    outputs, cache = core.step(
        time_step.observation, time_step.first(), cache, move=not xla)
    return policy.PolicyStep(outputs, cache)

  rollout = rollout_lib.Rollout(
      _Still(inputs.numpy()), action, core.cache(full_state(core, batch_size)),
      xla=rollout_lib.XLAStep(core.variables, core.must_move, core.move)
      if xla else None)
  return rollout.step


class _Still:
  """A batch of environments whose time steps never change."""

  def __init__(self, observation: np.ndarray):
    numbers = np.zeros(len(observation), np.float32)
    self._seen = environments.BatchedTimeStep(
        step_type=np.full(len(observation), dm_env.StepType.MID, np.int32),
        reward=numbers, discount=numbers + 1, observation=observation,
        episode_return=numbers, episode_success=numbers)

  def reset(self, unused_head_starts: Any = None) -> environments.BatchedTimeStep:
    return self._seen

  def step(self, unused_actions: Any) -> environments.BatchedTimeStep:
    return self._seen


def cpu_milliseconds(call: Callable[[], None], count: int, warmup: int) -> float:
  """Returns the median CPU time of `count` calls, after `warmup` that are not timed.

  The time is that of all threads, which is steadier than wall time on a machine that is
  not idle.
  """
  for _ in range(warmup):
    call()
  times = []
  for _ in range(count):
    start = time.process_time()
    call()
    times.append(1e3 * (time.process_time() - start))
  return round(statistics.median(times), 2)


def peaks(repeat: int = 5) -> Dict[str, float]:
  """Measures the peak rates of one thread; the process must be limited to one.

  Args:
    repeat: how often each product is taken; the fastest counts.

  Returns:
    `gflops`: the rate of a product of square float32 matrices, in GFLOP/s of CPU time.
    `gbps`: the rate at which a product of matrix and vector reads the matrix, in GB/s.
  """
  square = tf.random.normal([_WIDTH, _WIDTH])
  wide = tf.random.normal([_MATRIX_BYTES // 4 // _WIDTH, _WIDTH])
  vector = tf.random.normal([_WIDTH, 1])
  multiply = min(_seconds(square, square) for _ in range(repeat))
  read = min(_seconds(wide, vector) for _ in range(repeat))
  return {'gflops': round(2e-9 * _WIDTH**3 / multiply, 1),
          'gbps': round(1e-9 * _MATRIX_BYTES / read, 1)}


def _seconds(left: tf.Tensor, right: tf.Tensor) -> float:
  start = time.process_time()
  tf.matmul(left, right).numpy()
  return time.process_time() - start


def training_flops(sizes: Sizes) -> int:
  """Returns the number of floating-point operations of `training_step`.

  Only dense and attention products count, not normalization and the like. A forward and
  a backward pass count as three forward passes. Over memory, where only the weights of
  keys and values have a gradient, they count as two.
  """
  inner, time_steps = sizes.num_heads * sizes.head_dim, sizes.unroll_length
  keys = sizes.memory_length + time_steps
  dense = sizes.model_dim * inner
  per_step = (4 * dense                                # Queries, keys, values, output.
              + 2 * sizes.model_dim * sizes.mlp_dim
              + 2 * 6 * sizes.model_dim**2             # Two GRU gates.
              + 3 * keys * inner)                      # Content, positions, values.
  memory_products = 2 * sizes.memory_length * dense
  positions = keys * dense                             # The same for all unrolls.
  products = (sizes.batch_size * (3 * time_steps * per_step + 2 * memory_products)
              + 2 * positions)
  return 2 * sizes.num_layers * products


def measure(size: str, batches: Sequence[int], repeat: int) -> Dict[str, float]:
  """Times a core on one thread; the process must be limited to one.

  Args:
    size: a key of `SIZES`.
    batches: numbers of environments to act in at once.
    repeat: training steps to time; acting steps are five times as many.

  Returns:
    Medians of CPU time in milliseconds: `train`, and `act_1` for a batch of 1; `gflop`
    of a training step.
  """
  sizes = SIZES[size]
  return {'gflop': 1e-9 * training_flops(sizes),
          **_times(make_core(sizes), sizes, batches, repeat)}


def measure_alike(name: str, batches: Sequence[int], repeat: int) -> Dict[str, float]:
  """Times one of `ALIKE`, as `measure` times a core of `SIZES`.

  Args:
    name: a key of `ALIKE`.
    batches: numbers of environments to act in at once.
    repeat: training steps to time; five times as many acting steps.

  Returns:
    The medians, and the number of parameters as `parameters`.
  """
  core = ALIKE[name]()
  core.build(tf.TensorShape([None, None, ALIKE_SIZES.model_dim]))
  return {'parameters': core.count_params(),
          **_times(core, ALIKE_SIZES, batches, repeat)}


def _times(core: cores.Core, sizes: Sizes, batches: Sequence[int],
           repeat: int) -> Dict[str, float]:
  def median(call, count):
    return cpu_milliseconds(call, count, warmup=2)

  row = {'train': median(training_step(core, sizes, xla=False), repeat)}
  for batch in batches:
    row[f'act_{batch}'] = median(
        acting_step(
            core, sizes, xla=True, batch_size=max(batch, actor.MIN_ROWS)), 5 * repeat)
  return row
