"""The machine's own peaks, and the share of them that a memory core reaches."""

import time
from typing import Dict, Sequence

import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.analysis.benchmarks import cores as cores_lib
from gtrxl_tf.training.online import actor

_WIDTH = 2048              # Rows of the matrices to multiply, which exceed caches.
_MATRIX_BYTES = 4 * 2**26  # Size of the matrix to read.


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


def training_flops(sizes: cores_lib.Sizes) -> int:
  """Returns the number of floating-point operations of `cores.training_step`.

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
    size: a key of `cores.SIZES`.
    batches: numbers of environments to act in at once.
    repeat: training steps to time; acting steps are five times as many.

  Returns:
    Medians of CPU time in milliseconds: `train`, and `act_1` for a batch of 1; `gflop`
    of a training step.
  """
  sizes = cores_lib.SIZES[size]
  return {'gflop': 1e-9 * training_flops(sizes),
          **_times(cores_lib.make_core(sizes), sizes, batches, repeat)}


def measure_alike(name: str, batches: Sequence[int], repeat: int) -> Dict[str, float]:
  """Times one of `cores.ALIKE`, as `measure` times a core of `cores.SIZES`.

  Args:
    name: a key of `cores.ALIKE`.
    batches: numbers of environments to act in at once.
    repeat: training steps to time; five times as many acting steps.

  Returns:
    The medians, and the number of parameters as `parameters`.
  """
  core = cores_lib.ALIKE[name]()
  core.build(tf.TensorShape([None, None, cores_lib.ALIKE_SIZES.model_dim]))
  return {'parameters': core.count_params(),
          **_times(core, cores_lib.ALIKE_SIZES, batches, repeat)}


def _times(core: cores.Core, sizes: cores_lib.Sizes, batches: Sequence[int],
           repeat: int) -> Dict[str, float]:
  def median(call, count):
    return cores_lib.cpu_milliseconds(call, count, warmup=2)

  row = {'train': median(cores_lib.training_step(core, sizes, xla=False), repeat)}
  for batch in batches:
    row[f'act_{batch}'] = median(
        cores_lib.acting_step(
            core, sizes, xla=True, batch_size=max(batch, actor.MIN_ROWS)), 5 * repeat)
  return row
