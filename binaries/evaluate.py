"""Plays episodes with the policy of a run and says how they went.

  python -m binaries.evaluate --root_dir=runs/t_maze_30 --num_episodes=1000 \
      --gin_bindings='TMaze.corridor_length = 60'

A run that learned from episodes acts with all of the settings that are given here, such
as the return to ask for, or noise in place of its memory:

  python -m binaries.evaluate --root_dir=runs/t_maze_90 \
      --gin_file=gin/rate/ablations/memory_noise.gin
"""

import sys

from absl import app
from absl import flags
import gin
import tree

from gtrxl_tf import config
from gtrxl_tf.training import evaluation
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import offline
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import train

_ROOT_DIR = flags.DEFINE_string('root_dir', None, "The run's folder.", required=True)
_NUM_EPISODES = flags.DEFINE_integer(
    'num_episodes', 100, 'Rounded up, so that every environment plays as many.',
    lower_bound=1)
_NUM_ENVIRONMENTS = flags.DEFINE_integer(
    'num_environments', evaluation.NUM_ENVIRONMENTS,
    'How many are played side by side at most.', lower_bound=1)
_GIN_FILE = flags.DEFINE_multi_string(
    'gin_file', [], "Files of settings, which override the run's.")
_GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], "Single settings, which override the files'.")


def _shapes(experiment: experiment_lib.Experiment):
  """The shapes of observation and action, and the numbers of discrete actions."""
  return (tree.map_structure(lambda spec: spec.shape, experiment.observation_spec),
          tree.map_structure(
              lambda spec: getattr(spec, 'num_values', spec.shape),
              experiment.action_spec))


def main(argv):
  del argv
  folder = run_folder.RunFolder(_ROOT_DIR.value)
  if not folder.config.exists():
    sys.exit(f'{folder.config} does not exist: --root_dir is not the folder of a run')
  if not folder.policy.exists():
    sys.exit(f'{folder.policy} does not exist: a run writes it when it is done, and '
             'binaries.export at any time')
  try:
    trained = train.prepare([str(folder.config)], [])
    gin.clear_config()
    experiment = train.prepare(
        [str(folder.config), *_GIN_FILE.value], _GIN_BINDINGS.value)
  except config.ConfigError as error:
    sys.exit(f'Not started: {error}')
  if _shapes(experiment) != _shapes(trained):
    sys.exit('Not started: --gin_bindings change what the policy sees or does: '
             f'expected {_shapes(trained)}, got {_shapes(experiment)}')
  names = experiment.task_names
  environment = experiment.make_environments(
      max(min(_NUM_ENVIRONMENTS.value, _NUM_EPISODES.value), len(names)),
      evaluation.STREAM)
  if isinstance(experiment, offline.OfflineExperiment):
    policy = experiment.make_policy(
        experiment.restore_agent(folder.checkpoints).network)
    played = evaluation.Evaluator(policy, environment).play(_NUM_EPISODES.value)
    environment.close()
  else:
    played = evaluation.evaluate(folder.policy, environment, _NUM_EPISODES.value)
  print(train.describe(played, experiment.informed_return(), names,
                       experiment.score_of(played.returns, played.tasks)))


if __name__ == '__main__':
  app.run(main)
