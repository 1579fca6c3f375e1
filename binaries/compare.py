"""Trains the same experiment with several cores and seeds, and sets them side by side.

  python -m binaries.compare --gin_file=gin/numpad_2x2.gin \
      --root_dir=runs/compare_numpad_2x2 --cores=gtrxl,lstm,memoryless --seeds=5

A core is a file in gin/cores. Runs go to ROOT/<core>/seed_<i>, one after the other;
started again on the same folder, the comparison goes on. `comparison.md` and
`comparison.png` in ROOT show what there is after every run.
"""

import pathlib
import signal
import subprocess
import sys
from typing import List

from absl import app
from absl import flags
import gin

from gtrxl_tf import config
from gtrxl_tf.analysis import comparison
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import train

_CORE_FILES = pathlib.Path(__file__).parents[1] / 'gin' / 'cores'
_KNOWN_CORES = {path.stem for path in _CORE_FILES.glob('*.gin')}

_GIN_FILE = flags.DEFINE_multi_string(
    'gin_file', None, "The experiment's settings; later files override.", required=True)
_GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], 'Single settings, which override the files.')
_ROOT_DIR = flags.DEFINE_string(
    'root_dir', None, 'A folder for all runs.', required=True)
_CORES = flags.DEFINE_list('cores', 'gtrxl,lstm,memoryless', 'Names from gin/cores.')
flags.register_validator(
    'cores', lambda cores: cores and set(cores) <= _KNOWN_CORES,
    f'expected some of {", ".join(sorted(_KNOWN_CORES))}')
_SEEDS = flags.DEFINE_integer('seeds', 5, 'Runs of each core.', lower_bound=1)
_ONLY_REPORT = flags.DEFINE_bool(
    'only_report', False, 'Train nothing, show what is there.')


def _gin_files(core: str) -> List[str]:
  return [*_GIN_FILE.value, str(_CORE_FILES / f'{core}.gin')]


def _folder(core: str, seed: int) -> run_folder.RunFolder:
  return run_folder.RunFolder(
      pathlib.Path(_ROOT_DIR.value) / core / f'seed_{seed}')


def _prepare(core: str):
  gin.clear_config()
  return train.prepare(_gin_files(core), _GIN_BINDINGS.value)


def _train(core: str, seed: int) -> int:
  """Runs `binaries.train` to its end; returns its exit code."""
  process = subprocess.Popen(
      [sys.executable, '-m', 'binaries.train',
       *(f'--gin_file={file}' for file in _gin_files(core)),
       *(f'--gin_bindings={binding}' for binding in _GIN_BINDINGS.value),
       f'--gin_bindings=Experiment.seed = {seed}',
       f'--root_dir={_folder(core, seed).root}'])
  # The run saves before it ends; this process waits for that.
  handlers = {s: signal.signal(s, lambda *_: process.terminate())
              for s in (signal.SIGINT, signal.SIGTERM)}
  code = process.wait()
  for signum, handler in handlers.items():
    signal.signal(signum, handler)
  return code


def _report(informed) -> str:
  """Writes table and picture of all runs that have begun; returns the table."""
  runs = []
  for core in _CORES.value:
    for seed in range(_SEEDS.value):
      folder = _folder(core, seed)
      metrics = run_folder.read_metrics(folder.metrics)
      if metrics:
        runs.append(comparison.Run(
            core, seed, metrics, run_folder.read_metrics(folder.evaluation)))
  if not runs:
    return f'No runs in {_ROOT_DIR.value}.'
  root = pathlib.Path(_ROOT_DIR.value)
  table = comparison.table(runs, informed)
  run_folder.write_atomically(root / 'comparison.md', table)
  comparison.draw(root / 'comparison.png', runs, root.name, informed)
  return table + f'\nPicture: {root / "comparison.png"}'


def main(argv):
  del argv
  try:
    # All before the first is trained, which may be long before the last is.
    informed = [_prepare(core) for core in _CORES.value][-1].informed_return()
  except config.ConfigError as error:
    sys.exit(f'Not started: {error}')
  todo = [] if _ONLY_REPORT.value else [
      (core, seed) for seed in range(_SEEDS.value) for core in _CORES.value]
  for i, (core, seed) in enumerate(todo, 1):
    folder = _folder(core, seed)
    if folder.evaluation.exists() or folder.diverged.exists():
      continue
    print(f'Run {i} of {len(todo)}: {core}, seed {seed}', flush=True)
    code = _train(core, seed)
    if code and not folder.diverged.exists():
      sys.exit(f'Stopped in {folder.root}; the same command goes on from there.')
    _report(informed)
  print(_report(informed))


if __name__ == '__main__':
  app.run(main)
