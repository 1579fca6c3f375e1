"""Measures memory cores and a whole run, and prints tables.

  python -m tools.benchmark
  python -m tools.benchmark --cores=paper --batches=1,16 --job=
  python -m tools.benchmark --cores=alike --job=

Times are CPU seconds, which are steadier than wall time; cores use one thread. The
default measurements take about three minutes.
"""

from concurrent.futures import process
import resource
import subprocess
import sys
import tempfile
from typing import Dict, Iterator

from absl import flags

from gtrxl_tf.launch import processes
from gtrxl_tf.launch import program
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder
import tools
from tools import core_times

_CORES = flags.DEFINE_list(
    'cores', 'small,paper',
    "GTrXLs of these sizes (small, paper), and 'alike': every core with two layers of 64, "
    'in unrolls of 64 x 32.')
flags.register_validator(
    'cores', lambda names: set(names) <= {*core_times.SIZES, 'alike'},
    'expected some of small, paper, alike')
_BATCHES = flags.DEFINE_list(
    'batches', '1,16,64', 'Numbers of environments to act in at once.')
_JOB = flags.DEFINE_list(
    'job', ['gin/gtrxl/numpad_2x2_cpu.gin'], 'Settings of the run; empty for none.')


def _measure_cores() -> Iterator[Dict[str, str]]:
  batches = tools.numbers(_BATCHES)
  for name in _CORES.value:
    for core in core_times.ALIKE if name == 'alike' else [name]:
      yield tools.call_apart(core_times.measure, core, batches)


def _measure_job() -> Iterator[Dict[str, str]]:
  with tempfile.TemporaryDirectory() as root:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        processes.gtrxl('train', f'--root_dir={root}',
                        *(f'--gin_file={gin_file}' for gin_file in _JOB.value)),
        stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    last = metrics_csv.read_metrics(run_folder.RunFolder(root).metrics)[-1]
  used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
  yield {'environment steps': f'{last["environment_steps"]:,.0f}',
         's': f'{last["seconds"]:.0f}', 'CPU s': f'{used:.0f}',
         'return': f'{last["return"]:.1f}'}


def main() -> None:
  try:
    tools.print_table(_measure_cores())
    if _JOB.value:
      print(f'\n{" ".join(_JOB.value)}: the whole command, all processes\n')
      tools.print_table(_measure_job())
  except (process.BrokenProcessPool, subprocess.CalledProcessError) as error:
    sys.exit(f'Stopped: {error}')


if __name__ == '__main__':
  program.run(main)
