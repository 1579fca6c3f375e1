"""The structure of a queue item and of a learner's batch."""

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import dm_env
import tensorflow as tf
import tree

_SHOWN = 4  # The number of differences that a message shows.


class Unroll(NamedTuple):
  """T steps of acting and the observation after them, for E or B environments.

  Rows are dm_env time steps: reward, discount and step type arrive *with* observation
  t, as the result of the action at t - 1. The environment ignores the action of a LAST
  row; the row after it is FIRST.

  In an item the axes are `[time, E]`; `UnrollQueue` makes them `[B, time]`. The time axis
  has T + 1 rows of what the environment returns, T of what the actor does, and M of memory.
  """
  observation: Any            # [T+1, E, ...]
  step_type: tf.Tensor        # [M+T+1, E] int32: memory's rows, then the unroll's.
  reward: tf.Tensor           # [T+1, E]
  discount: tf.Tensor         # [T+1, E]
  action: Any                 # [T+1, E, ...]: rows -1 .. T-1, the previous actions as
                              # sampled, before clipping to the task's bounds.
  policy: Any                 # [T, E, ...]: the actor's policy, e.g. logits.
  record: Any                 # [M, E, ...]: the core's records of the M rows before,
                              # perhaps as `nests.to_half` makes them.
  episode_return: tf.Tensor   # [T, E]: rows 1 .. T; NaN except where an episode ended.
  episode_success: tf.Tensor  # [T, E]: the same.
  task: tf.Tensor             # [1, E] int32: the index of the task in the run.
  target_step: tf.Tensor      # [1]: the learner step whose weights acted.
  unroll_id: tf.Tensor        # [1]: unique.

  @property
  def memory_length(self) -> int:
    """M of a batch `[B, time]`."""
    return self.step_type.shape[1] - self.reward.shape[1]

  def is_first(self) -> tf.Tensor:
    """Returns where an episode begins, `[B, M+T+1]`."""
    return self.step_type == int(dm_env.StepType.FIRST)

  def is_last(self) -> tf.Tensor:
    """Returns where an episode ends, `[B, T+1]`."""
    return self.step_type[:, self.memory_length:] == int(dm_env.StepType.LAST)


class Layout(NamedTuple):
  """The sizes of what the processes of a run exchange.

  Attributes:
    row: the specs of what an actor with E environments writes at every step.
    unroll_length: T.
    memory_length: M.
    overlap: the actions that consecutive unrolls share, fewer than T.
    queue_size: the items that the queue holds; actors wait while it is full.
    num_actors: the number of actors.
    weights: the specs of the weights, see `weights.specs`.
    half_weights: whether weights have 16 bits.
  """
  row: Unroll
  unroll_length: int
  memory_length: int
  overlap: int = 0
  queue_size: int = 1
  num_actors: int = 1
  weights: Sequence[tf.TensorSpec] = ()
  half_weights: bool = False

  @property
  def before(self) -> int:
    """How many rows before its first one an unroll refers to."""
    return max(self.memory_length, 1)

  @property
  def windows(self) -> List[Tuple[int, int]]:
    """The `columns` of each leaf of a row."""
    windows = columns(self.unroll_length, self.memory_length)
    return [window for column, window in zip(self.row, windows)
            for _ in tree.flatten(column)]

  @property
  def signature(self) -> Unroll:
    """The specs of an unroll, `[time, E, ...]`; no `record` for a core without memory."""
    def specs(window, column):
      return tf.nest.map_structure(
          lambda x: tf.TensorSpec((window[1], *x.shape), x.dtype), column)
    return Unroll(*map(specs, columns(self.unroll_length, self.memory_length), self.row))


class Sample(NamedTuple):
  """A learner's batch from the replay table."""
  unroll: Unroll     # [B, time, ...], with E rows of each item.
  weight: tf.Tensor  # [B]: the loss is multiplied by it.


def columns(unroll_length: int, memory_length: int) -> Unroll:
  """Returns each column's rows as `(start, length)`, relative to the first row."""
  t, m = unroll_length, memory_length
  return Unroll(
      observation=(0, t + 1), step_type=(-m, m + t + 1), reward=(0, t + 1),
      discount=(0, t + 1), action=(-1, t + 1), policy=(0, t), record=(-m, m),
      episode_return=(1, t), episode_success=(1, t), task=(0, 1), target_step=(0, 1),
      unroll_id=(t, 1))


def batch_spec(items: Unroll, num_items: int) -> Unroll:
  """Returns the specs of a batch of items, `[num_items * E, time, ...]`."""
  def leaf(spec):
    time, *rest = spec.shape
    shape = [num_items * rest[0], time, *rest[1:]] if rest else [num_items, time]
    return tf.TensorSpec(shape, spec.dtype)
  return tf.nest.map_structure(leaf, items)


def misfit(ours: Any, expected: Any) -> Optional[str]:
  """Returns a line on how structure, shapes or dtypes of two nests of specs differ."""
  ours, expected = (
      {path: f'shape {tuple(leaf.shape)} and dtype {leaf.dtype.name}'
       for path, leaf in tree.flatten_with_path(nest)} for nest in (ours, expected))

  def name(path):
    return str(path[0]) + ''.join(f'[{key!r}]' for key in path[1:])

  differences = [
      *(f'{name(path)} is missing' for path in expected if path not in ours),
      *(f'{name(path)} was not expected' for path in ours if path not in expected),
      *(f'{name(path)} has {ours[path]}: expected {expected[path]}'
        for path in expected if ours.get(path, expected[path]) != expected[path])]
  return '; '.join(differences[:_SHOWN]) or None
