"""The learner's step as an XLA module, a TPU compiler's report on it, and its run."""

import json
import pathlib
import re
import subprocess
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import dm_env
import numpy as np
import tensorflow as tf

from gtrxl_tf.replay import unroll
from gtrxl_tf.settings import config
from gtrxl_tf.training import learner as learner_lib
from tools import learner_cost

# Features that a TPU does not have, or that this library avoids there.
_FORBIDDEN = {
    'a dynamic shape': r'\w\[[^\]]*(<=|\?)[^\]]*\]',
    'float64': r'\bf64\[',
    'a custom call': r'\bcustom-call',
}


class Step(NamedTuple):
  """A learner step at a paper's size, as one core of a TPU takes it."""
  name: str
  gin_files: Tuple[str, ...]
  rows: int
  collect: Tuple[str, ...] = ()  # A binary with flags that writes a small dataset.
  dataset: str = ''              # Its folder in the output.
  no_dropout: Tuple[str, ...] = ()  # Settings that make the step repeatable.
  settings: Tuple[str, ...] = ()    # Further settings.


_AD = 'gin/distillation/'
_HISTORIES = (
    'binaries.collect_histories', f'--gin_file={_AD}dr.gin',
    '--gin_bindings=HistoryCollector.num_histories = 8',
    '--gin_bindings=HistoryCollector.num_evaluation = 1')
_MAZES = ('binaries.collect', '--gin_file=gin/rate/t_maze.gin',
          '--gin_bindings=Collector.num_episodes = 66')
_NO_DROPOUT = ('SegmentTransformer.dropout = 0.0',
               'SegmentTransformer.attention_dropout = 0.0')

STEPS = {
    'vmpo': Step('V-MPO, GTrXL on DMLab-30, 8 unrolls', ('gin/gtrxl/dmlab30.gin',),
                 8),
    'rate': Step('RATE on T-Maze, 64 trajectories',
                 ('gin/rate/t_maze.gin', 'gin/rate/models/rate.gin'),
                 64, _MAZES,
                 no_dropout=('RATE.dropout = 0.0',)),
    'adf': Step('AD on DarkRoom, ADF, 256 windows',
                (f'{_AD}dr.gin', f'{_AD}models/adf.gin'), 256,
                _HISTORIES, 'training', _NO_DROPOUT),
    'ed': Step('AD on DarkRoom, ED, 256 chunks',
               (f'{_AD}dr.gin', f'{_AD}models/ed.gin'), 256,
               _HISTORIES, 'training', _NO_DROPOUT),
    # It needs `make envs`.
    'r2d2': Step('R2D2, LSTM on Atari, 16 sequences', ('gin/r2d2/atari.gin',), 16,
                 settings=("Atari.game = 'ms_pacman'",)),
}


def hlo(learner: learner_lib.Learner, batch: Any, stage: str = 'hlo') -> Any:
  """Returns the XLA module of a learner step on batches like the given one.

  Args:
    learner: a learner on one replica.
    batch: nest of tensors.
    stage: `hlo` for text, `hlo_serialized` for bytes.
  """
  return _compiled(learner).experimental_get_compiler_ir(batch)(stage=stage)


def _compiled(learner: learner_lib.Learner, **options) -> Any:
  """Returns the step with the updates that follow it: PopArt's, and target copies."""
  agent = learner.agent

  def step(batch):
    metrics = learner.device_step(batch)
    agent.after_step({name: x for name, x in metrics.items()
                      if not tf.is_tensor(x) or x.shape.rank})
    if hasattr(agent, 'refresh_acting_network'):
      agent.refresh_acting_network()
    return metrics

  return tf.function(step, autograph=False, **{'jit_compile': True, **options})


def forbidden(text: str) -> List[str]:
  """Returns the features of a module that a TPU cannot run."""
  return [name for name, pattern in _FORBIDDEN.items() if re.search(pattern, text)]


def num_constants(learner: learner_lib.Learner, batch: Any) -> int:
  """Returns how many of a step's inputs are constants of its module.

  XLA would compile the step again for each of their values. Inputs without elements do
  not count.
  """
  entry = hlo(learner, batch).split('\nENTRY ', 1)[1]
  return len(_inputs(learner, batch)()) - entry.count(' parameter(')


