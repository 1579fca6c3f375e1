"""Draws whom a trained offline model attends to.

  python -m binaries.attention --root_dir=runs/t_maze_30/rate

Of a decision model it is drawn in an episode of its dataset: one picture a segment goes
into ROOT/attention/, and a line with the shares that steps give to the cache, to memory
tokens and to one another is printed for each.

Of a model that learns while it acts it is drawn in the learning processes by which it
is judged: the share of attention that goes to what is held of earlier segments, mean
over layers, heads and tasks, in ROOT/attention/recurrence.png and .csv.
"""

import pathlib
import sys

from absl import app
from absl import flags
import numpy as np

from gtrxl_tf import config
from gtrxl_tf.agents.decision import network as network_lib
from gtrxl_tf.analysis import attention
from gtrxl_tf.analysis import histories
from gtrxl_tf.launch import prepare
from gtrxl_tf.offline import experiment as offline_experiment
from gtrxl_tf.offline import history_experiment
from gtrxl_tf.offline import learning_processes
from gtrxl_tf.training import run_folder

_ROOT_DIR = flags.DEFINE_string('root_dir', None, "The run's folder.", required=True)
_EPISODE = flags.DEFINE_integer(
    'episode', 0, 'Number of the episode in the dataset.', lower_bound=0)


def _draw_episode(experiment: offline_experiment.OfflineExperiment, folder: run_folder.RunFolder,
                  pictures: pathlib.Path) -> None:
  network = experiment.restore_agent(folder.checkpoints).network
  batch = experiment.episode(network.action_space, _EPISODE.value)
  segments = attention.attend(network, network_lib.DecisionInputs(
      batch.return_to_go, batch.observation, batch.action, batch.is_first))
  pictures.mkdir(exist_ok=True)
  for i, segment in enumerate(segments):
    picture = pictures / f'segment_{i}.png'
    attention.draw(picture, segment, f'{folder.root.name}, segment {i}')
    steps = np.array(segment.queries) == 'step'
    print(f'{picture}: ' + ', '.join(
        f'{kind} {np.mean(share[..., steps]):.3f}'
        for kind, share in attention.shares(segment).items()))


def _draw_processes(experiment: history_experiment.HistoryExperiment,
                    folder: run_folder.RunFolder, pictures: pathlib.Path) -> None:
  network = experiment.restore_agent(folder.checkpoints).network
  attention.check_recurs(network.core)  # Before anything is played.
  policy = experiment.make_policy(network)
  judge = experiment.make_judge(policy)
  judge.evaluate()
  shares = attention.recurrence_shares(
      network, learning_processes.as_inputs(judge.played, network, policy))
  parts = np.array_split(np.arange(shares.shape[1]),
                         min(shares.shape[1], histories.NUM_BINS))
  curve = histories.summarize(
      np.array([network.context_length * (part[-1] + 1) for part in parts]),
      np.stack([shares[:, part].mean(axis=1) for part in parts], axis=1))
  pictures.mkdir(exist_ok=True)
  picture = pictures / 'recurrence.png'
  histories.write_csv(
      picture.with_suffix('.csv'), {folder.root.name: curve}, measure='share')
  histories.draw(picture, {folder.root.name: curve}, folder.root.name,
                 measure='share of attention to the recurrence')
  first, mean, last = curve.mean[0], curve.mean.mean(), curve.mean[-1]
  print(f'{picture}: {first:.3f} at first, {mean:.3f} in the mean, {last:.3f} at last')


def main(argv):
  del argv
  folder = run_folder.RunFolder(_ROOT_DIR.value)
  try:
    experiment = prepare.prepare([str(folder.config)], [])
    if not isinstance(experiment, offline_experiment.OfflineExperiment):
      raise config.ConfigError('the run is online: expected one of an OfflineExperiment')
    draw = (_draw_processes
            if isinstance(experiment, history_experiment.HistoryExperiment)
            else _draw_episode)
    draw(experiment, folder, folder.root / 'attention')
  except (config.ConfigError, FileNotFoundError, IndexError) as error:
    sys.exit(f'Not drawn: {error}')


if __name__ == '__main__':
  app.run(main)
