"""A policy that steps the environments of many actors at once."""

import time
from typing import Any, Dict, List, Optional, Sequence

import dm_env
import numpy as np
import tensorflow as tf

from gtrxl_tf import nests
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.networks import tensor_specs
from gtrxl_tf.training import rollout
from gtrxl_tf.training.online import actor


class BatchedPolicy:
  """Steps a policy for batches of actors, each of which has E environments.

  The policy's state has a row for each environment. A step gathers the rows of a batch,
  and writes back what has changed.

  Attributes:
    batch_sizes: the numbers of rows that a step takes. A batch is filled up to one.
    counts: the numbers of batches and of rows so far, and the seconds of steps.
  """

  def __init__(self, policies: Sequence[policy_lib.ActorCriticPolicy], num_rows: int,
               actor_rows: int, max_batch: Optional[int], seeds: Sequence[int],
               device: Optional[str] = None):
    """Reserves the memory.

    Args:
      policies: one for each version of the weights, with equal networks and records.
      num_rows: environments that have a memory, a multiple of `actor_rows`.
      actor_rows: E.
      max_batch: the most rows of a batch; None for all.
      seeds: seeds of the samples, an int32 for each version.
      device: the device of the memory and of the steps; by default TensorFlow's. The
        networks' variables are there too.
    """
    self._device = device
    self._policies = policies
    self._num_rows = num_rows
    self._seeds = [[seed, 0] for seed in seeds]
    with tf.device(device):
      self._state = tf.nest.map_structure(
          lambda x: tf.Variable(x, trainable=False), self._initial_state())
    self.batch_sizes = _batch_sizes(
        actor_rows, min(num_rows, max(max_batch or num_rows, actor_rows)))
    self.counts: Dict[str, float] = dict(batches=0, rows=0, seconds=0.0)
    self._refresh = tf.function(self._write_refreshed, autograph=False)
    self._trace(jit_compile=True)

  def _initial_state(self) -> Any:
    # The last row is for the rows that fill a batch.
    return self._policies[0].get_initial_state(self._num_rows + 1)

  def load(self, version: int, variables: Sequence[tf.Variable]) -> None:
    """Sets the weights of a version, with which no unroll acts."""
    for mine, variable in zip(self._policies[version].variables, variables):
      mine.assign(variable)

  def warm_up(self) -> None:
    """Compiles the steps for all sizes of batches, and begins with an empty memory.

    A policy with an operation that XLA does not have is compiled without XLA.

    Raises:
      ValueError: the policy cannot act on these observations.
    """
    try:
      self._step_all_sizes()
    except tf.errors.InvalidArgumentError as error:
      rollout.warn_without_xla(error)
      self._trace(jit_compile=None)
      self._step_all_sizes()
    tf.nest.map_structure(lambda x, y: x.assign(y), self._state, self._initial_state())

  def _step_all_sizes(self) -> None:
    spec = self._policies[0].time_step_spec
    for version in range(len(self._policies)):
      for size in self.batch_sizes:
        num = min(size, self._num_rows)  # The rest is filled.
        self.step(version, np.arange(num), tf.nest.map_structure(
            lambda x: x.numpy(), tensor_specs.zeros(spec, [num])))

  def _trace(self, jit_compile: Optional[bool]) -> None:
    self._steps = [self._make_step(policy, jit_compile) for policy in self._policies]

  def _make_step(self, policy: policy_lib.ActorCriticPolicy, jit_compile: Optional[bool]
                 ) -> Any:
    """Returns a function that steps some rows, and returns what acts in them."""
    @tf.function(autograph=False, jit_compile=jit_compile)
    def compiled(state, seed, time_step):
      policy_step = policy.unmoved_action(time_step, state, seed)
      # XLA would copy what has not changed.
      leaves = [None if x is y else x
                for x, y in zip(*map(tf.nest.flatten, (policy_step.state, state)))]
      return (leaves, policy.must_move(policy_step.state),
              (policy_step.action, policy_step.state.previous_action, policy_step.info))

    @tf.function(autograph=False)
    def step(rows, seed, time_step):
      state = self._read(rows)
      changed, moves, answer = compiled(state, seed, time_step)
      new = tf.nest.pack_sequence_as(state, [
          old if x is None else x for x, old in zip(changed, tf.nest.flatten(state))])
      self._write(rows, state, new)
      tf.cond(moves, lambda: self._write(rows, new, policy.move(new)), tf.no_op)
      return answer

    return step

  def step(self, version: int, rows: np.ndarray, time_step: dm_env.TimeStep) -> Any:
    """Steps the policy.

    Args:
      version: which weights act.
      rows: `[N]`, the rows of the environments; N is at most the last of `batch_sizes`.
      time_step: arrays `[N, ...]`.

    Returns:
      The actions, the samples and the `PolicyInfo`, arrays `[N, ...]`.
    """
    began = time.monotonic()
    num = len(rows)
    filled = next(size for size in self.batch_sizes if size >= num) - num
    self._seeds[version][1] += 1
    with tf.device(self._device):
      inputs = tf.nest.map_structure(tf.constant, (
          np.concatenate([rows, [self._num_rows] * filled]).astype(np.int32),
          np.array(self._seeds[version], np.int32), tf.nest.map_structure(
              lambda x: np.concatenate([x, np.zeros([filled, *x.shape[1:]], x.dtype)]),
              time_step)))
      outputs = self._steps[version](*inputs)
    answer = tf.nest.map_structure(lambda x: x.numpy()[:num], outputs)
    nests.free_attributes(tf.nest.flatten((inputs, outputs)))
    self.counts['batches'] += 1
    self.counts['rows'] += num
    self.counts['seconds'] += time.monotonic() - began
    return answer

  def refresh(self, version: int, rows: np.ndarray, records: Any, step_types: np.ndarray
              ) -> None:
    """Rebuilds the caches of some environments by the weights of a version.

    Args:
      version: which weights act from now on.
      rows: `[E]`.
      records: `[E, M, ...]`, see `ActorCriticPolicy.refreshed`.
      step_types: `[E, M]`.
    """
    with tf.device(self._device):
      inputs = tf.nest.map_structure(
          tf.constant, (rows.astype(np.int32), records, step_types))
      self._refresh(version, *inputs)
    nests.free_attributes(tf.nest.flatten(inputs))

  def _write_refreshed(self, version, rows, records, step_types):
    state = self._read(rows)
    self._write(rows, state, self._policies[version].refreshed(
        state, records, step_types == int(dm_env.StepType.FIRST)))

  def _read(self, rows: tf.Tensor) -> Any:
    return tf.nest.map_structure(lambda x: x.sparse_read(rows), self._state)

  def _write(self, rows: tf.Tensor, old: Any, new: Any) -> tf.Operation:
    """Writes only the tensors of `new` that are not the same objects in `old`."""
    for variable, x, y in zip(*map(tf.nest.flatten, (self._state, old, new))):
      if x is not y:
        variable.scatter_update(tf.IndexedSlices(y, rows))
    return tf.no_op()


def _batch_sizes(actor_rows: int, most: int) -> List[int]:
  """Returns multiples of an actor's rows, each twice the one before, and the most."""
  most -= most % actor_rows
  sizes = [most]
  while sizes[0] > actor_rows:
    half = sizes[0] // 2
    sizes.insert(0, half + -half % actor_rows)
  return sorted({max(size, actor.MIN_ROWS) for size in sizes})
