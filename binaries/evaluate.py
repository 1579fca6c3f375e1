"""Plays episodes with the policy of a run and says how they went.

  python -m binaries.evaluate --root_dir=runs/t_maze_30 --num_episodes=1000 \
      --gin_bindings='TMaze.corridor_length = 60'

A run that learned from episodes acts with all of the settings that are given here, such
as the return to ask for, or noise in place of its memory:

  python -m binaries.evaluate --root_dir=runs/t_maze_90 \
      --gin_file=gin/rate/ablations/memory_noise.gin

Where the policy learns while it acts, learning processes are played. With --sweep this
is done for each value of a setting, and their curves are drawn as ROOT/evaluation.png:

  python -m binaries.evaluate --root_dir=runs/dr_cpu_ed \
      --sweep=DistillationPolicy.position_scale=0.5,1.0,2.0
"""

import sys

from absl import app
from absl import flags
import gin
import tree

from gtrxl_tf import config
from gtrxl_tf.analysis import histories
from gtrxl_tf.launch import prepare
from gtrxl_tf.launch import variants
from gtrxl_tf.offline import experiment as offline_experiment
from gtrxl_tf.offline import history_experiment
from gtrxl_tf.offline import learning_processes
from gtrxl_tf.training import evaluation
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import run_folder

_ROOT_DIR = flags.DEFINE_string('root_dir', None, "The run's folder.", required=True)
_NUM_EPISODES = flags.DEFINE_integer(
    'num_episodes', 100, 'Rounded up, so that every environment plays as many.',
    lower_bound=1)
_NUM_ENVIRONMENTS = flags.DEFINE_integer(
    'num_environments', evaluation.NUM_ENVIRONMENTS,
    'How many are played side by side at most.', lower_bound=1)
_GIN_FILE = flags.DEFINE_multi_string(
    'gin_file', [], "Files of settings, which override the run's.")
_SWEEP = flags.DEFINE_string(
    'sweep', None, 'SETTING=VALUE,VALUE,... or FILE,FILE,...: it is done for each value '
    'of a setting, or with each gin file.')
_GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], "Single settings, which override the files'.")


def _shapes(experiment: experiment_lib.Experiment):
  """The shapes of observation and action, and the numbers of discrete actions."""
  return (tree.map_structure(lambda spec: spec.shape, experiment.observation_spec),
          tree.map_structure(
              lambda spec: getattr(spec, 'num_values', spec.shape),
              experiment.action_spec))


def _prepare(folder: run_folder.RunFolder, point: variants.Point
             ) -> experiment_lib.Experiment:
  """The run's experiment, with the settings that are given here.

  Raises:
    config.ConfigError: they change what the policy sees or does.
  """
  gin.clear_config()
  trained = prepare.prepare([str(folder.config)], [])
  gin.clear_config()
  experiment = prepare.prepare(
      [str(folder.config), *_GIN_FILE.value, *point.gin_files],
      [*_GIN_BINDINGS.value, *point.bindings])
  if _shapes(experiment) != _shapes(trained):
    raise config.ConfigError(
        '--gin_bindings change what the policy sees or does: expected '
        f'{_shapes(trained)}, got {_shapes(experiment)}')
  return experiment


def _play(experiment: experiment_lib.Experiment, folder: run_folder.RunFolder) -> str:
  """Plays episodes; returns how they went."""
  names = experiment.task_names
  environment = experiment.make_environments(
      max(min(_NUM_ENVIRONMENTS.value, _NUM_EPISODES.value), len(names)),
      evaluation.STREAM)
  if isinstance(experiment, offline_experiment.OfflineExperiment):
    policy = experiment.make_policy(
        experiment.restore_agent(folder.checkpoints).network)
    played = evaluation.Evaluator(policy, environment).play(_NUM_EPISODES.value)
    environment.close()
  else:
    played = evaluation.evaluate(folder.policy, environment, _NUM_EPISODES.value)
  return evaluation.describe(played, experiment.informed_return(), names,
                        experiment.score_of(played.returns, played.tasks))


def main(argv):
  del argv
  folder = run_folder.RunFolder(_ROOT_DIR.value)
  if not folder.config.exists():
    sys.exit(f'{folder.config} does not exist: --root_dir is not the folder of a run')
  if not folder.policy.exists():
    sys.exit(f'{folder.policy} does not exist: a run writes it when it is done, and '
             'binaries.export at any time')
  lines = {}
  try:
    for point in variants.sweep(_SWEEP.value):
      experiment = _prepare(folder, point)
      if point.name:
        print(f'{point.name}: ', end='')
      if isinstance(experiment, history_experiment.HistoryExperiment):
        judge = experiment.make_judge(experiment.make_policy(
            experiment.restore_agent(folder.checkpoints).network))
        print(learning_processes.describe(judge.evaluate()), flush=True)
        lines[point.name] = judge.curves['policy']
      else:
        print(_play(experiment, folder), flush=True)
  except config.ConfigError as error:
    sys.exit(f'Not started: {error}')
  if lines and _SWEEP.value:
    picture = folder.root / 'evaluation.png'
    histories.draw(picture, {**lines, 'source': judge.curves['source']},
                   folder.root.name, judge.optimum)
    print(f'Learning processes: {picture}')


if __name__ == '__main__':
  app.run(main)
