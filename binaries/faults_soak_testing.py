"""Runs training for hours while its parts are killed, and measures each part's memory.

  python -m binaries.faults_soak_testing --output_dir=runs/soak --minutes=120

Each part is on its own host (a network namespace, which needs root). It writes soak.csv
with the memory, descriptors and threads of every part, the parts' logs and the run into
the folder, and prints a summary: for each part, the slope of its memory with its
standard error, and how many descriptors it gained. It exits with 1 if a part grew, the
task is not solved, or an unroll was trained on twice.
"""

import csv
import math
import os
import pathlib
import signal
import sys
import time
from typing import Dict, List, NamedTuple, Sequence, Tuple

from absl import flags

from gtrxl_tf.launch import program

_OUTPUT_DIR = flags.DEFINE_string(
    'output_dir', None, 'A new folder.', required=True)
_MINUTES = flags.DEFINE_float('minutes', 120, 'Duration of the run.', lower_bound=0.1)
_KILL_MINUTES = flags.DEFINE_float(
    'kill_minutes', 5, 'Mean time between two kills.', lower_bound=0.01)
_SECONDS = flags.DEFINE_float(
    'sample_seconds', 10, 'Time between two samples.', lower_bound=0.1)
_SEED = flags.DEFINE_integer('seed', 0, 'Seed of which part is killed, and when.')

_GIN_FILE = str(pathlib.Path(__file__).parents[1] / 'gin/gtrxl/t_maze_30_cpu.gin')
_BINDINGS = ['TMaze.corridor_length = 10', 'TransformerXL.memory_length = 16',
             'OnlineExperiment.unroll_length = 16',
             'OnlineExperiment.environment_steps = 1000000000000',
             'OnlineExperiment.num_actors = 2',
             'OnlineExperiment.environments_per_actor = 32',
             'Checkpoints.period = 50', 'OnlineExperiment.stall_seconds = 60']
_NAMES = ['server', 'learner', 'actor_0', 'actor_1']
# How long memory grows after a start: imports, compilation, the first rows.
_WARM_UP_SECONDS = 120
# Allowed growth of memory in an hour, and of descriptors (connections).
_MIB_AN_HOUR, _DESCRIPTORS = 10, 8


class Sample(NamedTuple):
  """The resources of a part at one moment."""
  seconds: float  # Since the start.
  part: str
  start: int
  mib: float
  descriptors: int
  threads: int


def look(pid: int) -> Tuple[float, int, int]:
  """Returns MiB of memory, descriptors and threads of a process."""
  status = pathlib.Path(f'/proc/{pid}/status').read_text(encoding='ascii')
  values = dict(line.split(':', 1) for line in status.splitlines())
  return (int(values['VmRSS'].split()[0]) / 1024,
          len(os.listdir(f'/proc/{pid}/fd')), int(values['Threads']))


def slope(starts: Sequence[Sequence[Tuple[float, float]]]) -> Tuple[float, float]:
  """Returns the common slope of lines through points, and its standard error.

  Args:
    starts: the points of each line; each line has its own intercept.
  """
  centered, freedom = [], 0
  for points in starts:
    if len(points) < 3:
      continue
    xs, ys = zip(*points)
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    centered += [(a - x, b - y) for a, b in points]
    freedom += len(points) - 1
  squares = sum(a * a for a, _ in centered)
  if not squares or freedom < 2:
    return math.nan, math.nan
  products = sum(a * b for a, b in centered)
  found = products / squares
  rest = sum((b - found * a) ** 2 for a, b in centered)
  return found, math.sqrt(rest / (freedom - 1) / squares)


def summarize(samples: Sequence[Sample]) -> Tuple[List[str], List[str]]:
  """Returns a table's lines, and the problems found."""
  lines = ['| part | starts | MiB, median | MiB an hour ± s.e. | descriptors gained | '
           'threads gained |', '|---|---|---|---|---|---|']
  wrong = []
  for part in dict.fromkeys(x.part for x in samples):
    starts: Dict[int, List[Sample]] = {}
    for x in samples:
      if x.part == part:
        starts.setdefault(x.start, []).append(x)
    warm = [[x for x in start if x.seconds - start[0].seconds > _WARM_UP_SECONDS]
            for start in starts.values()]
    warm = [start for start in warm if len(start) > 2]
    mib = sorted(x.mib for start in warm or starts.values() for x in start)
    growth, error = slope([[(x.seconds / 3600, x.mib) for x in start] for start in warm])
    gained = [max((start[-1][i] - start[0][i] for start in warm), default=0) for i in (4, 5)]
    lines.append(f'| {part} | {len(starts)} | {mib[len(mib) // 2]:.0f} | {growth:.1f} ± '
                 f'{error:.1f} | {gained[0]} | {gained[1]} |')
    if growth - 2 * error > _MIB_AN_HOUR:
      wrong.append(f'{part} grows by {growth:.1f} ± {error:.1f} MiB an hour')
    if gained[0] > _DESCRIPTORS:
      wrong.append(f'{part} gained {gained[0]} descriptors')
  return lines, wrong


