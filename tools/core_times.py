"""The CPU time that a memory core takes to learn and to act.

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


def measure(name: str, batches: Sequence[int], repeat: int) -> Dict[str, float]:
  """Times a core on one thread; the process must be limited to one.

  Args:
    name: a key of `SIZES` or of `ALIKE`.
    batches: numbers of environments to act in at once.
    repeat: training steps to time; five times as many acting steps.

  Returns:
    The number of `parameters`, and medians of CPU time in milliseconds: `train`, and
    `act_1` for a batch of 1.
  """
  sizes = SIZES.get(name, ALIKE_SIZES)
  core = make_core(sizes) if name in SIZES else ALIKE[name]()
  core.build(tf.TensorShape([None, None, sizes.model_dim]))
  found = {'parameters': core.count_params(), 'train': cpu_milliseconds(
      training_step(core, sizes, xla=False), repeat, warmup=2)}
  for batch in batches:
    step = acting_step(core, sizes, xla=True, batch_size=max(batch, actor.MIN_ROWS))
    found[f'act_{batch}'] = cpu_milliseconds(step, 5 * repeat, warmup=2)
  return found
