r"""Trains the same experiment with several models and seeds, and compares them.

  gtrxl compare --gin_file=gin/gtrxl/numpad_2x2_cpu.gin \
      --root_dir=runs/compare_numpad_2x2 --models=gtrxl,lstm,memoryless --seeds=5
  gtrxl compare --env=CartPole-v1,Acrobot-v1 --core=gtrxl,lstm,memoryless \
      --steps=500000 --root_dir=runs/compare_control
  gtrxl compare --gin_file=gin/rate/t_maze_30_cpu.gin --seeds=3 \
      --root_dir=runs/compare_t_maze_30 --models=dt.gin,rate.gin,rate.gin+memory_pool.gin

A model is a gin file, or several with a + between them; a name without a path is a file
in gin/cores. Single settings can be added in the same way, and give the run its name:

  gtrxl compare --gin_file=gin/gtrxl/numpad_2x2_cpu.gin --root_dir=runs/gates \
      --models=gtrxl,gtrxl+TransformerXL.gate=highway

Runs go to ROOT/<model>/seed_<i>. If the command is started again on the same folder, it
resumes. After every run it updates `comparison.md`, `comparison.png` and `runs.jsonl`
in ROOT; the last is the index from which `gtrxl figures` draws without the runs.

A run of a small job does not fill two cores: --jobs=2 trains two at a time. On a cluster,
--print_commands prints a command for each run that is not done and trains nothing; with
--only_report, the same flags then report on what these commands have trained.

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

If some settings are sampled for each run (gtrxl_tf/settings/sampling.py), a seed draws
the same values for every model. The table then shows the values, and `ranked.png` shows
how much a model's returns depend on them.
"""

import shlex
import sys

from absl import flags

from gtrxl_tf.launch import program

from . import experiment_flags

flags.adopt_module_key_flags(experiment_flags)

_ROOT_DIR = flags.DEFINE_string(
    'root_dir', None, 'A folder for all runs.', required=True)
_MODELS = flags.DEFINE_list(
    'models', 'gtrxl,lstm,memoryless',
    'Names from gin/cores or gin files; +FILE or +SETTING=VALUE adds to one.')
flags.register_validator('models', bool, 'expected at least one')
_SEEDS = flags.DEFINE_integer('seeds', 5, 'Runs of each model.', lower_bound=1)
_FIRST_SEED = flags.DEFINE_integer(
    'first_seed', 0, 'The first seed. Choose settings on other seeds than you report.',
    lower_bound=0)
_JOBS = flags.DEFINE_integer('jobs', 1, 'Runs that train side by side.', lower_bound=1)
_PRINT_COMMANDS = flags.DEFINE_bool(
    'print_commands', False, 'Train nothing; print a command for each unfinished run.')
_SWEEP = flags.DEFINE_string(
    'sweep', None, 'SETTING=VALUE,VALUE,... or FILE,FILE,...: the comparison is made '
    'for each value of a setting, or with each gin file.')
_ONLY_REPORT = flags.DEFINE_bool(
    'only_report', False, 'Train nothing; report on the existing runs.')


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf.analysis import comparison_runs
  from gtrxl_tf.launch import exit_codes
  from gtrxl_tf.settings import shortcuts

  envs, sweep = experiment_flags.ENV.value, _SWEEP.value
  if len(envs) > 1:
    if sweep:
      program.refuse(f'--env={",".join(envs)} with --sweep: expected one of them')
    settings, values = zip(*map(shortcuts.setting_of, envs))
    if len(set(settings)) > 1:
      program.refuse(f'--env={",".join(envs)}: expected ids alone, as CartPole-v1, or '
                     'classes alone, as TMaze')
    sweep = f'{settings[0]}={",".join(values)}'
  files, bindings = experiment_flags.gin(''.join(envs[:1]), '', needs_file=not sweep)

  @exit_codes.returns_code
  def run() -> int:
    comparison = comparison_runs.Comparison(
        _ROOT_DIR.value, files, bindings, experiment_flags.CORE.value or _MODELS.value,
        range(_FIRST_SEED.value, _FIRST_SEED.value + _SEEDS.value), sweep,
        _ONLY_REPORT.value, _command())
    if _PRINT_COMMANDS.value:
      print('\n'.join(comparison.commands()))
    elif _ONLY_REPORT.value or comparison.train(_JOBS.value):
      print(comparison.report())
    else:
      print(f'Interrupted in {_ROOT_DIR.value}. Run the same command to continue.',
            file=sys.stderr)
      return exit_codes.INTERRUPTED
    return exit_codes.DONE

  if code := run():
    sys.exit(code)


def _command() -> str:
  """Returns the command of these runs, without what does not change their numbers."""
  return shlex.join(['gtrxl', 'compare', *(
      f'--{name}={value}' for name, value in (
          ('env', ','.join(experiment_flags.ENV.value)),
          ('core', ','.join(experiment_flags.CORE.value)),
          ('agent', experiment_flags.AGENT.value), ('steps', experiment_flags.STEPS.value),
          *(('gin_file', file) for file in experiment_flags.GIN_FILE.value),
          *(('gin_bindings', x) for x in experiment_flags.GIN_BINDINGS.value),
          ('models', not experiment_flags.CORE.value and ','.join(_MODELS.value)),
          ('seeds', _SEEDS.value),
          ('first_seed', _FIRST_SEED.value), ('sweep', _SWEEP.value)) if value)])


if __name__ == '__main__':
  program.run(main)
