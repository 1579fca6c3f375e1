r"""Collects episodes of an environment into a dataset.

  gtrxl collect --output_dir=datasets/t_maze_30 \
      --gin_bindings='Collector.environment = @TMaze' \
      --gin_bindings='Collector.num_episodes = 2000' \
      --gin_bindings='Collector.keep = "successful"'

If it is started again on the same folder, it resumes.
"""

from concurrent.futures import process
import os
import sys

from absl import app
from absl import flags

import binaries

_GIN_FILE = flags.DEFINE_multi_string(
    'gin_file', [], 'Files of settings; later ones override.')
_GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], 'Single settings, which override the files.')
_OUTPUT_DIR = flags.DEFINE_string(
    'output_dir', None, "The dataset's folder.", required=True)
_NUM_PROCESSES = flags.DEFINE_integer(
    'num_processes', os.cpu_count(), 'Processes to use. Does not affect the episodes.',
    lower_bound=1)


def main(argv) -> None:
  binaries.refuse_arguments(argv)
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf import config
  from gtrxl_tf import datasets
  from gtrxl_tf.datasets import collect
  from gtrxl_tf.datasets import inspection
  from gtrxl_tf.launch import exit_codes
  from gtrxl_tf.launch import parts
  from gtrxl_tf.launch import prepare  # noqa: F401 (for gin)

  def collected() -> datasets.Dataset:
    try:
      config.parse(_GIN_FILE.value, _GIN_BINDINGS.value)
      collector = collect.Collector()
    except ValueError as error:
      print(f'Not started: {config.one_line(error)}', file=sys.stderr)
      sys.exit(2)
    try:
      return collect.collect(collector, _OUTPUT_DIR.value, _NUM_PROCESSES.value)
    except (config.ConfigError, datasets.DatasetError) as error:
      sys.exit(f'Stopped: {error}')
    except process.BrokenProcessPool:
      sys.exit('Stopped: a process that played was killed. The same command goes on.')

  try:
    # Beside the folder, which has a dataset's files only.
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
