"""Measures memory cores and a whole run, and prints tables.

  python -m tools.benchmark --seeds=0,1,2
  python -m tools.benchmark --cores=paper --batches=1,16 --job=
  python -m tools.benchmark --cores=alike --job=

Times are CPU seconds, which are steadier than wall time; cores use one thread. The
default measurements take about three minutes.
"""

from concurrent import futures
from concurrent.futures import process
import multiprocessing
import resource
import subprocess
import sys
import tempfile

from absl import flags

from gtrxl_tf.launch import processes
from gtrxl_tf.launch import program
from gtrxl_tf.training import devices
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder
import tools
from tools import core_times

_CORES = flags.DEFINE_list(
    'cores', 'small,paper',
    "GTrXLs of these sizes (tiny, small, paper), and 'alike': every core with two layers "
    'of 64, in unrolls of 64 x 32.')
flags.register_validator(
    'cores', lambda names: set(names) <= {*core_times.SIZES, 'alike'},
    'expected some of tiny, small, paper, alike')
_BATCHES = flags.DEFINE_list(
    'batches', '1,16,64', 'Numbers of environments to act in at once.')
_REPEAT = flags.DEFINE_integer(
    'repeat', 5, 'Training steps to time; five times as many acting steps.',
    lower_bound=1)
_JOB = flags.DEFINE_list(
    'job', ['gin/gtrxl/numpad_2x2_cpu.gin'], 'Settings of the run; empty for none.')
_SEEDS = flags.DEFINE_list('seeds', '0', 'Seeds of the run.')


def _print_titles(*titles: str) -> None:
  tools.print_row(titles)
  tools.print_row(['---'] + ['--:'] * (len(titles) - 1))


def _measure_cores() -> None:
  batches = [int(batch) for batch in _BATCHES.value]
  _print_titles('core', 'parameters', 'learning, CPU ms',
                *(f'acting in {batch}, CPU ms' for batch in batches))
  names = [name for name in _CORES.value if name != 'alike']
  names += core_times.ALIKE if 'alike' in _CORES.value else []
  for name in names:  # Each in a new process, which shares no memory or caches.
    with futures.ProcessPoolExecutor(
        1, multiprocessing.get_context('spawn'), devices.set_threads, (1,)) as pool:
      row = pool.submit(core_times.measure, name, batches, _REPEAT.value).result()
    tools.print_row([name, f'{row["parameters"]:,}', f'{row["train"]:.0f}',
                     *(f'{row[f"act_{batch}"]:.2f}' for batch in batches)])


def _measure_job() -> None:
  print(f'\n{" ".join(_JOB.value)}: the whole command, all processes\n')
  _print_titles('seed', 'environment steps', 's', 'CPU s', 'return')
  for seed in _SEEDS.value:
    with tempfile.TemporaryDirectory() as root:
      before = resource.getrusage(resource.RUSAGE_CHILDREN)
      subprocess.run(
          processes.gtrxl('train', f'--root_dir={root}',
                          f'--gin_bindings=Experiment.seed = {seed}',
                          *(f'--gin_file={gin_file}' for gin_file in _JOB.value)),
          stdout=subprocess.DEVNULL, check=True)
      after = resource.getrusage(resource.RUSAGE_CHILDREN)
      last = metrics_csv.read_metrics(run_folder.RunFolder(root).metrics)[-1]
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    tools.print_row([seed, f'{last["environment_steps"]:,.0f}', f'{last["seconds"]:.0f}',
                     f'{used:.0f}', f'{last["return"]:.1f}'])


def main() -> None:
  tools.check_numbers('batches', _BATCHES.value)
  tools.check_numbers('seeds', _SEEDS.value, least=0)
  try:
    if _CORES.value:
      _measure_cores()
    if _JOB.value:
      _measure_job()
  except (process.BrokenProcessPool, subprocess.CalledProcessError) as error:
    sys.exit(f'Stopped: {error}')


if __name__ == '__main__':
  program.run(main)
