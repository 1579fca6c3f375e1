"""Draws the attention of a trained model.

  gtrxl attention --root_dir=runs/t_maze_30/rate

The policy of an online run plays an episode. ROOT/attention/episode_0.png shows what
each step attends to, up to step 300, and a printed line says how far back that is.

A decision model reads an episode of its dataset. A picture of each segment is written
to ROOT/attention/, and a printed line gives the shares of the steps' attention that go
to the cache, to memory tokens and to other steps.

A model that learns while it acts plays the learning processes that evaluate it.
ROOT/attention/recurrence.png and .csv show the share of attention that goes to earlier
segments, as a mean over layers, heads and tasks.
"""

import sys

from absl import flags

from gtrxl_tf.launch import program

_ROOT_DIR = flags.DEFINE_string('root_dir', None, "The run's folder.", required=True)
_EPISODE = flags.DEFINE_integer(
    'episode', 0, 'Number of the episode in the dataset, or of those played.', lower_bound=0)


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf import environments
  from gtrxl_tf.analysis import attention
  from gtrxl_tf.settings import config
  from gtrxl_tf.training import run_folder

  folder = run_folder.RunFolder(_ROOT_DIR.value)
  program.check_run(folder)
  try:
    attention.draw_run(folder, _EPISODE.value)
  except (config.ConfigError, environments.EnvironmentFailed, IndexError,
          OSError) as error:
    sys.exit(f'Not drawn: {error}')


if __name__ == '__main__':
  program.run(main)
