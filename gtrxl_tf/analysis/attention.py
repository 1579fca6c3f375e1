"""The attention of a network's core, as numbers and as pictures, also those of a run.

The pictures follow RATE, appendix K; the shares of attention on a recurrence follow
*Memory-Efficient Algorithm Distillation*, Figure 9.
"""

import math
import pathlib
from typing import Any, Dict, List, NamedTuple, Sequence

from matplotlib import colors
import numpy as np
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.analysis import films
from gtrxl_tf.launch import prepare
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import decision
from gtrxl_tf.networks import distillation
from gtrxl_tf.settings import config
from gtrxl_tf.training import curves
from gtrxl_tf.training import run_folder
from gtrxl_tf.training.offline import history_curves
from gtrxl_tf.training.offline import history_experiment
from gtrxl_tf.training.offline import learning_processes

MOST_STEPS = 300  # More steps of an episode could not be distinguished in a picture.

# The kinds of tokens that cores distinguish, in their order in the sequence.
KINDS = ('cache', 'read', 'step', 'write')

_WIDTH = 17  # The width of a row of panels, in inches.
_MOST_LABELS = 60  # The most labels along a side of a panel that can be read.
_MOST_NUMBERS = 20  # Numbers are wider than letters.


class Segment(NamedTuple):
  """Attention weights within one segment of an unroll.

  Attributes:
    weights: [B, L, H, Q, K], for layers, heads, queries and keys. They add up to 1 over
      keys; those of an empty cache are 0.
    queries: the kind of each query.
    keys: the kind of each key.
    tokens_per_step: 1 online, and 3 of a decision model: return-to-go, observation, action.
  """
  weights: np.ndarray
  queries: List[str]
  keys: List[str]
  tokens_per_step: int = 1