def main() -> None:
  # pylint: disable=import-outside-toplevel
  import numpy as np

  from binaries import faults_testing
  from gtrxl_tf.launch import hosts_testing
  from gtrxl_tf.launch import parts_testing
  from gtrxl_tf.training import metrics_csv
  from gtrxl_tf.training import run_folder

  output = pathlib.Path(_OUTPUT_DIR.value).absolute()
  output.mkdir(parents=True)
  folder, journal = run_folder.RunFolder(output / 'run'), output / 'journal'
  os.environ['JOURNAL'] = str(journal)
  random = np.random.default_rng(_SEED.value)
  settings = [f'--gin_file={_GIN_FILE}',
              *(f'--gin_bindings={binding}' for binding in _BINDINGS)]
  samples: List[Sample] = []
  kills = dict.fromkeys(_NAMES, 0)
  with hosts_testing.Hosts(_NAMES) as hosts, open(
      output / 'soak.csv', 'w', encoding='utf-8', newline='') as file:
    table = csv.writer(file)
    table.writerow(Sample._fields)
    parts = parts_testing.Parts(
        hosts, folder, output, settings, num_actors=2,
        flags={'learner': ['--gin_bindings=import binaries.faults_testing']})
    for name in _NAMES:
      parts.start(name)
    started = time.time()
    over = started + 60 * _MINUTES.value
    kill_at = started + 60 * _KILL_MINUTES.value * random.uniform(0.5, 1.5)
    look_at = started
    while time.time() < over:
      time.sleep(0.2)
      parts.restart_the_dead()
      if time.time() > look_at:
        look_at += _SECONDS.value
        for name, process in parts.processes.items():
          try:
            found = look(process.pid)
          except (OSError, KeyError):  # It has just died.
            continue
          samples.append(Sample(time.time() - started, name,
                                len(parts.exit_codes[name]), *found))
          table.writerow(samples[-1])
        file.flush()
      if time.time() > kill_at:
        kill_at += 60 * _KILL_MINUTES.value * random.uniform(0.5, 1.5)
        name = str(random.choice(_NAMES))
        kills[name] += 1
        parts.end(name, signal.SIGTERM if random.random() < 0.25 else signal.SIGKILL)
    codes = {name: parts.end(name, signal.SIGTERM)
             for name in ('learner', 'actor_0', 'actor_1', 'server')}

  lines, wrong = summarize(samples)
  last = metrics_csv.last_metrics(folder.metrics) or {}
  account = faults_testing.account(faults_testing.read(journal))
  lines += [
      '', f'Minutes: {_MINUTES.value:g}; killed: {kills}; exit codes at the end: {codes}',
      f'Learner steps: {len(account.steps)}, lost by kills: {sum(account.lost)}; unrolls '
      f'trained on twice: {account.duplicates}; oldest '
      f'{last.get("oldest_unroll", math.nan):.0f} of '
      f'{last.get("oldest_allowed", math.nan):.0f} allowed; environment steps '
      f'{last.get("environment_steps", 0):,.0f}; success '
      f'{last.get("success", math.nan):.2f}']
  if account.duplicates:
    wrong.append(f'{account.duplicates} unrolls were trained on twice')
  if any(codes.values()):
    wrong.append(f'exit codes {codes}')
  if not last.get('success', 0) >= 0.95:
    wrong.append(f'success {last.get("success", math.nan):.2f}: the task is not solved')
  lines += [f'WRONG: {line}' for line in wrong] or ['No problem was found.']
  (output / 'soak.md').write_text('\n'.join(lines) + '\n', encoding='utf-8')
  print('\n'.join(lines))
  sys.exit(bool(wrong))


if __name__ == '__main__':
  program.run(main)
