"""The runs of a comparison: several models and seeds, at every point of a sweep."""

import pathlib
import shlex
import signal
import statistics
import subprocess
import time
from typing import Dict, List, NamedTuple, Optional, Sequence, Union

import gin

from gtrxl_tf.analysis import comparison
from gtrxl_tf.analysis import models as variants
from gtrxl_tf.analysis import runs as runs_lib
from gtrxl_tf.launch import prepare
from gtrxl_tf.launch import processes
from gtrxl_tf.launch import resuming
from gtrxl_tf.launch import signals
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences
from gtrxl_tf.settings import errors
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import tensorboard

_SECONDS_BETWEEN_LOOKS = 0.2  # How often it checks whether a run has ended.


class _Run(NamedTuple):
  """A model, a seed, and a point of the sweep, with their settings but for the seed."""
  point: str
  model: str
  seed: int
  folder: run_folder.RunFolder
  gin_files: List[str]
  bindings: List[str]


class Comparison:
  """Trains every model with every seed and reports on all runs.

  The run of a model with a seed is in the folder ROOT/<point>/<model>/seed_<seed>;
  without a sweep, <point> is left out.
  """

  def __init__(self, root: Union[str, pathlib.Path], gin_files: Sequence[str],
               gin_bindings: Sequence[str], models: Sequence[str],
               seeds: Sequence[int], sweep: Optional[str], only_report: bool,
               command: str):
    """Prepares every experiment once, so that a wrong setting shows before training.

    All runs share gin files and bindings; `models.models` and `models.sweep` say what
    models and sweep are. With `only_report` nothing is trained, and one model a point is
    prepared, for its environment. The command is for the index.
    """
    self._root = pathlib.Path(root)
    self._models = variants.models(models)
    self._command = command
    self._setting = variants.swept(sweep)
    points = variants.sweep(sweep)
    self._runs = [
        _Run(point.value, label, seed,
             run_folder.RunFolder(self._root / point.name / label / f'seed_{seed}'),
             [*gin_files, *point.gin_files, *model.gin_files],
             [*gin_bindings, *point.bindings, *model.bindings])
        for seed in seeds for point in points for label, model in self._models.items()]
    if not only_report:
      _check_has_effect({'Experiment.seed'} & differences.names(gin_bindings))
    # The points without runs.
    self._points = [self._prepare(point, not only_report) for point in points]

  def _prepare(self, point: variants.Point, trains: bool) -> runs_lib.Point:
    """Prepares the experiment of each model; they have the same environment."""
    unused = differences.names(point.bindings)
    for label in list(self._models)[0 if trains else -1:]:
      gin.clear_config()
      runs = [run for run in self._runs if (run.point, run.model) == (point.value, label)]
      experiment = prepare.prepare(runs[0].gin_files, runs[0].bindings)
      if trains:
        _check_earlier(runs)
        used = differences.names([gin.operative_config_str()]) - {'Experiment.seed'}
        _check_has_effect(differences.names(self._models[label].bindings) - used)
        unused -= used
    if trains:
      _check_has_effect(unused)
    return runs_lib.Point(
        point.value, [], experiment.informed_return(), experiment.task_names,
        list(experiment.compute_scores([], [])), experiment.reference_lines)

  def _flags(self, run: _Run) -> List[str]:
    """Returns the flags of `gtrxl train` for a run."""
    return [*(f'--gin_file={file}' for file in run.gin_files),
            *(f'--gin_bindings={binding}' for binding in run.bindings),
            f'--gin_bindings=Experiment.seed = {run.seed}', f'--root_dir={run.folder.root}']

  def _unfinished(self) -> List[_Run]:
    """Returns the runs that are not done, seed by seed."""
    return [run for run in self._runs
            if not (run.folder.evaluation.exists() or run.folder.diverged.exists())]

  def commands(self) -> List[str]:
    """Returns a shell command for each unfinished run, which may run anywhere."""
    return [shlex.join(['gtrxl', 'train', *self._flags(run)])
            for run in self._unfinished()]

  def train(self, num_jobs: int = 1) -> bool:
    """Trains the unfinished runs, `num_jobs` side by side, and reports after each.

    Interruption, termination and errors stop all runs, which save. Of several jobs, each
    prints to `logs/train.txt` in its folder. Returns whether all runs are done, and raises
    an `errors.RunFailed` if one failed.
    """
    waiting, seconds = self._unfinished(), []
    total = len(waiting)
    running: Dict[subprocess.Popen, tuple[_Run, float]] = {}
    with signals.stop_requested(signal.SIGINT, signal.SIGTERM, ends_at_second=False) as stop:
      try:
        while (waiting or running) and not stop():
          while waiting and len(running) < num_jobs:
            run = waiting.pop(0)
            running[self._start(run, num_jobs > 1)] = run, time.monotonic()
          time.sleep(_SECONDS_BETWEEN_LOOKS)
          for process in [x for x in running if x.poll() is not None and not stop()]:
            run, start = running.pop(process)
            if process.returncode and not run.folder.diverged.exists():
              raise errors.RunFailed(_failure(run.folder, num_jobs > 1))
            self.report()
            seconds.append(time.monotonic() - start)
            left = statistics.mean(seconds) * (total - len(seconds)) / num_jobs
            print(f'{len(seconds)} of {total} runs done, about {left / 60:,.0f} minutes '
                  f'left: {run.folder.root}', flush=True)
      finally:
        for process in running:
          process.terminate()
        for process in running:
          process.wait()
    return not (waiting or running)

  def _start(self, run: _Run, to_file: bool) -> subprocess.Popen:
    """Starts `gtrxl train` for a run."""
    board = tensorboard.Summaries(run.folder.summaries)
    board.sweep_point({
        'model': run.model, 'seed': run.seed,
        **({self._setting: run.point} if self._setting else {})})
    board.flush()
    command = processes.gtrxl('train', *self._flags(run))
    if not to_file:
      print(f'Run: {run.folder.root}', flush=True)
      return subprocess.Popen(command)
    run.folder.logs.mkdir(parents=True, exist_ok=True)
    with open(run.folder.logs / 'train.txt', 'ab') as output:
      return subprocess.Popen(command, stdout=output, stderr=output)

  def report(self) -> str:
    """Writes tables and pictures of all runs that have begun; returns the tables."""
    models = list(self._models)  # Each has its seeds together.
    begun: Dict[str, List[runs_lib.Run]] = {point.value: [] for point in self._points}
    for run in sorted(self._runs, key=lambda run: models.index(run.model)):
      found = runs_lib.read_folder(run.folder, run.model, run.seed)
      if found.metrics or found.evaluation or found.diverged:
        begun[run.point].append(found)
    index = runs_lib.Index(
        self._command, runs_lib.version(), self._setting,
        [point._replace(runs=begun[point.value]) for point in self._points
         if begun[point.value]])
    if not index.points:
      return f'No runs in {self._root}.'
    runs_lib.write(self._root / 'runs.jsonl', index)
    text, pictures = comparison.write(index, self._root, self._root.name)
    return text + ''.join(f'\nPicture: {path}' for path in pictures)


def _check_earlier(runs: Sequence[_Run]) -> None:
  """Refuses runs of other settings than gin's, for which this command does not stand."""
  now = differences.operative()
  for run in runs:
    before = resuming.settings_of(run.folder)
    changed = before is not None and differences.differences(
        now, before, ['Experiment.seed'])
    if changed:
      raise resuming.refusal(run.folder, changed, 'other settings need another --root_dir')


def _failure(folder: run_folder.RunFolder, to_file: bool) -> str:
  """Returns a line that says which run failed, and why if that was not printed."""
  path = folder.logs / 'train.txt'
  if not to_file:
    return f'the run in {folder.root} failed.'
  reason = path.read_text(encoding='utf-8', errors='replace').strip().splitlines()[-1:]
  return f'the run in {folder.root} failed: {"".join(reason)} ({path})'


def _check_has_effect(unused: set[str]) -> None:
  """Refuses a setting that no run uses, or that each run sets: it makes no difference."""
  for name in sorted(unused):
    raise config.ConfigError(
        'Experiment.seed differs between the runs of a model: expected --seeds and '
        '--first_seed' if name == 'Experiment.seed' else
        f'{name} would change nothing: expected a setting that the runs use')
