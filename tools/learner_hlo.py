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
from tools import tpu_compiler
from tools import xla_runner

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
    'mambadm': Step('MambaDM on T-Maze, 64 trajectories',
                    ('gin/rate/t_maze.gin', 'gin/rate/models/mambadm.gin'), 64, _MAZES),
    'merlin': Step('V-MPO, MERLIN on Numpad, 8 unrolls',
                   ('gin/gtrxl/numpad_2x2.gin', 'gin/cores/merlin.gin'), 8),
    # The next two need `make envs`.
    'r2d2': Step('R2D2, LSTM on Atari, 16 sequences', ('gin/r2d2/atari.gin',), 16,
                 settings=("Atari.game = 'ms_pacman'",)),
    'tap': Step('TAP on Hopper, 512 windows',
                ('gin/rate/mujoco_hopper.gin', 'gin/rate/models/tap.gin'), 512,
                ('binaries.collect', '--gin_file=gin/rate/mujoco_hopper_cpu.gin',
                 '--gin_bindings=Collector.epsilon = 1.0'),
                no_dropout=('TAPNetwork.dropout = 0.0',)),
}

TITLES = ('step', 'type', 'TPU', 'batch', 'arguments, MiB', 'temporaries, MiB',
          'program, MiB', 'GFLOP', 'compiled in, s')
RUN_TITLES = ('step', 'type', 'device', 'batch', 'step, ms', 'memory, MiB', 'GFLOP/s',
              'differs by')

_ARGUMENTS, _OUTPUTS, _EXPECTED = 'arguments.npz', 'outputs.npz', 'expected.npz'


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
    runs: whether to take the step, too, and write what `run_apart` needs beside the
      file.

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
    write_step(path.parent, learner, played(batch))
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


def write_step(folder: pathlib.Path, learner: learner_lib.Learner, batch: Any) -> None:
  """Writes the parameters of a step's module, takes the step, and writes the results."""
  inputs = _inputs(learner, batch)

  def save(name, results):
    np.savez(folder / name, **{
        str(i): x.numpy() for i, x in enumerate([*results, *inputs()])})

  save(_ARGUMENTS, [])
  save(_EXPECTED, tf.nest.flatten(_compiled(learner, jit_compile=None)(batch)))


def value(captured: tf.Tensor) -> tf.Tensor:
  """Returns the value of what a function captures: a tensor or a variable's handle."""
  if captured.dtype != tf.resource:
    return captured
  # pylint: disable-next=protected-access
  dtype = tf.as_dtype(captured._handle_data.shape_and_type[0].dtype)
  return tf.raw_ops.ReadVariableOp(resource=captured, dtype=dtype)


def run_apart(python: str, path: pathlib.Path, platform: str, repeat: int
              ) -> Dict[str, Any]:
  """Runs a module that `write` has written, and compares it with TensorFlow's step.

  Args:
    python: the Python of an environment with jax.
    path: the module.
    platform: `cpu` or `cuda`.
    repeat: steps to time.

  Returns:
    The report of `xla_runner.py`. `difference` is the larger of two numbers: by how much
    results differ, at most, divided by their size if that is more than 1; and the norm
    by which variables differ, divided by that of their change.
  """
  files = [path.parent / name for name in (_ARGUMENTS, _OUTPUTS)]
  report = _last_line([python, xla_runner.__file__, str(path), *map(str, files), platform,
                       str(repeat)])
  if 'error' not in report:
    report['difference'] = _difference(*(
        np.load(x, allow_pickle=False) for x in (*files, path.parent / _EXPECTED)))
  return report


def _difference(before: Any, found: Any, expected: Any) -> float:
  results = sum(found['parameters'] < 0)  # TensorFlow returns them first.
  relative, error, change = 0.0, 0.0, 0.0
  for i, parameter in enumerate(found['parameters']):
    x, y = (np.asarray(z, np.float64) for z in (
        found[str(i)], expected[str(i if parameter < 0 else results + parameter)]))
    if parameter < 0:
      relative = max(relative, np.max(np.abs(x - y) / np.maximum(1, np.abs(y)), initial=0))
    else:
      error += np.sum((x - y)**2)
      change += np.sum((y - before[str(parameter)])**2)
  return float(max(relative, np.sqrt(error / change)))


def compile_apart(python: str, path: pathlib.Path, tpu: str) -> Dict[str, Any]:
  """Returns the report of `tpu_compiler.py` on a module.

  Args:
    python: the Python of the environment that has the compiler.
    path: the module.
    tpu: a TPU as `tpu_compiler.py` names it.
  """
  return _last_line([python, tpu_compiler.__file__, str(path), tpu])


def _last_line(command: Sequence[str]) -> Dict[str, Any]:
  """Runs a command; returns what it says in its last line, or an `error`."""
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  try:
    return json.loads(done.stdout.splitlines()[-1])
  except (ValueError, IndexError):
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return {'error': said[-1] if said else f'exit code {done.returncode}'}


def cells(name: str, dtype: str, tpu: str, size: str, found: Dict[str, Any]
          ) -> List[str]:
  """Returns a row of the table with `TITLES`."""
  if 'error' in found:
    needs = re.search(r'Used (\S+) of (\S+) hbm', found['error'])
    why = (f'does not fit: {needs[1]} of {needs[2]}' if needs
           else found['error'].splitlines()[0])
    return [name, dtype, tpu, size, why, *[''] * 4]

  def mib(*names: str) -> str:
    return f'{sum(found[x] for x in names) / 2**20:,.0f}'

  return [name, dtype, tpu, size, mib('arguments', 'outputs'), mib('temporaries'),
          mib('program'), f'{found["operations"] / 1e9:,.0f}',
          f'{found["seconds"]:.0f}']


def run_cells(name: str, dtype: str, size: str, found: Dict[str, Any]) -> List[str]:
  """Returns a row of the table with `RUN_TITLES`."""
  if 'error' in found:
    return [name, dtype, '', size, found['error'].splitlines()[0], *[''] * 3]
  return [name, dtype, found['device'], size, f'{1e3 * found["seconds"]:,.1f}',
          f'{found["bytes"] / 2**20:,.0f}',
          f'{found["operations"] / found["seconds"] / 1e9:,.0f}',
          f'{found["difference"]:.1e}']
