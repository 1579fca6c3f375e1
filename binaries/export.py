r"""Writes the policy of a run as a SavedModel: the best that was kept, or the newest.

  gtrxl export --root_dir=runs/numpad_2x2 --output_dir=/tmp/policy --greedy

The policy of an offline run takes its settings, such as a target return, from here:

  gtrxl export --root_dir=runs/t_maze_30 --output_dir=/tmp/policy \
      --gin_bindings='DecisionPolicy.target_return = 0.5'
"""

import pathlib
import shlex
import sys

from absl import flags

from gtrxl_tf.launch import program

_ROOT_DIR = flags.DEFINE_string('root_dir', None, "The run's folder.", required=True)
_OUTPUT_DIR = flags.DEFINE_string(
    'output_dir', None, 'The folder to write, which must not exist yet.', required=True)
_GREEDY = flags.DEFINE_bool(
    'greedy', False, 'Take the most likely action instead of sampling one.')
_LAST = flags.DEFINE_bool(
    'last', False, 'Take the newest checkpoint, whatever was kept as the best.')
_GIN_FILE = flags.DEFINE_multi_string(
    'gin_file', [], "Files of settings, which override the run's.")
_GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], "Single settings, which override the files'.")


def main() -> None:
  # pylint: disable=import-outside-toplevel
  import tensorflow as tf

  from gtrxl_tf.launch import prepare
  from gtrxl_tf.serving import export
  from gtrxl_tf.serving import exported
  from gtrxl_tf.settings import config
  from gtrxl_tf.training import run_folder

  folder = run_folder.RunFolder(_ROOT_DIR.value)
  output_dir = pathlib.Path(_OUTPUT_DIR.value)
  program.check_run(folder)
  if output_dir.exists() or output_dir.is_symlink():
    program.refuse(f'{output_dir} exists: --output_dir must name a new folder')
  try:
    config.check_plain(output_dir)
  except config.ConfigError as error:
    program.refuse(str(error))
  try:  # Before the work, which takes a while.
    output_dir.parent.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    sys.exit(f'Not exported: {output_dir.parent}: {error.strerror}: expected a folder')
  try:
    experiment = prepare.prepare(
        [str(folder.config), *_GIN_FILE.value], _GIN_BINDINGS.value)
    network = (experiment.learned_network(experiment.restore_agent(folder.checkpoints))
               if _LAST.value else experiment.kept_network(folder))
  except (config.ConfigError, FileNotFoundError) as error:
    sys.exit(f'Not exported: {error}')
  policy = experiment.make_policy(network)
  try:
    export.save_policy(policy.greedy() if _GREEDY.value else policy, output_dir)
  except (OSError, tf.errors.OpError) as error:
    sys.exit(f'Not exported: {output_dir}: {config.one_line(error)}')
  given = sorted(exported.inputs(exported.load(output_dir)).items())
  width = max(len(name) for name, _ in given)
  print('Inputs of the signature action, for any number of rows:')
  for name, spec in given:
    shape = ', '.join('rows' if size is None else str(size) for size in spec.shape)
    print(f'  {name:<{width}}  {spec.dtype.name:<7}  [{shape}]')
  print('Look at it:  saved_model_cli show '
        f'--dir {shlex.quote(str(output_dir))} --tag_set serve --signature_def action')


if __name__ == '__main__':
  program.run(main)
