"""Evaluates the policy of a run, as it was trained or with other settings."""

import contextlib
from typing import Any, Callable, Optional, Sequence

import gin
import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf.analysis import films
from gtrxl_tf.analysis import models
from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.launch import parts
from gtrxl_tf.launch import prepare
from gtrxl_tf.settings import config
from gtrxl_tf.training import evaluation
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import tensorboard
from gtrxl_tf.training.offline import history_curves
from gtrxl_tf.training.offline import learning_processes

_NUM_EPISODES = 100
_NUM_FILMS = 3


def evaluate(folder: run_folder.RunFolder, gin_files: Sequence[str],
             gin_bindings: Sequence[str], sweep: Optional[str],
             num_episodes: Optional[int], num_environments: int,
             show: Callable[[str], None], video: bool = False, greedy: bool = False
             ) -> None:
  """Evaluates a run's policy at every point of a sweep.

  Where the policy learns while it acts, learning processes are played instead of
  episodes; those of a sweep are drawn as `evaluation.png` in the run's folder. `show` is
  called with each text; the other arguments are the flags of `gtrxl evaluate`.
  """
  # In graphs with residual convolutions this pass of TensorFlow's optimizer fails, changes
  # nothing, and prints an error.
  tf.config.optimizer.set_experimental_options({'remapping': False})
  lines, sources, optima = {}, {}, set()
  for point in models.sweep(sweep):
    with parts.failure_recorded(
        'evaluation', folder.failures / 'evaluate.txt', unexpected_only=True):
      experiment = _prepare(folder, [*gin_files, *point.gin_files],
                            [*gin_bindings, *point.bindings])
      name = f'{point.name}: ' if point.name else ''
      if experiment.learns_while_acting and (video or num_episodes is not None):
        raise config.ConfigError(
            'the policy learns while it acts: expected neither --video nor --num_episodes; '
            'HistoryCollector.num_evaluation is the number of learning processes')
      if video:
        show(name + _film(experiment, _restore(experiment, folder, greedy), folder, point.name))
      policy = _restore(experiment, folder, greedy)  # Filming has drawn random numbers.
      if not experiment.learns_while_acting:
        played = play(experiment, policy, num_episodes or _NUM_EPISODES, num_environments)
        show(name + evaluation.describe(
            played, experiment.informed_return(), experiment.task_names,
            experiment.compute_scores(played.returns, played.tasks)))
        continue
      evaluator = experiment.make_evaluator(policy)
      found = evaluator.evaluate(after_training=True)
      show(name + learning_processes.describe(found.means))
      again = learning_processes.success_after_misses(evaluator.played.end)
      show(f'{name}Share of episodes that succeed right after a success, and after 1, '
           '2, ... misses: ' + ', '.join(f'{x:.2f}' for x in again))
      lines[point.name] = evaluator.curves['policy']
      sources[f'source, {point.name}'] = source = evaluator.curves['source']
      optima.add(evaluator.optimum)
  if lines and sweep:
    picture = folder.root / 'evaluation.png'
    if all(np.array_equal(x.mean, source.mean, equal_nan=True)
           for x in sources.values()):
      sources = {'source': source}
    history_curves.draw(picture, {**lines, **sources}, folder.root.name,
                        optima.pop() if len(optima) == 1 else None)
    show(f'Learning processes: {picture}')


def _prepare(folder: run_folder.RunFolder, gin_files: Sequence[str],
             gin_bindings: Sequence[str]) -> experiment_lib.Experiment:
  """Makes the run's experiment with other settings."""
  trained = None
  if gin_files or gin_bindings:
    with contextlib.suppress(config.ConfigError):  # For example, its dataset has moved.
      trained = _shapes(_prepare(folder, [], []))
  gin.clear_config()
  # The checks of a run that begins are left out: they take longer than playing.
  experiment = prepare.prepare([str(folder.config), *gin_files], gin_bindings, check=False)
  if trained and _shapes(experiment) != trained:
    raise config.ConfigError('--gin_bindings change what the policy sees or does: expected '
                             f'{trained}, got {_shapes(experiment)}')
  return experiment


def _shapes(experiment: experiment_lib.Experiment) -> Any:
  """Returns the shapes of observation and action, and numbers of discrete actions."""
  return (tree.map_structure(lambda spec: spec.shape, experiment.observation_spec),
          tree.map_structure(
              lambda spec: (sum(specs_lib.num_values(spec)) if not spec.shape
                            and specs_lib.is_discrete(spec) else spec.shape),
              experiment.action_spec))


def _restore(experiment: experiment_lib.Experiment, folder: run_folder.RunFolder,
             greedy: bool) -> Any:
  """Returns the run's policy, or the greedy one of the newest checkpoint."""
  if not greedy:
    return experiment.restore_policy(folder)
  agent = experiment.restore_agent(folder.checkpoints)
  return experiment.make_policy(experiment.learned_network(agent)).greedy()


def _film(experiment: experiment_lib.Experiment, policy: Any,
          folder: run_folder.RunFolder, name: str) -> str:
  """Films one episode in each of a few environments; returns a text that names them."""
  board, texts = tensorboard.Summaries(folder.summaries / 'films'), []
  for i, episode in enumerate(films.play(experiment, policy, _NUM_FILMS)):
    path = folder.videos / name / f'episode_{i}.gif'
    films.write(path, episode.frames)
    board.picture('/'.join(filter(None, ['films', name, f'episode_{i}'])), path)
    task_name = experiment.task_names[episode.task]
    texts.append(f'{path} ({task_name}{": " * bool(task_name)}return '
                 f'{episode.episode_return:.2f})')
  board.flush()
  return 'Films: ' + ', '.join(texts)


def play(experiment: experiment_lib.Experiment, policy: Any, num_episodes: int,
         num_environments: int = evaluation.NUM_ENVIRONMENTS) -> evaluation.Evaluation:
  """Plays at least `num_episodes` of all tasks together, with a policy or a SavedModel."""
  environment = experiment.make_evaluation_environments(num_episodes, num_environments)
  with contextlib.closing(environment):
    return evaluation.EpisodeEvaluator(
        policy, environment, num_episodes, experiment.task_names).evaluate()
