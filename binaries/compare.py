"""Trains the same experiment with several cores and seeds, and sets them side by side.

  python -m binaries.compare --gin_file=gin/numpad_2x2_cpu.gin \
      --root_dir=runs/compare_numpad_2x2 --cores=gtrxl,lstm,memoryless --seeds=5

A core is a file in gin/cores. Runs go to ROOT/<core>/seed_<i>, one after the other;
started again on the same folder, the comparison goes on. `comparison.md` and
`comparison.png` in ROOT show what there is after every run.

With --sweep='Numpad.size=2,3,4' all of this is done for each of the values, in
ROOT/Numpad.size=2 and so on; what else depends on the value is not changed with it.
Where it should be, as budgets that grow with the size, the sweep is over files:

  python -m binaries.compare --root_dir=runs/figure3 --seeds=3 \
      --sweep=gin/numpad_2x2_cpu.gin,gin/numpad_3x3_cpu.gin,gin/numpad_4x4_cpu.gin

If the settings sample some for each run (gtrxl_tf/sampling.py), a seed draws the same
for every core. Then the table shows what was drawn, and `ranked.png` how much the
returns of a core depend on it.
"""

import pathlib
import re
import signal
import subprocess
import sys
from typing import Dict, List, NamedTuple, Optional

from absl import app
from absl import flags
import gin

from gtrxl_tf import config
from gtrxl_tf import sampling
from gtrxl_tf.analysis import comparison
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import train

_CORE_FILES = pathlib.Path(__file__).parents[1] / 'gin' / 'cores'
_KNOWN_CORES = {path.stem for path in _CORE_FILES.glob('*.gin')}

_GIN_FILE = flags.DEFINE_multi_string(
    'gin_file', [], "The experiment's settings; later files override.")
_GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], 'Single settings, which override the files.')
_ROOT_DIR = flags.DEFINE_string(
    'root_dir', None, 'A folder for all runs.', required=True)
_CORES = flags.DEFINE_list('cores', 'gtrxl,lstm,memoryless', 'Names from gin/cores.')
flags.register_validator(
    'cores', lambda cores: cores and set(cores) <= _KNOWN_CORES,
    f'expected some of {", ".join(sorted(_KNOWN_CORES))}')
_SEEDS = flags.DEFINE_integer('seeds', 5, 'Runs of each core.', lower_bound=1)
_SWEEP = flags.DEFINE_string(
    'sweep', None, 'SETTING=VALUE,VALUE,... or FILE,FILE,...: the comparison is made '
    'for each value of a setting, or with each gin file.')
_FILES = r'[^\s,=]+\.gin(,[^\s,=]+\.gin)*'
flags.register_validator(
    'sweep', lambda sweep: sweep is None or re.fullmatch(
        r'[\w.]+=[^\s,/]+(,[^\s,/]+)*|' + _FILES, sweep),
    "expected SETTING=VALUE,VALUE,... as in 'Numpad.size=2,3,4', or gin files")
flags.register_multi_flags_validator(
    ['gin_file', 'sweep'],
    lambda given: given['gin_file'] or re.fullmatch(_FILES, given['sweep'] or ''),
    'expected --gin_file, or a --sweep over gin files')
_ONLY_REPORT = flags.DEFINE_bool(
    'only_report', False, 'Train nothing, show what is there.')


class _Swept(NamedTuple):
  """A point of the sweep; without a sweep there is one, and its name is empty."""
  folder: str
  value: str
  gin_files: List[str]
  bindings: List[str]


def _sweep() -> List[_Swept]:
  if _SWEEP.value is None:
    return [_Swept('', '', [], [])]
  if '=' not in _SWEEP.value:
    stems = [(pathlib.Path(file).stem, file) for file in _SWEEP.value.split(',')]
    return [_Swept(stem, stem, [file], []) for stem, file in stems]
  values = _SWEEP.value.partition('=')[2].split(',')
  bindings = [f'{_setting()}={value}' for value in values]
  return [_Swept(binding, value, [], [binding])
          for value, binding in zip(values, bindings)]


def _setting() -> str:
  """What the sweep is over."""
  return _SWEEP.value.partition('=')[0] if '=' in _SWEEP.value else 'experiment'


def _gin_files(swept: _Swept, core: str) -> List[str]:
  return [*_GIN_FILE.value, *swept.gin_files, str(_CORE_FILES / f'{core}.gin')]


