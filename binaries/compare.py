"""Trains the same experiment with several models and seeds, and sets them side by side.

  python -m binaries.compare --gin_file=gin/gtrxl/numpad_2x2_cpu.gin \
      --root_dir=runs/compare_numpad_2x2 --models=gtrxl,lstm,memoryless --seeds=5
  python -m binaries.compare --gin_file=gin/rate/t_maze_30_cpu.gin \
      --root_dir=runs/compare_t_maze_30 --seeds=3 --models=gin/rate/models/dt.gin,\
gin/rate/models/rate.gin,gin/rate/models/rate.gin+gin/rate/variants/memory_pool.gin

A model is a gin file, or several with a + between them; a name without a path is a file
in gin/cores. Runs go to ROOT/<model>/seed_<i>, one after the other; started again on the
same folder, the comparison goes on. `comparison.md` and `comparison.png` in ROOT show
what there is after every run.

With --sweep='Numpad.size=2,3,4' all of this is done for each of the values, in
ROOT/Numpad.size=2 and so on; what else depends on the value is not changed with it.
Where it should be, as budgets that grow with the size, the sweep is over files:

  python -m binaries.compare --root_dir=runs/figure3 --seeds=3 \
      --sweep=gin/gtrxl/numpad_2x2_cpu.gin,gin/gtrxl/numpad_3x3_cpu.gin,\
gin/gtrxl/numpad_4x4_cpu.gin

Of runs on learning histories the pictures have the learning processes, and tables the
ratio of returns to those of the source:

  python -m binaries.compare --root_dir=runs/distillation --seeds=3 \
      --sweep=gin/distillation/dr_cpu.gin,gin/distillation/dktd_cpu.gin \
      --models=gin/distillation/models/adf.gin,gin/distillation/models/ed.gin

If the settings sample some for each run (gtrxl_tf/sampling.py), a seed draws the same
for every model. Then the table shows what was drawn, and `ranked.png` how much the
returns of a model depend on it.
"""

import pathlib
import signal
import subprocess
import sys
from typing import Dict, List, NamedTuple, Optional

from absl import app
from absl import flags
import gin

from gtrxl_tf import config
from gtrxl_tf import files
from gtrxl_tf import sampling
from gtrxl_tf.analysis import comparison
from gtrxl_tf.analysis import histories
from gtrxl_tf.launch import prepare
from gtrxl_tf.launch import variants
from gtrxl_tf.training import run_folder

_GIN_FILE = flags.DEFINE_multi_string(
    'gin_file', [], "The experiment's settings; later files override.")
_GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], 'Single settings, which override the files.')
_ROOT_DIR = flags.DEFINE_string(
    'root_dir', None, 'A folder for all runs.', required=True)
_MODELS = flags.DEFINE_list(
    'models', 'gtrxl,lstm,memoryless',
    'Names from gin/cores, or FILE or FILE+FILE+...')
flags.register_validator('models', bool, 'expected at least one')
_SEEDS = flags.DEFINE_integer('seeds', 5, 'Runs of each model.', lower_bound=1)
_SWEEP = flags.DEFINE_string(
    'sweep', None, 'SETTING=VALUE,VALUE,... or FILE,FILE,...: the comparison is made '
    'for each value of a setting, or with each gin file.')
_ONLY_REPORT = flags.DEFINE_bool(
    'only_report', False, 'Train nothing, show what is there.')


class _Prepared(NamedTuple):
  """What experiments say before they are run."""
  informed: Optional[float]  # The informed policy's return, if there is one.
  tasks: List[str]


def _gin_files(point: variants.Point, model: str) -> List[str]:
  return [*_GIN_FILE.value, *point.gin_files, *variants.models(_MODELS.value)[model]]


def _bindings(point: variants.Point) -> List[str]:
  return [*_GIN_BINDINGS.value, *point.bindings]


def _folder(point: variants.Point, model: str, seed: int) -> run_folder.RunFolder:
  return run_folder.RunFolder(
      pathlib.Path(_ROOT_DIR.value) / point.name / model / f'seed_{seed}')


