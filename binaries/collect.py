r"""Collects episodes of an environment into a dataset.

  gtrxl collect --output_dir=datasets/t_maze_30 \
      --gin_bindings='Collector.environment = @TMaze' \
      --gin_bindings='Collector.num_episodes = 2000' \
      --gin_bindings='Collector.keep = "successful"'

If it is started again on the same folder, it resumes.
"""

import os

from absl import flags

from gtrxl_tf.launch import program

from . import collecting

_GIN_FILE = flags.DEFINE_multi_string(
    'gin_file', [], 'Files of settings; later ones override.')
_GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], 'Single settings, which override the files.')
_OUTPUT_DIR = flags.DEFINE_string(
    'output_dir', None, "The dataset's folder.", required=True)
_NUM_PROCESSES = flags.DEFINE_integer(
    'num_processes', os.cpu_count(), 'Processes to use. Does not affect the episodes.',
    lower_bound=1)


def main() -> None:
  from gtrxl_tf.collecting import episodes as collect  # pylint: disable=import-outside-toplevel

  collecting.run(
      _GIN_FILE.value, _GIN_BINDINGS.value, _OUTPUT_DIR.value, collect.Collector,
      lambda collector: collect.collect(
          collector, _OUTPUT_DIR.value, _NUM_PROCESSES.value))


if __name__ == '__main__':
  program.run(main)
