"""What one item of the queue holds, and what a learner's batch is."""

import numbers
from typing import Any, NamedTuple, Optional

import dm_env
import tensorflow as tf
import tree

_SHOWN = 4  # Differences.


class Unroll(NamedTuple):
  """T steps of acting and the observation after them, for E or B environments.

  Rows are dm_env time steps: reward, discount and step type came *with* observation t,
  in answer to the action taken at t - 1. A LAST row's action is ignored by the
  environment; the row after it is FIRST.

  On Reverb the axes are `[time, E]`; `dataset.unrolls` makes them `[B, time]`. The
  time axis is T + 1 long for what the environment says, T for what the actor does, M
  for memory.
  """
  observation: Any            # [T+1, E, ...]
  step_type: tf.Tensor        # [M+T+1, E] int32: of memory's rows, then the unroll's.
  reward: tf.Tensor           # [T+1, E]
  discount: tf.Tensor         # [T+1, E]
  action: Any                 # [T+1, E, ...]: rows -1 .. T-1, the previous actions, as
                              # drawn: before they were clipped to the task's bounds.
  policy: Any                 # [T, E, ...]: what the actor's policy was, e.g. logits.
  record: Any                 # [M, E, ...]: the core's records of the M rows before.
  episode_return: tf.Tensor   # [T, E]: rows 1 .. T; NaN but where an episode ended.
  episode_success: tf.Tensor  # [T, E]: the same.
  task: tf.Tensor             # [1, E] int32: which of the run's tasks it is.
  target_step: tf.Tensor      # [1]: the learner step whose weights acted.
  unroll_id: tf.Tensor        # [1]: unlike any other's.

  @property
  def memory_length(self) -> int:
    """M of a batch `[B, time]`."""
    return self.step_type.shape[1] - self.reward.shape[1]

  def is_first(self) -> tf.Tensor:
    """`[B, M+T+1]`."""
    return self.step_type == int(dm_env.StepType.FIRST)

  def is_last(self) -> tf.Tensor:
    """`[B, T+1]`."""
    return self.step_type[:, self.memory_length:] == int(dm_env.StepType.LAST)


def columns(unroll_length: int, memory_length: int) -> Unroll:
  """`(start, length)` of each column's rows, from the unroll's first row on.

  Raises:
    ValueError: a length that is none.
  """
  for name, length, least in (('unroll_length', unroll_length, 1),
                              ('memory_length', memory_length, 0)):
    if (not isinstance(length, numbers.Integral) or isinstance(length, bool)
        or length < least):
      raise ValueError(f'{name} = {length!r}: expected an integer >= {least}')
  t, m = unroll_length, memory_length
  return Unroll(
      observation=(0, t + 1), step_type=(-m, m + t + 1), reward=(0, t + 1),
      discount=(0, t + 1), action=(-1, t + 1), policy=(0, t), record=(-m, m),
      episode_return=(1, t), episode_success=(1, t), task=(0, 1), target_step=(0, 1),
      unroll_id=(t, 1))


def signature(row: Unroll, unroll_length: int, memory_length: int) -> Unroll:
  """The queue's signature.

  Args:
    row: arrays or specs with the shapes and dtypes of what an actor with E
      environments writes at every step. A core without memory has no record.
    unroll_length: T.
    memory_length: M.
  """
  def rows_of(window, column):
    return tf.nest.map_structure(
        lambda x: tf.TensorSpec((window[1], *x.shape), x.dtype), column)
  return Unroll(*map(rows_of, columns(unroll_length, memory_length), row))


def misfit(found: Unroll, expected: Unroll) -> Optional[str]:
  """Where two unrolls' structures, shapes or dtypes differ, on one line; None if
  nowhere.

  Args:
    found: of arrays or specs.
    expected: the same.
  """
  found, expected = (
      {path: f'shape {tuple(leaf.shape)} and dtype {leaf.dtype.name}'
       if hasattr(leaf, 'shape') else f'no shape, being of type {type(leaf).__name__}'
       for path, leaf in tree.flatten_with_path(nest)} for nest in (found, expected))
  name = lambda path: str(path[0]) + ''.join(f'[{key!r}]' for key in path[1:])
  differences = [
      *(f'{name(path)} is missing' for path in expected if path not in found),
      *(f'{name(path)} was not expected' for path in found if path not in expected),
      *(f'{name(path)} has {found[path]}: expected {expected[path]}'
        for path in expected if found.get(path, expected[path]) != expected[path])]
  return '; '.join(differences[:_SHOWN]) or None
