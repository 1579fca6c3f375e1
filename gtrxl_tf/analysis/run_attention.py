"""Measures the attention of a run's model, and draws it into the run's folder."""

from typing import Any

import numpy as np
import tensorflow as tf

from gtrxl_tf.analysis import attention
from gtrxl_tf.analysis import films
from gtrxl_tf.launch import prepare
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import decision
from gtrxl_tf.settings import config
from gtrxl_tf.training import run_folder
from gtrxl_tf.training.offline import history_curves
from gtrxl_tf.training.offline import history_experiment
from gtrxl_tf.training.offline import learning_processes

MOST_STEPS = 300  # More steps of an episode could not be distinguished in a picture.


def draw(folder: run_folder.RunFolder, episode: int) -> None:
  """Draws into ROOT/attention/ and prints a line for each picture.

  The episode is one of the run's dataset or, if the run is online, of those that its
  policy plays. A model that learns while it acts plays learning processes instead.
  """
  experiment = prepare.prepare([str(folder.config)], [])
  pictures, name = folder.root / 'attention', folder.root.name

  def draw_segment(stem: str, title: str, segment: attention.Segment, tokens: int) -> None:
    pictures.mkdir(exist_ok=True)
    for by_head in False, True:
      attention.draw(pictures / f'{stem}{"_heads" * by_head}.png', segment,
                     f'{name}, {title}', by_head, tokens)

  if experiment.learns_while_acting:
    curve = recurrence_curve(experiment, folder)
    pictures.mkdir(exist_ok=True)
    picture = pictures / 'recurrence.png'
    history_curves.write_csv(picture.with_suffix('.csv'), {name: curve}, measure='share')
    history_curves.draw(
        picture, {name: curve}, name, measure='share of attention to the recurrence')
    first, mean, last = curve.mean[0], curve.mean.mean(), curve.mean[-1]
    print(f'{picture}: {first:.3f} at the start, {mean:.3f} on average, '
          f'{last:.3f} at the end')
    return
  network = experiment.learned_network(experiment.restore_agent(folder.checkpoints))
  attention.check_attends(network)  # Before anything is played.
  if experiment.is_online:
    played = films.play(experiment, experiment.make_policy(network), episode + 1,
                        film=False, most_steps=MOST_STEPS)[episode]
    segment = attention.attend_online(network, played.inputs)
    draw_segment(f'episode_{episode}', f'episode {episode}', segment, 1)
    print(f'{pictures}/episode_{episode}.png: {len(played.reward)} steps, attention goes '
          f'{attention.mean_distance(segment):.1f} steps back on average')
    return
  batch = experiment.episode(network.action_space, episode)
  for i, segment in enumerate(attention.attend(network, batch)):
    draw_segment(f'segment_{i}', f'segment {i}', segment, decision.TOKENS_PER_STEP)
    steps = np.array(segment.queries) == 'step'
    print(f'{pictures}/segment_{i}.png: ' + ', '.join(
        f'{kind} {np.mean(share[..., steps]):.3f}'
        for kind, share in attention.shares(segment).items()))


def recurrence_curve(experiment: history_experiment.HistoryExperiment,
                     folder: run_folder.RunFolder) -> history_curves.Curve:
  """Plays learning processes; returns the share of attention on earlier segments."""
  network = experiment.restore_agent(folder.checkpoints).network
  attention.check_recurs(network.core)  # Before anything is played.
  policy = experiment.make_policy(network)
  evaluator = experiment.make_evaluator(policy)
  evaluator.evaluate()
  shares = attention.recurrence_shares(
      network, learning_processes.as_inputs(evaluator.played, network, policy))
  parts = np.array_split(np.arange(shares.shape[1]),
                         min(shares.shape[1], history_curves.NUM_BINS))
  return history_curves.summarize(
      np.array([network.context_length * (part[-1] + 1) for part in parts]),
      np.stack([shares[:, part].mean(axis=1) for part in parts], axis=1))


def by_step(network: Any, policy: Any, episode: films.Episode) -> np.ndarray:
  """Returns the attention of each step that a policy played, see `attention.by_step`."""
  attention.check_attends(network)
  if isinstance(network, actor_critic.ActorCritic):
    return attention.by_step([attention.attend_online(network, episode.inputs)])
  inputs = episode.inputs._replace(action=network.action_space.from_environment(
      tf.nest.map_structure(lambda x: tf.constant(x)[tf.newaxis], episode.action)))
  num_steps = len(episode.reward)
  length = min(policy.window or num_steps, num_steps)
  if network.oracle is not None and length < num_steps:
    raise config.ConfigError('attention of a DecisionNetwork.oracle in a window: expected '
                             f'at most {length} steps, got {num_steps}')
  # Steps after the first window see the window that ends with them.
  count = num_steps - length + 1
  windows = tf.nest.map_structure(
      lambda x: tf.stack([x[0, i:i + length] for i in range(count)]), inputs)
  begins = tf.one_hot(0, length, True, False, dtype=tf.bool)
  segments = attention.attend(network, windows._replace(
      is_first=tf.tile(begins[tf.newaxis], [count, 1])))
  weights = [attention.by_step(segments, i, decision.TOKENS_PER_STEP) for i in range(count)]
  num_memory = weights[0].shape[-1] - length
  found = np.zeros([num_steps, weights[0].shape[1], num_memory + num_steps], np.float32)
  for i in reversed(range(count)):  # The first window has the steps of its own, too.
    rows = slice(i and i + length - 1, i + length)
    found[rows, :, :num_memory] = weights[i][-1 if i else None:, :, :num_memory]
    found[rows, :, num_memory + i:num_memory + i + length] = (
        weights[i][-1 if i else None:, :, num_memory:])
  return found
