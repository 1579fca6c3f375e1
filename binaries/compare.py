r"""Trains the same experiment with several models and seeds, and compares them.

  gtrxl compare --gin_file=gin/gtrxl/numpad_2x2_cpu.gin \
      --root_dir=runs/compare_numpad_2x2 --models=gtrxl,lstm,memoryless --seeds=5
  gtrxl compare --gin_file=gin/rate/t_maze_30_cpu.gin --seeds=3 \
      --root_dir=runs/compare_t_maze_30 --models=dt.gin,rate.gin,rate.gin+memory_pool.gin

A model is a gin file, or several with a + between them; a name without a path is a file
in gin/cores. Single settings can be added in the same way, and give the run its name:

  gtrxl compare --gin_file=gin/gtrxl/numpad_2x2_cpu.gin --root_dir=runs/gates \
      --models=gtrxl,gtrxl+TransformerXL.gate=highway

Runs go to ROOT/<model>/seed_<i>, one after the other. If the command
is started again on the same folder, it resumes. `comparison.md` and `comparison.png` in
ROOT are updated after every run.

With --sweep='Numpad.size=2,3,4' all of this is repeated for each value, in
ROOT/Numpad.size=2 and so on. Only that setting changes. If others must change with it,
such as a budget that grows with the size, sweep over files:

  gtrxl compare --root_dir=runs/figure3 --seeds=3 \
      --sweep=numpad_2x2_cpu.gin,numpad_3x3_cpu.gin,numpad_4x4_cpu.gin

For runs on learning histories, pictures show the learning processes, and tables show
returns where random play has 0 and the source 1:

  gtrxl compare --root_dir=runs/distillation --seeds=3 \
      --sweep=gin/distillation/dr_cpu.gin,gin/distillation/dktd_cpu.gin \
      --models=gin/distillation/models/adf.gin,gin/distillation/models/ed.gin

If some settings are sampled for each run (gtrxl_tf/settings/sampling.py), a seed draws the same
values for every model. The table then shows the values, and `ranked.png` shows how much
a model's returns depend on them.
"""

import sys

from absl import flags

import binaries

_GIN_FILE = flags.DEFINE_multi_string(
    'gin_file', [], "The experiment's settings; later files override.")
_GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], 'Single settings, which override the files.')
_ROOT_DIR = flags.DEFINE_string(
    'root_dir', None, 'A folder for all runs.', required=True)
_MODELS = flags.DEFINE_list(
    'models', 'gtrxl,lstm,memoryless',
    'Names from gin/cores or gin files; +FILE or +SETTING=VALUE adds to one.')
flags.register_validator('models', bool, 'expected at least one')
_SEEDS = flags.DEFINE_integer('seeds', 5, 'Runs of each model.', lower_bound=1)
_SWEEP = flags.DEFINE_string(
    'sweep', None, 'SETTING=VALUE,VALUE,... or FILE,FILE,...: the comparison is made '
    'for each value of a setting, or with each gin file.')
_ONLY_REPORT = flags.DEFINE_bool(
    'only_report', False, 'Train nothing; report on the existing runs.')


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf.analysis import comparison_runs
  from gtrxl_tf.settings import config

  try:
    comparison = comparison_runs.Comparison(
        _ROOT_DIR.value, _GIN_FILE.value, _GIN_BINDINGS.value, _MODELS.value,
        _SEEDS.value, _SWEEP.value, _ONLY_REPORT.value)
    if not _ONLY_REPORT.value:
      comparison.train()
  except config.ConfigError as error:
    sys.exit(f'Not started: {error}')
  except comparison_runs.RunStopped as error:
    sys.exit(str(error))
  print(comparison.report())


if __name__ == '__main__':
  binaries.run(main)
