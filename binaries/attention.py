"""Draws whom a trained decision model attends to, in an episode of its dataset.

  python -m binaries.attention --root_dir=runs/t_maze_30/rate

One picture a segment goes into ROOT/attention/, and a line with the shares that steps
give to the cache, to memory tokens and to one another is printed for each.
"""

import sys

from absl import app
from absl import flags
import numpy as np

from gtrxl_tf import config
from gtrxl_tf.agents.decision import network as network_lib
from gtrxl_tf.analysis import attention
from gtrxl_tf.training import offline
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import train

_ROOT_DIR = flags.DEFINE_string('root_dir', None, "The run's folder.", required=True)
_EPISODE = flags.DEFINE_integer(
    'episode', 0, 'Number of the episode in the dataset.', lower_bound=0)


def main(argv):
  del argv
  folder = run_folder.RunFolder(_ROOT_DIR.value)
  try:
    experiment = train.prepare([str(folder.config)], [])
    if not isinstance(experiment, offline.OfflineExperiment):
      raise config.ConfigError('the run is online: expected one of an OfflineExperiment')
    network = experiment.restore_agent(folder.checkpoints).network
    batch = experiment.episode(network.action_space, _EPISODE.value)
    segments = attention.attend(network, network_lib.DecisionInputs(
        batch.return_to_go, batch.observation, batch.action, batch.is_first))
  except (config.ConfigError, FileNotFoundError, IndexError) as error:
    sys.exit(f'Not drawn: {error}')
  pictures = folder.root / 'attention'
  pictures.mkdir(exist_ok=True)
  for i, segment in enumerate(segments):
    picture = pictures / f'segment_{i}.png'
    attention.draw(picture, segment, f'{folder.root.name}, segment {i}')
    steps = np.array(segment.queries) == 'step'
    print(f'{picture}: ' + ', '.join(
        f'{kind} {np.mean(share[..., steps]):.3f}'
        for kind, share in attention.shares(segment).items()))


if __name__ == '__main__':
  app.run(main)