def _bindings(swept: _Swept) -> List[str]:
  return [*_GIN_BINDINGS.value, *swept.bindings]


def _folder(swept: _Swept, core: str, seed: int) -> run_folder.RunFolder:
  return run_folder.RunFolder(
      pathlib.Path(_ROOT_DIR.value) / swept.folder / core / f'seed_{seed}')


def _informed_return(swept: _Swept) -> Optional[float]:
  """The informed policy's return; prepares all that is to be run."""
  # For a report one core does, since the informed policy has none.
  for core in _CORES.value[-1:] if _ONLY_REPORT.value else _CORES.value:
    gin.clear_config()
    experiment = train.prepare(_gin_files(swept, core), _bindings(swept))
  return experiment.informed_return()


def _train(swept: _Swept, core: str, seed: int) -> int:
  """Runs `binaries.train` to its end; returns its exit code."""
  process = subprocess.Popen(
      [sys.executable, '-m', 'binaries.train',
       *(f'--gin_file={file}' for file in _gin_files(swept, core)),
       *(f'--gin_bindings={binding}' for binding in _bindings(swept)),
       f'--gin_bindings=Experiment.seed = {seed}',
       f'--root_dir={_folder(swept, core, seed).root}'])
  # The run saves before it ends; this process waits for that.
  handlers = {s: signal.signal(s, lambda *_: process.terminate())
              for s in (signal.SIGINT, signal.SIGTERM)}
  code = process.wait()
  for signum, handler in handlers.items():
    signal.signal(signum, handler)
  return code


def _runs(swept: _Swept) -> List[comparison.Run]:
  """All runs that have begun."""
  runs = []
  for core in _CORES.value:
    for seed in range(_SEEDS.value):
      folder = _folder(swept, core, seed)
      metrics = run_folder.read_metrics(folder.metrics)
      if metrics or folder.diverged.exists():
        runs.append(comparison.Run(
            core, seed, metrics, run_folder.read_metrics(folder.evaluation),
            folder.diverged.exists(),
            sampling.samples(folder.config.read_text())
            if folder.config.exists() else {}))
  return runs


def _report(informed: Dict[str, Optional[float]]) -> str:
  """Writes tables and pictures of all runs that have begun; returns the tables."""
  setting = _SWEEP.value and _setting()
  points = [comparison.Point(swept.value, runs, informed[swept.folder])
            for swept in _sweep() if (runs := _runs(swept))]
  if not points:
    return f'No runs in {_ROOT_DIR.value}.'
  root = pathlib.Path(_ROOT_DIR.value)
  picture = root / 'comparison.png'
  if setting is None:
    text = comparison.table(points[0].runs, points[0].informed)
    comparison.draw(picture, points[0].runs, root.name, points[0].informed)
  else:
    text = '\n'.join(
        [f'## {setting} = {point.value}\n\n'
         f'{comparison.table(point.runs, point.informed)}' for point in points]
        + [f'## Final return against {setting}\n\n'
           f'{comparison.sweep_table(setting, points)}'])
    comparison.draw_sweep(picture, setting, points, root.name)
  run_folder.write_atomically(root / 'comparison.md', text)
  text += f'\nPicture: {picture}'
  if any(run.samples for point in points for run in point.runs):
    comparison.draw_ranked(root / 'ranked.png', setting, points, root.name)
    text += f'\nRanked runs: {root / "ranked.png"}'
  return text


def main(argv):
  del argv
  try:
    # All before the first is trained, which may be long before the last is.
    informed = {swept.folder: _informed_return(swept) for swept in _sweep()}
  except config.ConfigError as error:
    sys.exit(f'Not started: {error}')
  todo = [] if _ONLY_REPORT.value else [
      (swept, core, seed) for seed in range(_SEEDS.value) for swept in _sweep()
      for core in _CORES.value]
  for i, (swept, core, seed) in enumerate(todo, 1):
    folder = _folder(swept, core, seed)
    if folder.evaluation.exists() or folder.diverged.exists():
      continue
    print(f'Run {i} of {len(todo)}: {folder.root}', flush=True)
    code = _train(swept, core, seed)
    if code and not folder.diverged.exists():
      sys.exit(f'Stopped in {folder.root}; the same command goes on from there.')
    _report(informed)
  print(_report(informed))


if __name__ == '__main__':
  app.run(main)
