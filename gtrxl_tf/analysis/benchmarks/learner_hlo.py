"""The learner's step as an XLA module, and a TPU compiler's report on it."""

import json
import pathlib
import re
import subprocess
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import tensorflow as tf

from gtrxl_tf.analysis.benchmarks import learner_cost
from gtrxl_tf.analysis.benchmarks import tpu_compiler
from gtrxl_tf.settings import config
from gtrxl_tf.training import learner as learner_lib

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


_AD = 'gin/distillation/'
_HISTORIES = (
    'binaries.collect_histories', f'--gin_file={_AD}dr.gin',
    '--gin_bindings=HistoryCollector.num_histories = 8',
    '--gin_bindings=HistoryCollector.num_evaluation = 1')

STEPS = {
    'vmpo': Step('V-MPO, GTrXL on DMLab-30, 8 unrolls', ('gin/gtrxl/dmlab30.gin',),
                 8),
    'rate': Step('RATE on T-Maze, 64 trajectories',
                 ('gin/rate/t_maze.gin', 'gin/rate/models/rate.gin'),
                 64,
                 ('binaries.collect', '--gin_file=gin/rate/t_maze.gin',
                  '--gin_bindings=Collector.num_episodes = 66')),
    'adf': Step('AD on DarkRoom, ADF, 256 windows',
                (f'{_AD}dr.gin', f'{_AD}models/adf.gin'), 256,
                _HISTORIES, 'training'),
    'ed': Step('AD on DarkRoom, ED, 256 chunks',
               (f'{_AD}dr.gin', f'{_AD}models/ed.gin'), 256,
               _HISTORIES, 'training'),
}

TITLES = ('step', 'type', 'TPU', 'batch', 'arguments, MiB', 'temporaries, MiB',
          'program, MiB', 'GFLOP', 'compiled in, s')


def hlo(learner: learner_lib.Learner, batch: Any, stage: str = 'hlo') -> Any:
  """Returns the XLA module of a learner step on batches like the given one.

  Args:
    learner: on one replica.
    batch: nest of tensors.
    stage: `hlo` for text, `hlo_serialized` for bytes.
  """
  def on_all_rows(batch):  # The compiler does not fill in default arguments.
    return learner.device_step(batch)

  step = tf.function(on_all_rows, jit_compile=True, autograph=False)
  return step.experimental_get_compiler_ir(batch)(stage=stage)


def forbidden(text: str) -> List[str]:
  """Returns the features of a module that a TPU cannot run."""
  return [name for name, pattern in _FORBIDDEN.items() if re.search(pattern, text)]


def write(path: pathlib.Path, gin_files: Sequence[str], gin_bindings: Sequence[str],
          batch_size: int) -> str:
  """Writes the module of an experiment's step into a file, serialized.

  Returns:
    The size of its batch in words.

  Raises:
    ConfigError: the module contains what a TPU cannot run.
  """
  _, learner, batch, size = learner_cost.prepare(gin_files, gin_bindings, batch_size)
  wrong = forbidden(hlo(learner, batch))
  if wrong:
    raise config.ConfigError(f'the step has {", ".join(wrong)}: expected none')
  path.write_bytes(hlo(learner, batch, 'hlo_serialized'))
  return size


def compile_apart(python: str, path: pathlib.Path, tpu: str) -> Dict[str, Any]:
  """Returns the report of `tpu_compiler.py` on a module.

  Args:
    python: the Python of the environment that has the compiler.
    path: the module.
    tpu: a TPU as `tpu_compiler.py` names it.
  """
  done = subprocess.run([python, tpu_compiler.__file__, str(path), tpu],
                        capture_output=True, text=True, check=False)
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
