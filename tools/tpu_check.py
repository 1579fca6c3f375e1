"""Compiles learner steps at the papers' sizes for TPUs, on a machine without one.

  make tpu-check
  make tpu-check ARGS='--steps=rate --steps=adf --types=float32 --tpus=v4'
  make tpu-check ARGS='--execute --platform=cuda'

With `--execute` it does not compile for TPUs: it takes the same steps, without dropout,
on a device of this machine, through PJRT, and compares them with TensorFlow's. It
prints a table, which docs/performance.md explains. The compiler has a separate environment,
which `make tpu-check` sets up, because it needs another version of jax; for `cuda`,
install `jax[cuda12]==0.6.2` there.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any, Dict, Iterator, Sequence

from absl import flags

from gtrxl_tf.launch import program
from gtrxl_tf.settings import config
import tools
from tools import learner_hlo
from tools import tpu_compiler
from tools import xla_runner

_STEPS = flags.DEFINE_multi_enum(
    'steps', list(learner_hlo.STEPS), list(learner_hlo.STEPS),
    'The agents. That of R2D2 needs `make envs`.')
_TYPES = flags.DEFINE_multi_enum(
    'types', ['float32', 'bfloat16'], ['float32', 'bfloat16'],
    'The types in which networks compute.')
_TPUS = flags.DEFINE_multi_enum(
    'tpus', list(tpu_compiler.TOPOLOGIES), list(tpu_compiler.TOPOLOGIES), 'The TPUs.')
_EXECUTE = flags.DEFINE_bool(
    'execute', False, 'Take the steps on this machine instead.')
_PLATFORM = flags.DEFINE_enum(
    'platform', 'cpu', ['cpu', 'cuda'], 'Where --execute takes the steps.')
_REPEAT = flags.DEFINE_integer(
    'repeat', 3, 'Steps that --execute times.', lower_bound=1)
_PYTHON = flags.DEFINE_string(
    'python', '.venv-tpu/bin/python', 'Python of the environment with the compiler.')


def _rows(step: learner_hlo.Step, folder: pathlib.Path) -> Iterator[Dict[str, str]]:
  bindings = list(step.settings)
  if step.collect:
    data = folder / str(hash(step.collect))
    if not data.exists():
      subprocess.run([sys.executable, '-m', *step.collect, f'--output_dir={data}'],
                     check=True, stdout=subprocess.DEVNULL)
    bindings.append(f"dataset = '{data / step.dataset}'")
  if _EXECUTE.value:  # XLA's random numbers are not TensorFlow's.
    bindings += step.no_dropout
  module = folder / 'module'
  for dtype in _TYPES.value:
    size = tools.call_apart(learner_hlo.write, module, step.gin_files, [
        *bindings, f"Experiment.compute_dtype = '{dtype}'"], step.rows, _EXECUTE.value)
    row = {'step': step.name, 'type': dtype}
    if _EXECUTE.value:
      yield {**row, 'batch': size, **_cells(xla_runner.TITLES, learner_hlo.report(
          _PYTHON.value, xla_runner, module, _PLATFORM.value, str(_REPEAT.value)))}
      continue
    for tpu in _TPUS.value:
      yield {**row, 'TPU': tpu, 'batch': size, **_cells(
          tpu_compiler.TITLES,
          learner_hlo.report(_PYTHON.value, tpu_compiler, module, tpu))}


def _cells(titles: Sequence[str], found: Dict[str, Any]) -> Dict[str, str]:
  """Returns cells with the numbers of a report, or with its error in the first one."""
  if 'error' in found:
    needs = re.search(r'Used (\S+) of (\S+) hbm', found['error'])
    return {**dict.fromkeys(titles, ''), titles[0]: (
        f'does not fit: {needs[1]} of {needs[2]}' if needs
        else found['error'].splitlines()[0])}
  return {title: x if isinstance(x, str) else f'{x:,}' for title, x in found.items()}


def main() -> None:
  if not pathlib.Path(_PYTHON.value).exists():
    sys.exit(f'--python={_PYTHON.value}: no such file; `make tpu-check` makes it')
  try:
    with tempfile.TemporaryDirectory() as folder:
      tools.print_table(row for name in _STEPS.value for row in _rows(
          learner_hlo.STEPS[name], pathlib.Path(folder)))
  except config.ConfigError as error:
    sys.exit(f'Stopped: {error}')


if __name__ == '__main__':
  program.run(main)
