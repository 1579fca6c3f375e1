"""Measures a whole run: the CPU seconds of all its processes, and its metrics."""

import os
import pathlib
import subprocess
import tempfile
import time
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from gtrxl_tf.launch import processes
from gtrxl_tf.settings import config
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder

_PERIOD_SECONDS = 0.25
SHARES = (50, 80, 90)  # Per cent of the informed policy's return.


class Sample(NamedTuple):
  """The progress of a run at one moment."""
  seconds: float      # Since the run's start.
  cpu_seconds: float  # All its processes so far.
  rows: int           # Rows of `metrics.csv` so far.


def measure(gin_files: Sequence[str], seed: int, steps: Optional[int],
            informed: Optional[float], bindings: Sequence[str] = ()
            ) -> Dict[str, Optional[float]]:
  """Runs `gtrxl train` for a number of environment steps; see `summary`.

  If `steps` is None, the settings say how many.
  """
  samples, tree = [], CpuSeconds()
  bindings = [*bindings, f'Experiment.seed = {seed}']
  if steps is not None:
    bindings.append(f'OnlineExperiment.environment_steps = {steps}')
  with tempfile.TemporaryDirectory() as root:
    folder = run_folder.RunFolder(root)
    start = time.monotonic()
    with tempfile.TemporaryFile('w+') as log:
      process = subprocess.Popen(
          processes.gtrxl('train', f'--root_dir={root}',
                          *(f'--gin_file={gin_file}' for gin_file in gin_files),
                          *(f'--gin_bindings={binding}' for binding in bindings)),
          stdout=log, stderr=log)
      try:
        while process.poll() is None:
          samples.append(Sample(time.monotonic() - start, tree.of(process.pid),
                                len(metrics_csv.read_metrics(folder.metrics))))
          time.sleep(_PERIOD_SECONDS)
      finally:
        process.terminate()
        process.wait()
      if process.returncode:
        log.seek(0)
        last = (log.read().strip().splitlines() or [''])[-1]
        raise config.ConfigError(
            f'{gin_files[-1]}: gtrxl train ended with exit code {process.returncode}: '
            f'{last}')
    rows = metrics_csv.read_metrics(folder.metrics)
    if len(rows) < 2:
      raise config.ConfigError(
          f'{gin_files[-1]}: metrics.csv has {len(rows)} row: expected at least 2, from '
          'more steps or a smaller Experiment.log_period')
  return summary(rows, samples, informed)


def summary(rows: List[Dict[str, float]], samples: Sequence[Sample],
            informed: Optional[float]) -> Dict[str, Optional[float]]:
  """Summarizes a run.

  Args:
    rows: the rows of `metrics.csv`.
    samples: taken while the run went on.
    informed: the informed policy's return, if there is one.

  Returns:
    `start_s`, `start_cpu_s`: wall and CPU seconds before the first row, which the first
      learner steps precede by a fraction of a second.
    `steps_per_cpu_s`: environment steps per CPU second, between first and last row.
    `steps_50`, `cpu_s_50` and so on: environment steps, and CPU seconds from the first
      learner step, until the return reached that share of the informed policy's; None
      if it did not.
    `whole_s`, `whole_cpu_s`: wall and CPU seconds of the command.
    `return`: the return in the last row.
  """
  # The moment at which the rows' own clock was 0: no row was seen before it was
  # written.
  seen = [min(x.seconds for x in samples if x.rows > i) - row['seconds']
          for i, row in enumerate(rows) if any(x.rows > i for x in samples)]
  clock = min(seen)
  cpu = np.interp([clock + row['seconds'] for row in rows],
                  [x.seconds for x in samples], [x.cpu_seconds for x in samples])
  steps = np.array([row['environment_steps'] for row in rows])
  rate = (steps[-1] - steps[0]) / (cpu[-1] - cpu[0])
  first = cpu[0] - steps[0] / rate  # When the first row's steps began.
  found = {'start_s': clock + rows[0]['seconds'], 'start_cpu_s': cpu[0],
           'steps_per_cpu_s': rate, 'return': rows[-1]['return'],
           'whole_s': samples[-1].seconds, 'whole_cpu_s': samples[-1].cpu_seconds}
  for share in SHARES if informed is not None else ():
    hits = [i for i, row in enumerate(rows) if row['return'] >= share / 100 * informed]
    found[f'steps_{share}'] = steps[hits[0]] if hits else None
    found[f'cpu_s_{share}'] = cpu[hits[0]] - first if hits else None
  return {name: value if value is None else round(float(value), 1)
          for name, value in found.items()}


class CpuSeconds:
  """Counts CPU seconds of a process and its descendants, even those that have ended."""

  def __init__(self):
    self._seconds: Dict[int, float] = {}

  def of(self, root: int) -> float:
    """Returns the CPU seconds so far.

    It must be called often: what a process uses between the last call and its end is
    not counted.
    """
    parents: Dict[int, int] = {}
    used: Dict[int, float] = {}
    for name in filter(str.isdigit, os.listdir('/proc')):
      found = _stat(int(name))
      if found:
        parents[int(name)], used[int(name)] = found
    ours = {root}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
      ours |= more
    self._seconds.update({pid: used[pid] for pid in ours if pid in used})
    return sum(self._seconds.values())


def _stat(pid: int) -> Optional[Tuple[int, float]]:
  """Returns a process's parent and CPU seconds; None if it has ended."""
  try:
    text = pathlib.Path(f'/proc/{pid}/stat').read_text(encoding='utf-8')
  except OSError:
    return None
  fields = text[text.rindex(')') + 2:].split()
  ticks = int(fields[11]) + int(fields[12])
  return int(fields[1]), ticks / os.sysconf('SC_CLK_TCK')
