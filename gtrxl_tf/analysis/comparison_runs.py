"""The runs of a comparison: several models and seeds, at every point of a sweep."""

from concurrent import futures
import contextlib
import pathlib
import shlex
import shutil
import signal
import statistics
import subprocess
import threading
import time
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Union

import gin

from gtrxl_tf import files
from gtrxl_tf.analysis import comparison
from gtrxl_tf.analysis import comparison_plots
from gtrxl_tf.analysis import models as variants
from gtrxl_tf.analysis import run_index
from gtrxl_tf.launch import prepare
from gtrxl_tf.launch import processes
from gtrxl_tf.launch import resuming
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences
from gtrxl_tf.settings import sampling
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import tensorboard
from gtrxl_tf.training.offline import history_curves

_INDEX = 'runs.jsonl'


class RunStopped(Exception):
  """A run ended before it was done. The message is one line."""


class Interrupted(RunStopped):
  """The runs were told to stop."""


class _Run(NamedTuple):
  """A model, a seed, and a point of the sweep."""
  point: variants.Point
  model: str
  seed: int


class _Prepared(NamedTuple):
  """The facts about an experiment that are known before it is run."""
  informed: Optional[float]  # The informed policy's return, if there is one.
  tasks: List[str]
  scores: List[str]
  lines: Mapping[str, Mapping[str, float]]


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

    Args:
      root: folder of all runs.
      gin_files: settings that all runs share.
      gin_bindings: settings that all runs share, which override the files.
      models: as `models.models` takes them.
      seeds: the seeds of each model's runs.
      sweep: as `models.sweep` takes it.
      only_report: trains nothing. One model is then prepared for each point, since a
        report needs only the environment.
      command: the command that makes this comparison, for its index.
    """
    self._root = pathlib.Path(root)
    self._gin_files = gin_files
    self._gin_bindings = gin_bindings
    self._models = variants.models(models)
    self._seeds = seeds
    self._command = command
    self._points = variants.sweep(sweep)
    self._setting = variants.swept(sweep)
    self._indexed = _indexed(self._root / _INDEX) if only_report else {}
    self._failed: Optional[run_folder.RunFolder] = None  # It stopped the others.
    self._began: Dict[pathlib.Path, float] = {}  # When the runs that train began.
    # It guards the next two, and is reentrant because a signal may interrupt `_stop`.
    self._lock = threading.RLock()
    self._processes: List[subprocess.Popen] = []
    self._stopping = False
    if not only_report:
      _check_has_effect({'Experiment.seed'} & differences.names('\n'.join(gin_bindings)))
    prepared = list(self._models)[-1:] if only_report else list(self._models)
    self._prepared = {point.name: self._prepare(point, prepared, not only_report)
                      for point in self._points}

  def train(self, num_jobs: int = 1) -> None:
    """Trains the unfinished runs, and reports after each.

    Args:
      num_jobs: how many runs are trained side by side. If there are several, each
        prints to `logs/train.txt` in its folder.

    Raises:
      RunStopped: a run failed, but did not diverge; or `Interrupted`.
    """
    runs, seconds = self._unfinished(), []
    with futures.ThreadPoolExecutor(num_jobs) as pool, self._stops_on_signals():
      trained = {pool.submit(self._train, run, num_jobs > 1): run for run in runs}
      for number, task in enumerate(futures.as_completed(trained), 1):
        folder, duration = self._folder(trained[task]), task.result()
        if self._failed:
          raise RunStopped(_failure(self._failed, num_jobs > 1))
        if self._stopping:
          raise Interrupted(
              f'Interrupted in {folder.root}. Run the same command to continue.')
        self.report()
        seconds.append(duration)
        minutes = self._seconds_left(
            statistics.mean(seconds), len(runs) - number, num_jobs) / 60
        print(f'{number} of {len(runs)} runs done, about {minutes:,.0f} minutes left: '
              f'{folder.root}', flush=True)

  def _seconds_left(self, duration: float, num_left: int, num_jobs: int) -> float:
    """Returns the time until `num_left` runs have ended, if each takes `duration`."""
    now = time.monotonic()
    running = [max(duration - (now - start), 0) for start in list(self._began.values())]
    left = sum(running) + duration * (num_left - len(running))
    return left / max(min(num_jobs, num_left), 1)

  def commands(self) -> List[str]:
    """Returns a shell command for each unfinished run, which may run anywhere."""
    return [shlex.join(['gtrxl', 'train', *self._flags(run)])
            for run in self._unfinished()]

  def report(self) -> str:
    """Writes tables and pictures of all runs that have begun; returns the tables."""
    points = []
    for point in self._points:
      runs = self._read(point)
      if runs:
        prepared = self._prepared[point.name]
        points.append(comparison.PointRuns(
            point.value, runs, *prepared))
    if not points:
      return f'No runs in {self._root}.'
    text = comparison.tables(self._setting, points)
    files.write_atomically(self._root / 'comparison.md', text)
    self._keep_index(points)
    run_index.write(self._root / _INDEX, run_index.Index(
        self._command, run_index.version(), self._setting, points))
    picture, progress, ranked = (
        self._root / f'{name}.png' for name in ('comparison', 'progress', 'ranked'))
    if self._setting is None:
      comparison_plots.draw(picture, points[0], self._root.name)
    else:
      comparison_plots.draw_sweep(picture, self._setting, points, self._root.name)
    text += f'\nPicture: {picture}'
    if self._setting is not None and comparison.steps_column(
        points[0].runs) == 'learner_step':
      comparison_plots.draw_progress(progress, self._setting, points, self._root.name)
      text += f'\nCurves of training: {progress}'
    if any(run.samples for point in points for run in point.runs):
      comparison_plots.draw_ranked(ranked, self._setting, points, self._root.name)
      text += f'\nRanked runs: {ranked}'
    return text

  def _keep_index(self, points: Sequence[comparison.PointRuns]) -> None:
    """Copies the index if it has runs that `points` lack, and whose folders are gone."""
    path = self._root / _INDEX
    lost = {(value, model, f'seed_{seed}') for value, model, seed in _indexed(path)} - {
        (point.value, run.model, f'seed_{run.seed}')
        for point in points for run in point.runs}
    for folder in (*self._root.glob('*/seed_*'), *self._root.glob('*/*/seed_*')):
      *point, model, seed = folder.relative_to(self._root).parts
      value = ''.join(point).rpartition('=')[2]  # Its folder is VALUE or SETTING=VALUE.
      lost.discard((value, model, seed))
    if lost:
      kept = path.with_name(f'runs.{time.strftime("%Y%m%d-%H%M%S")}.jsonl')
      shutil.copy2(path, kept)
      print(f'{path} has {len(lost)} run(s) whose folders are gone: it is kept as '
            f'{kept.name}', flush=True)

  def _unfinished(self) -> List[_Run]:
    """Returns the runs to train, in this order."""
    runs = [_Run(point, model, seed) for seed in self._seeds for point in self._points
            for model in self._models]
    folders = [(run, self._folder(run)) for run in runs]
    return [run for run, folder in folders
            if not (folder.evaluation.exists() or folder.diverged.exists())]

  def _files(self, point: variants.Point, model: str) -> List[str]:
    return [*self._gin_files, *point.gin_files, *self._models[model].gin_files]

  def _bindings(self, point: variants.Point, model: str) -> List[str]:
    return [*self._gin_bindings, *point.bindings, *self._models[model].bindings]

  def _folder(self, run: _Run) -> run_folder.RunFolder:
    return run_folder.RunFolder(
        self._root / run.point.name / run.model / f'seed_{run.seed}')

  def _prepare(self, point: variants.Point, models: Sequence[str], trains: bool
               ) -> _Prepared:
    """Prepares the experiment of each model; they have the same environment."""
    swept = _names('\n'.join(point.bindings))
    unused = set(swept)
    for model in models:
      gin.clear_config()
      experiment = prepare.prepare(
          self._files(point, model), self._bindings(point, model))
      if trains:
        self._check_earlier_runs(point, model)
        used = _names(gin.operative_config_str()) - {'Experiment.seed'}
        own = _names('\n'.join(self._models[model].bindings))
        _check_has_effect(own - used)
        for name in swept & own:
          raise config.ConfigError(f'{name} is in --sweep and in --models, which '
                                   'overrides it: expected it in one of them')
        unused -= used
    if trains:
      _check_has_effect(unused)
    return _Prepared(experiment.informed_return(), experiment.task_names,
                     list(experiment.compute_scores([], [])), experiment.reference_lines)

  def _check_earlier_runs(self, point: variants.Point, model: str) -> None:
    """Raises a `ConfigError` if a run of the model has other settings than gin has now.

    Otherwise the report would name this command for runs of an earlier one.
    """
    now = differences.operative()
    for seed in self._seeds:
      folder = self._folder(_Run(point, model, seed))
      before = resuming.settings_of(folder)
      changed = before is not None and differences.differences(
          now, before, ['Experiment.seed'])
      if changed:
        raise resuming.refusal(folder, changed, 'other settings need another --root_dir')

  def _flags(self, run: _Run) -> List[str]:
    """Returns the flags of `gtrxl train` for a run."""
    bindings = [*self._bindings(run.point, run.model), f'Experiment.seed = {run.seed}']
    return [*(f'--gin_file={file}' for file in self._files(run.point, run.model)),
            *(f'--gin_bindings={binding}' for binding in bindings),
            f'--root_dir={self._folder(run).root}']

  def _train(self, run: _Run, to_file: bool) -> float:
    """Runs `gtrxl train` to its end; returns the seconds it took.

    If the run ends before it is done, all others are stopped.
    """
    folder, start = self._folder(run), time.monotonic()
    if self._stopping:
      return 0.
    self._began[folder.root] = start
    board = tensorboard.Summaries(folder.summaries)
    board.sweep_point({
        'model': run.model, 'seed': run.seed,
        **({self._setting: run.point.value} if self._setting else {})})
    board.flush()
    with contextlib.ExitStack() as stack:
      output = None
      if to_file:
        folder.logs.mkdir(parents=True, exist_ok=True)
        output = stack.enter_context(open(folder.logs / 'train.txt', 'ab'))
      else:
        print(f'Run: {folder.root}', flush=True)
      with self._lock:
        if self._stopping:
          return 0.
        process = subprocess.Popen(
            processes.gtrxl('train', *self._flags(run)), stdout=output, stderr=output)
        self._processes.append(process)
      if process.wait() and not (self._stopping or folder.diverged.exists()):
        self._failed = folder
        self._stop()
      del self._began[folder.root]
      return time.monotonic() - start

  @contextlib.contextmanager
  def _stops_on_signals(self) -> Iterator[None]:
    """Stops the runs, which then save, on interruption, termination and errors."""
    handlers = {s: signal.signal(s, lambda *_: self._stop())
                for s in (signal.SIGINT, signal.SIGTERM)}
    try:
      yield
    except BaseException:
      self._stop()
      raise
    finally:
      for signum, handler in handlers.items():
        signal.signal(signum, handler)

  def _stop(self) -> None:
    """Stops the runs that train, and starts no other."""
    with self._lock:
      self._stopping = True
      for process in self._processes:
        process.terminate()

  def _read(self, point: variants.Point) -> List[comparison.Run]:
    """Returns all runs of the point that have begun, even if their folder is gone."""
    runs = []
    for model in self._models:
      for seed in self._seeds:
        folder = self._folder(_Run(point, model, seed))
        if not folder.root.exists() and (point.value, model, seed) in self._indexed:
          runs.append(self._indexed[point.value, model, seed])
          continue
        metrics = metrics_csv.read_metrics(folder.metrics)
        if metrics or folder.evaluation.exists() or folder.diverged.exists():
          settings = (folder.config.read_text(encoding='utf-8')
                      if folder.config.exists() else '')
          runs.append(comparison.Run(
              model, seed, metrics, metrics_csv.read_metrics(folder.evaluation),
              folder.diverged.exists(), sampling.samples(settings),
              history_curves.read_csv(folder.learning_process.with_suffix('.csv')),
              next(iter(metrics_csv.read_metrics(folder.scores)), {}), settings))
    return runs


def _indexed(path: pathlib.Path) -> dict[tuple[Any, str, int], comparison.Run]:
  """Returns the runs of an earlier report by their point's value, model and seed."""
  try:
    points = run_index.read(path).points
  except (FileNotFoundError, files.DamagedFile):  # None yet, or that of an old version.
    return {}
  return {(point.value, run.model, run.seed): run
          for point in points for run in point.runs}


def _failure(folder: run_folder.RunFolder, to_file: bool) -> str:
  """Returns a line that says which run failed, and why if that was not printed."""
  path = folder.logs / 'train.txt'
  if not to_file:
    return f'Stopped: the run in {folder.root} failed.'
  reason = path.read_text(encoding='utf-8', errors='replace').strip().splitlines()[-1:]
  return f'Stopped: the run in {folder.root} failed: {"".join(reason)} ({path})'


def _names(text: str) -> set[str]:
  """Returns the settings in a text of gin, without the modules of their classes."""
  parts = (name.rpartition('/') for name in differences.names(text))
  return {scope + slash + '.'.join(name.split('.')[-2:]) for scope, slash, name in parts}


def _check_has_effect(unused: set[str]) -> None:
  """Raises a `ConfigError` for a setting that no run uses, or that each run sets.

  A table would otherwise show that the setting makes no difference.
  """
  for name in sorted(unused):
    raise config.ConfigError(
        'Experiment.seed differs between the runs of a model: expected --seeds and '
        '--first_seed' if name == 'Experiment.seed' else
        f'{name} would change nothing: expected a setting that the runs use')