def _inputs(learner: learner_lib.Learner, batch: Any) -> Callable[[], List[tf.Tensor]]:
  """Returns a function that reads what a step's module takes, in its order."""
  function = _compiled(learner).get_concrete_function(batch)

  def read():
    inputs = [*tf.nest.flatten(batch), *map(value, function.captured_inputs)]
    return [x for x in inputs if x.shape.num_elements()]  # XLA drops the others.
  return read


def write(path: pathlib.Path, gin_files: Sequence[str], gin_bindings: Sequence[str],
          batch_size: int, runs: bool = False) -> str:
  """Writes the module of an experiment's step into a file, serialized.

  Args:
    path: the file.
    gin_files: files of settings.
    gin_bindings: single settings.
    batch_size: rows of a batch.
    runs: whether to take the step, too, and write what `xla_runner.py` needs.

  Returns:
    The size of its batch in words.
  """
  _, learner, batch, size = learner_cost.prepare(gin_files, gin_bindings, batch_size)
  wrong = forbidden(hlo(learner, batch))
  if num_constants(learner, batch):
    wrong.append('inputs that are constants')
  if wrong:
    raise config.ConfigError(f'the step has {", ".join(wrong)}: expected none')
  path.write_bytes(hlo(learner, batch, 'hlo_serialized'))
  if runs:
    write_step(path, learner, played(batch))
  return size


def played(batch: Any) -> Any:
  """Turns an online batch into one of a long episode with random contents.

  An offline batch stays as it is. The blank batch of an online experiment has first
  steps only, which see no memory. Its Gaussian policies have no variance, so that their
  losses are not finite.
  """
  if isinstance(batch, unroll.Sample):
    return batch._replace(unroll=played(batch.unroll))
  if not isinstance(batch, unroll.Unroll):
    return batch
  random = np.random.RandomState(0)

  def draw(x):
    if x.dtype == tf.uint8:
      return tf.constant(random.randint(256, size=x.shape), tf.uint8)
    if x.dtype.is_floating:  # Positive, because the policy contains scales.
      return tf.constant(random.uniform(0.5, 1.5, x.shape), x.dtype)
    return x

  return batch._replace(
      observation=tf.nest.map_structure(draw, batch.observation),
      step_type=tf.fill(batch.step_type.shape, int(dm_env.StepType.MID)),
      reward=draw(batch.reward), discount=tf.ones_like(batch.discount),
      policy=tf.nest.map_structure(draw, batch.policy))


def write_step(path: pathlib.Path, learner: learner_lib.Learner, batch: Any) -> None:
  """Takes a step; writes what `xla_runner.py` reads beside the module in a file."""
  inputs = _inputs(learner, batch)
  before = [x.numpy() for x in inputs()]
  results = tf.nest.flatten(_compiled(learner, jit_compile=None)(batch))
  np.savez(f'{path}.npz', **{
      f'{name}_{i}': np.asarray(x)
      for name, arrays in (('before', before), ('result', results), ('after', inputs()))
      for i, x in enumerate(arrays)})


def value(captured: tf.Tensor) -> tf.Tensor:
  """Returns the value of what a function captures: a tensor or a variable's handle."""
  if captured.dtype != tf.resource:
    return captured
  # pylint: disable-next=protected-access
  dtype = tf.as_dtype(captured._handle_data.shape_and_type[0].dtype)
  return tf.raw_ops.ReadVariableOp(resource=captured, dtype=dtype)


def report(python: str, program: Any, path: pathlib.Path, *arguments: str
           ) -> Dict[str, Any]:
  """Runs a program on a module that `write` has written; returns what it reports.

  Args:
    python: the Python of an environment with jax.
    program: `tpu_compiler` or `xla_runner`.
    path: the module.
    *arguments: the program's other arguments.

  Returns:
    What it says in its last line, or an `error`.
  """
  done = subprocess.run([python, program.__file__, str(path), *arguments],
                        capture_output=True, text=True, check=False)
  try:
    return json.loads(done.stdout.splitlines()[-1])
  except (ValueError, IndexError):
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return {'error': said[-1] if said else f'exit code {done.returncode}'}