def _prepare(point: variants.Point) -> _Prepared:
  """Prepares all that is to be run."""
  models = list(variants.models(_MODELS.value))
  # For a report one model does: what a report needs is of the environment.
  for model in models[-1:] if _ONLY_REPORT.value else models:
    gin.clear_config()
    experiment = prepare.prepare(_gin_files(point, model), _bindings(point))
  return _Prepared(experiment.informed_return(), experiment.task_names)


def _train(point: variants.Point, model: str, seed: int, root: pathlib.Path) -> int:
  """Runs `binaries.train` to its end; returns its exit code."""
  process = subprocess.Popen(
      [sys.executable, '-m', 'binaries.train',
       *(f'--gin_file={file}' for file in _gin_files(point, model)),
       *(f'--gin_bindings={binding}' for binding in _bindings(point)),
       f'--gin_bindings=Experiment.seed = {seed}', f'--root_dir={root}'])
  # The run saves before it ends; this process waits for that.
  handlers = {s: signal.signal(s, lambda *_: process.terminate())
              for s in (signal.SIGINT, signal.SIGTERM)}
  code = process.wait()
  for signum, handler in handlers.items():
    signal.signal(signum, handler)
  return code


def _runs(point: variants.Point) -> List[comparison.Run]:
  """All runs that have begun."""
  runs = []
  for model in variants.models(_MODELS.value):
    for seed in range(_SEEDS.value):
      folder = _folder(point, model, seed)
      metrics = run_folder.read_metrics(folder.metrics)
      if metrics or folder.diverged.exists():
        runs.append(comparison.Run(
            model, seed, metrics, run_folder.read_metrics(folder.evaluation),
            folder.diverged.exists(),
            sampling.samples(folder.config.read_text(encoding='utf-8'))
            if folder.config.exists() else {},
            histories.read_csv(folder.learning_process.with_suffix('.csv'))))
  return runs


def _report(prepared: Dict[str, _Prepared]) -> str:
  """Writes tables and pictures of all runs that have begun; returns the tables."""
  setting = variants.swept(_SWEEP.value)
  points = [comparison.Point(
      point.value, runs, prepared[point.name].informed, prepared[point.name].tasks)
            for point in variants.sweep(_SWEEP.value) if (runs := _runs(point))]
  if not points:
    return f'No runs in {_ROOT_DIR.value}.'
  root = pathlib.Path(_ROOT_DIR.value)
  picture = root / 'comparison.png'
  if setting is None:
    text = _tables(points[0])
    comparison.draw(picture, points[0], root.name)
  else:
    measures = ['return', *['ratio'] * any(
        comparison.learns(point.runs) for point in points)]
    text = '\n'.join(
        [f'## {setting} = {point.value}\n\n{_tables(point)}' for point in points]
        + [f'## Final {measure} against {setting}\n\n'
           f'{comparison.sweep_table(setting, points, measure)}'
           for measure in measures])
    comparison.draw_sweep(picture, setting, points, root.name)
  files.write_atomically(root / 'comparison.md', text)
  text += f'\nPicture: {picture}'
  if any(run.samples for point in points for run in point.runs):
    comparison.draw_ranked(root / 'ranked.png', setting, points, root.name)
    text += f'\nRanked runs: {root / "ranked.png"}'
  return text


def _tables(point: comparison.Point) -> str:
  text = comparison.table(point)
  return f'{text}\n{comparison.task_table(point)}' if len(point.tasks) > 1 else text


def main(argv):
  del argv
  try:
    # All before the first is trained, which may be long before the last is.
    models, sweep = variants.models(_MODELS.value), variants.sweep(_SWEEP.value)
    prepared = {point.name: _prepare(point) for point in sweep}
  except config.ConfigError as error:
    sys.exit(f'Not started: {error}')
  todo = [] if _ONLY_REPORT.value else [
      (point, model, seed) for seed in range(_SEEDS.value) for point in sweep
      for model in models]
  for i, (point, model, seed) in enumerate(todo, 1):
    folder = _folder(point, model, seed)
    if folder.evaluation.exists() or folder.diverged.exists():
      continue
    print(f'Run {i} of {len(todo)}: {folder.root}', flush=True)
    code = _train(point, model, seed, folder.root)
    if code and not folder.diverged.exists():
      sys.exit(f'Stopped in {folder.root}; the same command goes on from there.')
    _report(prepared)
  print(_report(prepared))


if __name__ == '__main__':
  app.run(main)