def attend(network: Any, inputs: Any) -> List[Segment]:
  """Returns attention weights, by segment, of steps `[B, T, ...]` as the network sees them.

  A core that does not work in segments has a single one, and so does an online policy. An
  unfinished last segment has no `write` tokens.
  """
  check_attends(network)
  core, (batch_size, num_steps) = network.core, inputs.is_first.shape
  state = network.initial_state(batch_size)
  if isinstance(network, actor_critic.ActorCritic):
    weights, queries, keys = core.attention_weights(
        # pylint: disable-next=protected-access
        network._embed(inputs, batch_dims=2), inputs.is_first, state)
    return [Segment(weights[:, 0].numpy(), queries, keys)]
  missing = -num_steps % max(1, core.segment_length // decision.TOKENS_PER_STEP)
  padded = tf.nest.map_structure(
      lambda x: tf.concat([x, tf.repeat(x[:, -1:], missing, axis=1)], axis=1), inputs)
  is_first = padded.is_first & (tf.range(num_steps + missing) < num_steps)
  is_first, state = network.with_oracle(padded._replace(is_first=is_first), state)
  weights, queries, keys = core.attention_weights(
      *decision.flatten(network.embed(padded), is_first), state)
  segments = [Segment(w.numpy(), queries, keys, decision.TOKENS_PER_STEP)
              for w in tf.unstack(weights, axis=1)]
  if missing:  # No other token attends to these, and to `write`.
    count = missing * decision.TOKENS_PER_STEP + keys.count('write')
    segments[-1] = Segment(segments[-1].weights[..., :-count, :-count],
                           queries[:-count], keys[:-count], decision.TOKENS_PER_STEP)
  return segments


def check_attends(network: Any) -> None:
  """Raises a `config.ConfigError` unless it is a known network whose core attends."""
  if not isinstance(network, (actor_critic.ActorCritic, decision.DecisionNetwork)):
    raise config.ConfigError(
        f'attention of a {type(network).__name__}: expected an ActorCritic or a '
        'DecisionNetwork')
  if not hasattr(network.core, 'attention_weights'):
    raise config.ConfigError(
        f'attention of a {type(network.core).__name__}: expected a core that attends, '
        'such as RATE or TransformerXL')


def by_step(segments: Sequence[Segment], row: int = 0) -> np.ndarray:
  """Returns how much each step attends to memory and to each step, averaged over heads.

  A step attends from the token where its policy is read: its only token, or the second
  of three. The segments are those of an episode of T steps, in a row of the batch.

  Returns:
    [T, L, m + T]: first m columns for the cache as a whole and for each memory token, if
    there are any, then one for each step.
  """
  tokens_per_step = segments[0].tokens_per_step
  total = sum(x.queries.count('step') for x in segments) // tokens_per_step
  rows, begin = [], 0
  for segment in segments:
    queries, keys = np.array(segment.queries), np.array(segment.keys)
    acting = np.flatnonzero(queries == 'step')[tokens_per_step // 2::tokens_per_step]
    weights = segment.weights[row].mean(axis=1)[:, acting]
    steps = weights[..., keys == 'step']
    steps = steps.reshape(*steps.shape[:2], -1, tokens_per_step).sum(axis=-1)
    rows.append(np.concatenate([
        weights[..., keys == 'cache'].sum(axis=-1, keepdims=True),
        weights[..., keys == 'read'],
        np.pad(steps, [(0, 0), (0, 0), (begin, total - begin - steps.shape[-1])])],
        axis=-1))
    begin += steps.shape[-1]
  found = np.concatenate(rows, axis=1).swapaxes(0, 1)
  return found if found[..., 0].any() else found[..., 1:]


def of_episode(network: Any, policy: Any, episode: films.Episode) -> np.ndarray:
  """Returns the attention of each step that a policy played, see `by_step`."""
  check_attends(network)
  if isinstance(network, actor_critic.ActorCritic):
    return by_step(attend(network, episode.inputs))
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
  segments = attend(network, windows._replace(
      is_first=tf.tile(begins[tf.newaxis], [count, 1])))
  weights = [by_step(segments, i) for i in range(count)]
  num_memory = weights[0].shape[-1] - length
  found = np.zeros([num_steps, weights[0].shape[1], num_memory + num_steps], np.float32)
  for i in reversed(range(count)):  # The first window has the steps of its own, too.
    part, rows = (weights[i][-1:], i + length - 1) if i else (weights[0], slice(length))
    found[rows, :, :num_memory] = part[..., :num_memory]
    found[rows, :, num_memory + i:num_memory + i + length] = part[..., num_memory:]
  return found


def mean_distance(segment: Segment) -> float:
  """Returns how many steps back attention goes online, as a mean over all queries."""
  num_keys, num_queries = len(segment.keys), len(segment.queries)
  distance = (np.arange(num_queries)[:, np.newaxis] + num_keys - num_queries
              - np.arange(num_keys))
  return float(np.mean(np.sum(segment.weights * distance, axis=-1)))


def shares(segment: Segment) -> Dict[str, np.ndarray]:
  """Returns the share of each query's attention on each of `KINDS`, `[B, L, H, Q]`."""
  kinds = np.array(segment.keys)
  return {kind: segment.weights[..., kinds == kind].sum(axis=-1) for kind in KINDS}


def check_recurs(core: cores.Core) -> None:
  """Raises a `config.ConfigError` unless a core attends to earlier segments."""
  if not core.memory_length or not hasattr(core, 'attention_weights'):
    raise config.ConfigError(
        f'attention of a {type(core).__name__} to its recurrence: expected a core that '
        "attends, and has one, such as SegmentTransformer with recurrence = 'xl'")


def recurrence_shares(network: distillation.DistillationNetwork,
                      inputs: distillation.Histories) -> np.ndarray:
  """Returns the share of attention that goes to a core's memory of earlier segments.

  It is `[B, N]`: for each history, which begins with `inputs` and has samples of
  `ActionSpace` as actions, and each whole segment, the mean over layers, heads and steps.
  """
  check_recurs(network.core)

  @tf.function(autograph=False)
  def follow(part, state):
    weights, _, keys = network.attention_weights(part, state)
    share = tf.reduce_sum(weights[..., :keys.count('cache')], axis=-1)
    return tf.reduce_mean(share, axis=[1, 2, 3, 4]), network(part, state)[1]

  num, num_steps = inputs.position.shape
  if num_steps < network.context_length:
    raise config.ConfigError(
        f'histories have {num_steps} steps: expected at least the {network.context_length} '
        'of a context')
  state, found = network.initial_state(num), []
  *seen, is_first, position = inputs
  for stop in range(network.context_length, num_steps + 1, network.context_length):
    start = stop - network.context_length
    share, state = follow(distillation.Histories(
        *tf.nest.map_structure(lambda x: x[:, start:stop + 1], seen),
        is_first[:, start:stop], position[:, start:stop]), state)
    found.append(share.numpy())
  return np.stack(found, axis=1)


def recurrence_curve(experiment: history_experiment.HistoryExperiment,
                     folder: run_folder.RunFolder) -> history_curves.Curve:
  """Plays learning processes; returns the share of attention on earlier segments."""
  network = experiment.restore_agent(folder.checkpoints).network
  check_recurs(network.core)  # Before anything is played.
  policy = experiment.make_policy(network)
  evaluator = experiment.make_evaluator(policy)
  evaluator.evaluate()
  shares = recurrence_shares(
      network, learning_processes.as_inputs(evaluator.played, network, policy))
  parts = np.array_split(np.arange(shares.shape[1]),
                         min(shares.shape[1], history_curves.NUM_BINS))
  return history_curves.summarize(
      np.array([network.context_length * (part[-1] + 1) for part in parts]),
      np.stack([shares[:, part].mean(axis=1) for part in parts], axis=1))


def draw(path: pathlib.Path, segment: Segment, title: str, by_head: bool = False) -> None:
  """Draws the weights of the batch's first row in a panel for each layer, or each head.

  Lines separate cache, memory tokens and steps. The empty part of the cache is left
  out. Without `by_head` the weights are averaged over heads. With one token per step,
  numbers label the steps.
  """
  weights = segment.weights[0]
  num_heads = weights.shape[1] if by_head else 1
  weights = (weights.reshape(-1, *weights.shape[2:]) if by_head
             else weights.mean(axis=1))
  empty = int(np.argmax(weights.any(axis=(0, 1))))
  num_panels, num_queries, num_keys = weights.shape
  width = min(8, 4 * (num_keys - empty) / num_queries)  # A panel's, in inches.
  num_columns = num_heads if by_head else min(num_panels, int(_WIDTH / width))
  num_rows = math.ceil(num_panels / num_columns)
  figure, panels = curves.pyplot().subplots(
      num_rows, num_columns, squeeze=False, layout='constrained',
      figsize=(width * num_columns + 1.5, 4.4 * num_rows + 0.5))
  for i, panel in enumerate(panels.flat):
    if i >= num_panels:
      panel.set_axis_off()
      continue
    image = panel.imshow(
        weights[i][:, empty:], cmap='viridis', aspect='auto',
        # Makes weights of a few hundredths visible beside a weight of 1.
        norm=colors.PowerNorm(0.5, vmin=0, vmax=1))
    head = f', head {i % num_heads + 1}' * by_head
    panel.set_title(f'layer {i // num_heads + 1}{head}', fontsize='small')
    _label(panel.xaxis, panel.axvline, segment.keys[empty:], segment.tokens_per_step)
    _label(panel.yaxis, panel.axhline, segment.queries, segment.tokens_per_step)
    panel.set_xlabel('attended to')
    panel.set_ylabel('attending')
  label = 'attention weight' + ', mean over heads' * (not by_head)
  figure.colorbar(image, ax=panels, label=label)
  figure.suptitle(title)
  figure.savefig(path, dpi=120)
  curves.pyplot().close(figure)


def _label(axis, draw_line, kinds: Sequence[str], tokens_per_step: int) -> None:
  """Names the groups of tokens along an axis, and each token if there is room."""
  starts = [i for i, kind in enumerate(kinds) if i == 0 or kinds[i - 1] != kind]
  for start in starts[1:]:
    draw_line(start - 0.5, color='white', linewidth=1)
  ends = [*starts[1:], len(kinds)]
  axis.set_ticks([(start + end - 1) / 2 for start, end in zip(starts, ends)],
                 [kinds[start] for start in starts])
  axis.set_tick_params(length=0)
  if len(kinds) <= _MOST_LABELS:
    axis.remove_overlapping_locs = False  # A group's name would hide a token's.
    axis.set_ticks(range(len(kinds)), _tokens(kinds, tokens_per_step), minor=True,
                   fontsize=6)
    axis.set_tick_params(pad=14)


def _tokens(kinds: Sequence[str], tokens_per_step: int) -> List[str]:
  """Returns labels: R, o and a of a step, or its number; m of memory; none of the cache."""
  num_steps = kinds.count('step')
  every = 5 if len(kinds) > _MOST_NUMBERS else 1  # There is no room for all numbers.
  names = iter('Roa' * num_steps if tokens_per_step > 1 else [
      '' if i % every else str(i) for i in range(num_steps)])
  return [next(names) if kind == 'step' else '' if kind == 'cache' else 'm' for kind in kinds]


def draw_run(folder: run_folder.RunFolder, episode: int) -> None:
  """Draws into ROOT/attention/ and prints a line for each picture.

  The episode is one of the run's dataset or, if the run is online, of those that its
  policy plays. A model that learns while it acts plays learning processes instead.
  """
  experiment = prepare.prepare([str(folder.config)], [])
  pictures, name = folder.root / 'attention', folder.root.name
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
  check_attends(network)  # Before anything is played.
  if experiment.is_online:
    inputs = films.play(experiment, experiment.make_policy(network), episode + 1,
                        film=False, most_steps=MOST_STEPS)[episode].inputs
  else:
    inputs = experiment.episode(network.action_space, episode)
  pictures.mkdir(exist_ok=True)
  for i, segment in enumerate(attend(network, inputs)):
    part = f'episode_{episode}' if experiment.is_online else f'segment_{i}'
    for by_head in False, True:
      draw(pictures / f'{part}{"_heads" * by_head}.png', segment,
           f'{name}, {part.replace("_", " ")}', by_head)
    steps = np.array(segment.queries) == 'step'
    print(f'{pictures}/{part}.png: ' + (
        f'{np.sum(steps)} steps, attention goes {mean_distance(segment):.1f} steps back on '
        'average' if experiment.is_online else ', '.join(
            f'{kind} {np.mean(share[..., steps]):.3f}'
            for kind, share in shares(segment).items())))
