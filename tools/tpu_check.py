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

from concurrent import futures
import multiprocessing
import pathlib
import subprocess
import sys
import tempfile

from absl import flags

from gtrxl_tf.launch import program
from gtrxl_tf.settings import config
import tools
from tools import learner_hlo
from tools import tpu_compiler

_STEPS = flags.DEFINE_multi_enum(
    'steps', list(learner_hlo.STEPS), list(learner_hlo.STEPS),
    'The agents. Those of R2D2 and TAP need `make envs`.')
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


def _write(*args) -> str:
  """Calls `learner_hlo.write` in a new process, with its own settings."""
  with futures.ProcessPoolExecutor(
      1, mp_context=multiprocessing.get_context('spawn')) as pool:
    return pool.submit(learner_hlo.write, *args).result()


def _check(step: learner_hlo.Step, folder: pathlib.Path) -> None:
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
    size = _write(module, step.gin_files, [
        *bindings, f"Experiment.compute_dtype = '{dtype}'"], step.rows, _EXECUTE.value)
    if _EXECUTE.value:
      tools.print_row(learner_hlo.run_cells(step.name, dtype, size, learner_hlo.run_apart(
          _PYTHON.value, module, _PLATFORM.value, _REPEAT.value)))
      continue
    for tpu in _TPUS.value:
      found = learner_hlo.compile_apart(_PYTHON.value, module, tpu)
      tools.print_row(learner_hlo.cells(step.name, dtype, tpu, size, found))


def main() -> None:
  if not pathlib.Path(_PYTHON.value).exists():
    sys.exit(f'--python={_PYTHON.value}: no such file; `make tpu-check` makes it')
  titles = learner_hlo.RUN_TITLES if _EXECUTE.value else learner_hlo.TITLES
  tools.print_row(titles)
  tools.print_row(['---'] * 4 + ['--:'] * (len(titles) - 4))
  try:
    with tempfile.TemporaryDirectory() as folder:
      for name in _STEPS.value:
        _check(learner_hlo.STEPS[name], pathlib.Path(folder))
  except config.ConfigError as error:
    sys.exit(f'Stopped: {error}')


if __name__ == '__main__':
  program.run(main)
