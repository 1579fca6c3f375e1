"""The runs of a comparison: several models and seeds, at every point of a sweep."""

import pathlib
import signal
import subprocess
import sys
from typing import Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import gin

from gtrxl_tf import files
from gtrxl_tf.analysis import comparison
from gtrxl_tf.analysis import comparison_plots
from gtrxl_tf.analysis import models as variants
from gtrxl_tf.launch import prepare
from gtrxl_tf.settings import sampling
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import tensorboard
from gtrxl_tf.training.offline import history_curves


class RunStopped(Exception):
  """A run ended before it was done. The message is one line."""


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
               gin_bindings: Sequence[str], models: Sequence[str], num_seeds: int,
               sweep: Optional[str], only_report: bool = False):
    """Prepares every experiment once, so that a wrong setting shows before training.

    Args:
      root: folder of all runs.
      gin_files: settings that all runs share.
      gin_bindings: settings that all runs share, which override the files.
      models: as `variants.models` takes them.
      num_seeds: runs of each model.
      sweep: as `variants.sweep` takes it.
      only_report: trains nothing. One model is then prepared for each point, since a
        report needs only the environment.

    Raises:
      config.ConfigError: a setting that cannot be used.
    """
    self._root = pathlib.Path(root)
    self._gin_files = gin_files
    self._gin_bindings = gin_bindings
    self._models = variants.models(models)
    self._num_seeds = num_seeds
    self._points = variants.sweep(sweep)
    self._setting = variants.swept(sweep)
    prepared = list(self._models)[-1:] if only_report else list(self._models)
    self._prepared = {point.name: self._prepare(point, prepared)
                      for point in self._points}

  def train(self) -> None:
    """Trains the unfinished runs one after the other, and reports after each.

    Raises:
      RunStopped: a run ended before it was done, but did not diverge.
    """
    runs = list(self._runs())
    for i, (point, model, seed) in enumerate(runs, 1):
      folder = self._folder(point, model, seed)
      if folder.evaluation.exists() or folder.diverged.exists():
        continue
      print(f'Run {i} of {len(runs)}: {folder.root}', flush=True)
      board = tensorboard.Summaries(folder.summaries)
      board.sweep_point({
          'model': model, 'seed': seed,
          **({self._setting: point.value} if self._setting else {})})
      board.flush()
      code = self._train(point, model, seed)
      if code and not folder.diverged.exists():
        raise RunStopped(
            f'Stopped in {folder.root}. Run the same command to continue.')
      self.report()

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
    picture = self._root / 'comparison.png'
    if self._setting is None:
      comparison_plots.draw(picture, points[0], self._root.name)
    else:
      comparison_plots.draw_sweep(picture, self._setting, points, self._root.name)
    files.write_atomically(self._root / 'comparison.md', text)
    text += f'\nPicture: {picture}'
    if any(run.samples for point in points for run in point.runs):
      ranked = self._root / 'ranked.png'
      comparison_plots.draw_ranked(ranked, self._setting, points, self._root.name)
      text += f'\nRanked runs: {ranked}'
    return text

  def _runs(self) -> Iterator[Tuple[variants.Point, str, int]]:
    """All runs, in the order in which they are trained."""
    for seed in range(self._num_seeds):
      for point in self._points:
        for model in self._models:
          yield point, model, seed

  def _files(self, point: variants.Point, model: str) -> List[str]:
    return [*self._gin_files, *point.gin_files, *self._models[model].gin_files]

  def _bindings(self, point: variants.Point, model: str) -> List[str]:
    return [*self._gin_bindings, *point.bindings, *self._models[model].bindings]

  def _folder(self, point: variants.Point, model: str, seed: int
              ) -> run_folder.RunFolder:
    return run_folder.RunFolder(self._root / point.name / model / f'seed_{seed}')

  def _prepare(self, point: variants.Point, models: Sequence[str]) -> _Prepared:
    """Prepares the experiment of each model; they have the same environment."""
    for model in models:
      gin.clear_config()
      experiment = prepare.prepare(
          self._files(point, model), self._bindings(point, model))
    return _Prepared(experiment.informed_return(), experiment.task_names,
                     list(experiment.compute_scores([], [])), experiment.reference_lines)

  def _train(self, point: variants.Point, model: str, seed: int) -> int:
    """Runs `binaries.train` to its end; returns its exit code."""
    bindings = [*self._bindings(point, model), f'Experiment.seed = {seed}']
    process = subprocess.Popen(
        [sys.executable, '-m', 'binaries.train',
         *(f'--gin_file={file}' for file in self._files(point, model)),
         *(f'--gin_bindings={binding}' for binding in bindings),
         f'--root_dir={self._folder(point, model, seed).root}'])
    # The run saves before it ends, and this process waits for that.
    handlers = {s: signal.signal(s, lambda *_: process.terminate())
                for s in (signal.SIGINT, signal.SIGTERM)}
    code = process.wait()
    for signum, handler in handlers.items():
      signal.signal(signum, handler)
    return code

  def _read(self, point: variants.Point) -> List[comparison.Run]:
    """All runs of the point that have begun."""
    runs = []
    for model in self._models:
      for seed in range(self._num_seeds):
        folder = self._folder(point, model, seed)
        metrics = run_folder.read_metrics(folder.metrics)
        if metrics or folder.diverged.exists():
          samples = (sampling.samples(folder.config.read_text(encoding='utf-8'))
                     if folder.config.exists() else {})
          runs.append(comparison.Run(
              model, seed, metrics, run_folder.read_metrics(folder.evaluation),
              folder.diverged.exists(), samples,
              history_curves.read_csv(folder.learning_process.with_suffix('.csv')),
              next(iter(run_folder.read_metrics(folder.scores)), {})))
    return runs
