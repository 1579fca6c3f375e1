"""The CPU time that a memory core takes to learn and to act."""

import statistics
import time
import types
from typing import Any, Callable, Dict, NamedTuple, Sequence

import dm_env
import numpy as np
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import environments
from gtrxl_tf.agents import policy
from gtrxl_tf.training import devices
from gtrxl_tf.training import rollout as rollout_lib
from gtrxl_tf.training.online import actor


class Setting(NamedTuple):
  """How a core is timed."""
  make: Callable[[], cores.Core]
  width: int = 64          # The width of its inputs.
  batch_size: int = 64     # The batch of a training step.
  unroll_length: int = 32


_PAPER = dict(model_dim=256, num_heads=8, head_dim=64, mlp_dim=512)
SIZES = {
    'small': Setting(lambda: cores.TransformerXL(
        num_layers=4, memory_length=128, **_PAPER), 256, 8, 95),
    # The paper's sizes for Numpad and Memory Maze; it does not give the MLP's.
    'paper': Setting(lambda: cores.TransformerXL(
        num_layers=12, memory_length=512, **_PAPER), 256, 2, 95),
}

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


def training_step(core: cores.Core, setting: Setting) -> Callable[[], None]:
  """Makes a call that runs the core forward and backward over a batch of unrolls."""
  shape = (setting.batch_size, setting.unroll_length)
  inputs = tf.random.normal((*shape, setting.width))
  is_first = tf.zeros(shape, tf.bool)
  state = core.initial_state(setting.batch_size)

  @tf.function(autograph=False)
  def gradients(inputs, is_first, state):
    with tf.GradientTape() as tape:
      outputs, state = core(inputs, is_first, state)
      loss = tf.reduce_mean(tf.square(outputs))
    return tape.gradient(loss, core.trainable_variables), state

  return lambda: gradients(inputs, is_first, state)[0][0].numpy()


def acting_step(core: cores.Core, setting: Setting, batch_size: int) -> Callable[[], None]:
  """Makes a call that takes the next step in `batch_size` environments, as actors do."""
  numbers = np.zeros(batch_size, np.float32)
  seen = environments.BatchedTimeStep(
      step_type=np.full(batch_size, dm_env.StepType.MID, np.int32),
      reward=numbers, discount=numbers + 1, episode_return=numbers, episode_success=numbers,
      observation=np.random.normal(size=[batch_size, setting.width]).astype(np.float32))
  still = types.SimpleNamespace(reset=lambda _: seen, step=lambda _: seen)

  def action(time_step: dm_env.TimeStep, cache: Any) -> policy.PolicyStep:
    outputs, cache = core.step(
        time_step.observation, time_step.first(), cache, move=False)
    return policy.PolicyStep(outputs, cache)

  return rollout_lib.Rollout(
      still, action, core.initial_cache(batch_size),
      xla=rollout_lib.XLAStep(core.variables, core.must_move, core.move)).step


def cpu_milliseconds(call: Callable[[], None], count: int) -> float:
  """Returns the median CPU time of `count` calls, after two that are not timed.

  The time is that of all threads, which is steadier than wall time on a machine that is
  not idle.
  """
  for _ in range(2):
    call()
  times = []
  for _ in range(count):
    start = time.process_time()
    call()
    times.append(1e3 * (time.process_time() - start))
  return statistics.median(times)


def measure(name: str, batches: Sequence[int]) -> Dict[str, str]:
  """Times a core on one thread, to which it limits the process.

  Args:
    name: a key of `SIZES` or of `ALIKE`.
    batches: numbers of environments to act in at once.

  Returns:
    A row of a table. Its times are medians of CPU time.
  """
  devices.set_threads(1)
  setting = SIZES.get(name) or Setting(ALIKE[name])
  core = setting.make()
  core.build(tf.TensorShape([None, None, setting.width]))
  learning = cpu_milliseconds(training_step(core, setting), 5)
  row = {'core': name, 'parameters': f'{core.count_params():,}',
         'learning, CPU ms': f'{learning:.0f}'}
  for batch in batches:
    step = acting_step(core, setting, max(batch, actor.MIN_ROWS))
    row[f'acting in {batch}, CPU ms'] = f'{cpu_milliseconds(step, 25):.2f}'
  return row
