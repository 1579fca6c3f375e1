r"""Collects learning histories of a source, for algorithm distillation.

  gtrxl collect_histories --output_dir=datasets/dr \
      --gin_file=gin/distillation/histories/dark_room.gin \
      --gin_bindings='DarkRoomFamily.setting = "dr"'

Writes the datasets training/ and evaluation/ into the folder, and the source's learning
curve in the evaluation tasks as source.csv and source.png. If it is started again on
the same folder, it resumes.
"""

import sys

from absl import app
from absl import flags

import binaries

_GIN_FILE = flags.DEFINE_multi_string(
    'gin_file', [], 'Files of settings; later ones override.')
_GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], 'Single settings, which override the files.')
_OUTPUT_DIR = flags.DEFINE_string(
    'output_dir', None, 'The folder of the datasets and the curve.', required=True)


def main(argv) -> None:
  binaries.refuse_arguments(argv)
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf import config
  from gtrxl_tf import datasets
  from gtrxl_tf.analysis import source_curve
  from gtrxl_tf.datasets import inspection
  from gtrxl_tf.launch import exit_codes
  from gtrxl_tf.launch import parts
  from gtrxl_tf.launch import prepare  # noqa: F401 (for gin)
  from gtrxl_tf.sources import histories

  def collected() -> datasets.Dataset:
    try:
      config.parse(_GIN_FILE.value, _GIN_BINDINGS.value)
      collector = histories.HistoryCollector()
    except ValueError as error:
      print(f'Not started: {config.one_line(error)}', file=sys.stderr)
      sys.exit(2)
    try:
      evaluation = histories.collect_split(collector, 'evaluation', _OUTPUT_DIR.value)
      source_curve.draw(collector, evaluation, _OUTPUT_DIR.value)
      return histories.collect_split(collector, 'training', _OUTPUT_DIR.value)
    except (config.ConfigError, datasets.DatasetError) as error:
      sys.exit(f'Stopped: {error}')

  try:
    # Beside the folder, as `binaries.collect` does it.
    with parts.kept_failure('', f'{_OUTPUT_DIR.value.rstrip("/")}.failure.txt',
                            unexpected_only=True):
      dataset = collected()
  except (exit_codes.RunFailed, OSError) as error:  # The latter: there is no room.
    sys.exit(f'Stopped: {error}')
  except KeyboardInterrupt:
    print('\nInterrupted. The same command goes on.')
    sys.exit(130)
  print(inspection.describe(dataset))


if __name__ == '__main__':
  app.run(main)
