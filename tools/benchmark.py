"""Measures the machine, memory cores, and a whole run, and prints tables.

  python -m tools.benchmark --seeds=0,1,2 --json=/tmp/gtrxl_tf.json
  python -m tools.benchmark --sizes=paper --batches=1,16 --job=
  python -m tools.benchmark --alike --sizes= --job=

Times are CPU seconds, which are steadier than wall time; cores use one thread. The
default measurements take about three minutes.
"""

from concurrent import futures
from concurrent.futures import process
import json
import multiprocessing
import pathlib
import signal
import statistics
import sys
from typing import Any, Callable

from absl import flags

from gtrxl_tf.launch import prepare
from gtrxl_tf.launch import program
from gtrxl_tf.settings import config
from gtrxl_tf.training import devices
import tools
from tools import core_times
from tools import job

_SIZES = flags.DEFINE_list('sizes', 'small,paper', 'Cores: tiny, small, paper.')
flags.register_validator(
    'sizes', lambda sizes: set(sizes) <= set(core_times.SIZES),
    'expected some of tiny, small, paper')
_ALIKE = flags.DEFINE_bool(
    'alike', False, 'Also every core with two layers of 64, in unrolls of 64 x 32.')
_BATCHES = flags.DEFINE_list(
    'batches', '1,16,64', 'Numbers of environments to act in at once.')
_REPEAT = flags.DEFINE_integer(
    'repeat', 5, 'Training steps to time; five times as many acting steps.',
    lower_bound=1)
_JOB = flags.DEFINE_list(
    'job', ['gin/gtrxl/numpad_2x2_cpu.gin'],
    'Settings of the run; empty to measure none.')
_GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], "Single settings of the run, which override the file's.")
_STEPS = flags.DEFINE_integer(
    'steps', None, "Environment steps of the run; by default the settings'.",
    lower_bound=1)
_SEEDS = flags.DEFINE_list('seeds', '0', 'Seeds of the run.')
_JSON = flags.DEFINE_string('json', None, 'A file for the measurements.')


def _print_titles(*titles: str) -> None:
  tools.print_row(titles)
  tools.print_row(['---'] + ['--:'] * (len(titles) - 1))


def _informed() -> Any:
  """Returns the informed policy's return in the run's environment, if it has one."""
  experiment = prepare.prepare(_JOB.value, _GIN_BINDINGS.value, check=False)
  tools.check_online(experiment, 'job', _JOB.value)
  return experiment.informed_return()


def _apart(function: Callable[..., Any], *arguments) -> Any:
  """Calls a function in a new process of one thread, which shares no memory or caches."""
  with futures.ProcessPoolExecutor(
      1, multiprocessing.get_context('spawn'), devices.set_threads, (1,)) as pool:
    return pool.submit(function, *arguments).result()


def _measure_cores(found: dict) -> None:
  batches = [int(batch) for batch in _BATCHES.value]
  found['machine'] = peaks = _apart(core_times.peaks)
  print(f'One thread: {peaks["gflops"]:.0f} GFLOP/s in a product of matrices, '
        f'{peaks["gbps"]:.0f} GB/s in a product of matrix and vector.\n')
  acting = [f'acting in {batch}, CPU ms' for batch in batches]
  if _SIZES.value:
    _print_titles('core', 'learning, CPU ms', 'share of the matrix peak', *acting)
  for size in _SIZES.value:
    found[size] = row = _apart(core_times.measure, size, batches, _REPEAT.value)
    share = row['gflop'] / (1e-3 * row['train']) / peaks['gflops']
    tools.print_row([size, f'{row["train"]:.0f}', f'{share:.2f}',
                     *(f'{row[f"act_{batch}"]:.2f}' for batch in batches)])
  if _ALIKE.value:
    _print_titles('core', 'parameters', 'learning, CPU ms', *acting)
    for name in core_times.ALIKE:
      found[name] = row = _apart(core_times.measure_alike, name, batches, _REPEAT.value)
      tools.print_row([name, f'{row["parameters"]:,}', f'{row["train"]:.0f}',
                       *(f'{row[f"act_{batch}"]:.2f}' for batch in batches)])


def _measure_job(found: dict) -> None:
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # The run is stopped first.
  informed = _informed()
  files = ' '.join(_JOB.value)
  steps = '' if _STEPS.value is None else f', {_STEPS.value:,} environment steps'
  print(f'\n{files}{steps}: CPU seconds of all processes, from the first learner step'
        + ('' if informed is None else f'; per cent of {informed:.1f}') + '\n')
  shares = () if informed is None else job.SHARES
  _print_titles(
      'seed', 'start, s', 'CPU s', 'steps per CPU s',
      *(f'{what} to {share} %' for share in shares for what in ('steps', 'CPU s')),
      'return', 'whole command, s', 'CPU s')
  names = ['start_s', 'start_cpu_s', 'steps_per_cpu_s',
           *(f'{what}_{share}' for share in shares for what in ('steps', 'cpu_s')),
           'return', 'whole_s', 'whole_cpu_s']
  rows = found['job'] = []
  for seed in _SEEDS.value:
    rows.append(job.measure(
        _JOB.value, int(seed), _STEPS.value, informed, _GIN_BINDINGS.value))
    tools.print_row([seed, *(_cell(name, rows[-1][name]) for name in names)])
  if len(rows) > 1:
    tools.print_row(['median', *(
        _cell(name, statistics.median([row[name] for row in rows])
              if all(row[name] is not None for row in rows) else None)
        for name in names)])


def _cell(name: str, value: Any) -> str:
  if value is None:
    return '-'
  return f'{value:,.0f}' if name.startswith('steps') else f'{value:.1f}'


def main() -> None:
  tools.check_numbers('batches', _BATCHES.value)
  tools.check_numbers('seeds', _SEEDS.value, least=0)
  if _JSON.value and not pathlib.Path(_JSON.value).absolute().parent.is_dir():
    program.refuse(f'--json={_JSON.value}: expected a file in a folder that exists')
  found = {}
  try:
    if _SIZES.value or _ALIKE.value:
      _measure_cores(found)
    if _JOB.value:
      _measure_job(found)
  except config.ConfigError as error:
    sys.exit(f'Stopped: {error}')
  except process.BrokenProcessPool:
    sys.exit('Stopped: the process was killed; it may have run out of memory.')
  if _JSON.value:
    pathlib.Path(_JSON.value).write_text(json.dumps(found, indent=1), encoding='utf-8')


if __name__ == '__main__':
  program.run(main)
