"""Episodes in a report: films above their attention, or what takes their place."""

import math
from typing import List, Tuple

from gtrxl_tf import environments
from gtrxl_tf.analysis import films
from gtrxl_tf.analysis import report_page
from gtrxl_tf.analysis import report_pictures
from gtrxl_tf.analysis import run_attention
from gtrxl_tf.settings import config
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import run_folder

# The errors of an experiment that cannot be made or played here.
ERRORS = config.ConfigError, FileNotFoundError, environments.EnvironmentFailed

_EXPLAINED = (
    'The strip below a frame shows how much the step attends to each step so far: a row '
    'for each layer, the mean over its heads, brighter for more. Above it, steps with a '
    'positive reward are green, and with a negative one red.')
_EXPLAINED_MAP = (
    'The maps show how much each step, down, attends to each step so far, across: the '
    'mean over heads, brighter for more.')

_Shown = Tuple[List[str], List[str]]  # Sentences, and pictures for `report_page.figures`.


def show(name: str, experiment: experiment_lib.Experiment,
         folder: run_folder.RunFolder, count: int) -> str:
  """Plays episodes with a run's newest weights; returns films of them as HTML.

  Args:
    name: an identifier for pictures.
    experiment: the experiment of the run.
    folder: the run's folder.
    count: how many episodes, each in an environment of its own.
  """
  try:
    sentences, pictures = (
        _recurrence if experiment.learns_while_acting else _films)(
            name, experiment, folder, count)
  except ERRORS as error:
    sentences, pictures = [f'No episodes were played: {error}'], []
  return report_page.paragraph(' '.join(sentences)) + (
      report_page.figures(pictures, 'large') if pictures else '')


def _recurrence(name: str, experiment: experiment_lib.Experiment,
                folder: run_folder.RunFolder, count: int) -> _Shown:
  """Shows the attention to earlier segments of a policy that learns while it acts."""
  del count  # Learning processes are played in all tasks.
  sentences = ['The policy learns while it acts: the curves above show its learning '
               'processes, in place of films.']
  try:
    curve = run_attention.recurrence_curve(experiment, folder)
  except config.ConfigError as error:
    return [*sentences, f'Its attention to earlier segments is not drawn: {error}'], []
  return ([*sentences, 'The share of its attention that goes to earlier segments, as a '
           'mean over layers, heads and tasks:'],
          [report_pictures.learning_processes(
              f'{name}-recurrence', 'share of attention to the recurrence',
              {'policy': curve})])


def _films(name: str, experiment: experiment_lib.Experiment,
           folder: run_folder.RunFolder, count: int) -> _Shown:
  """Plays episodes; returns sentences about their pictures, and the pictures."""
  network = experiment.learned_network(
      experiment.restore_agent(folder.checkpoints))
  policy = experiment.make_policy(network)
  environment = experiment.environment_name
  sentences = []
  try:
    episodes = films.play(
        experiment, policy, count, most_steps=run_attention.MOST_STEPS)
  except films.CannotDraw:
    sentences.append(f'{environment} cannot draw itself: expected a method render(), or '
                     'an image that the agent observes. Pictures of actions and rewards '
                     'take the place of films; steps run down.')
    episodes = films.play(
        experiment, policy, count, film=False, most_steps=run_attention.MOST_STEPS)
  weights = [None] * len(episodes)
  core = getattr(network, 'core', network)  # Some networks have no memory.
  if not hasattr(core, 'attention_weights'):
    sentences.append(f'{type(core).__name__} has no attention to show.')
  else:
    try:
      weights = [run_attention.by_step(network, policy, x) for x in episodes]
      sentences.append(_EXPLAINED if episodes[0].frames else _EXPLAINED_MAP)
      if weights[0].shape[-1] > weights[0].shape[0]:
        sentences.append('Columns before the first step are memory of earlier segments.')
    except config.ConfigError as error:
      sentences.append(f'Attention is not shown: {error}.')
  names = getattr(experiment.action_spec, 'names', ())
  pictures = []
  for i, (episode, x) in enumerate(zip(episodes, weights)):
    caption = _caption(i, episode, experiment.task_names[episode.task])
    picture = (report_pictures.film(episode, x, names) if episode.frames else
               report_pictures.attention_map(f'{name}-{i}', episode, x))
    pictures.append(report_page.captioned(picture, caption))
  return sentences, pictures


def _caption(number: int, episode: films.Episode, task: str) -> str:
  total = (f'return {episode.episode_return:.2f}'
           if not math.isnan(episode.episode_return) else
           f'return {episode.reward.sum():.2f} in the first {len(episode.reward)} steps')
  success = {1: ', success', 0: ', no success'}.get(episode.success, '')
  return f'Episode {number}{f", task {task}" if task else ""}: {total}{success}'
