"""A policy that steps the environments of many requests at once."""

import itertools
from typing import Any, Dict, List, Optional, Sequence

import dm_env
import tensorflow as tf

from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.networks import tensor_specs
from gtrxl_tf.training import rollout
from gtrxl_tf.training.online import actor

# TensorFlow keeps batchers by name, and all graphs of a process share them.
_numbers = itertools.count()


class BatchedPolicy:
  """Steps a policy for batches of requests, each of which has E environments.

  The policy's state has a row for each environment. A step gathers the rows of a batch,
  and writes back what has changed. TensorFlow's batcher collects the requests. There is
  one batcher for each version of the weights, so that a request is answered by the
  weights that it asks for, whichever have come since.

  `act` and `refresh` are for graphs that answer requests: they add operations to them.

  Attributes:
    batch_sizes: the numbers of rows that a step takes. A batch is filled up to one.
  """

  def __init__(self, policies: Sequence[policy_lib.ActorCriticPolicy], num_rows: int,
               request_rows: int, max_batch: Optional[int], max_wait_ms: float,
               seeds: Sequence[int], device: Optional[str] = None):
    """Reserves the memory.

    Args:
      policies: one for each version of the weights, with equal networks and records.
      num_rows: environments that have a memory, a multiple of `request_rows`.
      request_rows: E.
      max_batch: the most rows of a batch; None for all.
      max_wait_ms: see `placement.Inference`.
      seeds: seeds of the samples, an int32 for each version.
      device: the device of the memory and of the steps; by default TensorFlow's. The
        networks' variables are there too.
    """
    self._device = device
    self._policies = policies
    self._num_rows = num_rows
    first = policies[0]
    with tf.device(device):
      self._state = tf.nest.map_structure(
          lambda x: tf.Variable(x, trainable=False), self._initial_state())
      # Not int32, in which a GPU does not add.
      self._seeds = [
          tf.Variable([seed, 0], dtype=tf.int64, trainable=False) for seed in seeds]
      self._counts = [tf.Variable(0, dtype=tf.int64, trainable=False) for _ in range(2)]
      self._seconds = tf.Variable(0.0, dtype=tf.float64, trainable=False)
    self._name = f'policy_{next(_numbers)}'
    self._max_wait_us = round(1000 * max_wait_ms)
    self.batch_sizes = _batch_sizes(
        request_rows, min(num_rows, max(max_batch or num_rows, request_rows)))
    self._max_waiting = num_rows // request_rows
    self._answer_spec = (first.action_spec, first.policy_state_spec.previous_action,
                         first.info_spec)
    self._trace(jit_compile=True)

  def load(self, version: int, variables: Sequence[tf.Variable]) -> None:
    """Sets the weights of a version that is answering no request."""
    for mine, variable in zip(self._policies[version].variables, variables):
      mine.assign(variable)

  def counts(self) -> Dict[str, float]:
    """Returns the numbers of batches and of rows so far, and the seconds of steps."""
    batches, rows = (int(x) for x in self._counts)
    return dict(batches=batches, rows=rows, seconds=float(self._seconds))

  def unflatten(self, leaves: Sequence[Any]) -> Any:
    """Returns the action, the sample and the `PolicyInfo` of what `act` returns."""
    return tf.nest.pack_sequence_as(self._answer_spec, leaves)

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
    for version, policy in enumerate(self._policies):
      for size in self.batch_sizes:
        num = min(size, self._num_rows)  # The rest is filled.
        self.act(tf.constant(version), tf.range(num),
                 tensor_specs.zeros(policy.time_step_spec, [num]))

  def _initial_state(self) -> Any:
    # The last row is for the rows that fill a batch.
    return self._policies[0].get_initial_state(self._num_rows + 1)

  def _trace(self, jit_compile: Optional[bool]) -> None:
    """Makes the graph. One graph serves all: another would be compiled again."""
    time_step = tensor_specs.with_batch(self._policies[0].time_step_spec)
    self._steps = [self._compiled(policy, jit_compile) for policy in self._policies]
    self._batched = tf.function(self._request, autograph=False).get_concrete_function(
        tf.TensorSpec([], tf.int32), tf.TensorSpec([None], tf.int32), time_step)

  def _compiled(self, policy: policy_lib.ActorCriticPolicy, jit_compile: Optional[bool]
                ) -> Any:
    """Compiles the step of a policy.

    It returns the leaves of the state, None where unchanged; whether the state must be
    moved; and the answer.
    """
    def step(state, seed, time_step):
      policy_step = policy.unmoved_action(time_step, state, seed)
      # XLA would copy what has not changed.
      leaves = [None if x is y else x
                for x, y in zip(*map(tf.nest.flatten, (policy_step.state, state)))]
      return (leaves, policy.must_move(policy_step.state),
              tf.nest.flatten((policy_step.action, policy_step.state.previous_action,
                               policy_step.info)))
    # A batch is of any size.
    with tf.device(self._device):
      return tf.function(
          step, autograph=False, jit_compile=jit_compile).get_concrete_function(
              tensor_specs.with_batch(policy.policy_state_spec),
              tf.TensorSpec([2], tf.int32),
              tensor_specs.with_batch(policy.time_step_spec))

  def act(self, version: tf.Tensor, rows: tf.Tensor, time_step: dm_env.TimeStep
          ) -> List[tf.Tensor]:
    """Adds a request to a batch; returns its answer when the batch has been stepped.

    Args:
      version: which weights act.
      rows: int32 `[E]`, the rows of the request's environments. No other request that
        is being answered has one of them.
      time_step: tensors `[E, ...]`.

    Returns:
      The answer, see `unflatten`.
    """
    return self._batched(version, rows, time_step)

  def _request(self, version: tf.Tensor, rows: tf.Tensor, time_step: dm_env.TimeStep
               ) -> List[tf.Tensor]:
    inputs = [rows, *tf.nest.flatten(time_step)]

    def request(i):
      # The batcher must be on the device of the variables that its function uses.
      with tf.name_scope(f'{self._name}_{i}'), tf.device(self._device):
        return tf.nondifferentiable_batch_function(
            1, self.batch_sizes[-1], self._max_wait_us, self.batch_sizes,
            max_enqueued_batches=self._max_waiting, autograph=False,
            enable_large_batch_splitting=False)(
                lambda *batch: self._step(i, batch[0], tf.nest.pack_sequence_as(
                    time_step, batch[1:])))(*inputs)

    answer = tf.switch_case(
        version, [lambda i=i: request(i) for i in range(len(self._policies))])
    return [tf.ensure_shape(x, [None, *spec.shape])
            for x, spec in zip(answer, tf.nest.flatten(self._answer_spec))]

  def _step(self, version: int, rows: tf.Tensor, time_step: dm_env.TimeStep
            ) -> List[tf.Tensor]:
    """Steps the rows of a batch."""
    began = tf.timestamp()
    with tf.control_dependencies([began]):
      # TensorFlow fills a batch with copies of its first row.
      is_copy = (tf.range(tf.shape(rows)[0]) > 0) & (rows == rows[0])
      size = tf.reduce_sum(tf.cast(~is_copy, tf.int64))
      rows = tf.where(is_copy, self._num_rows, rows)
      for variable, count in zip(self._counts, (1, size)):
        variable.assign_add(tf.cast(count, tf.int64))
      seed = tf.cast(self._seeds[version].assign_add([0, 1]), tf.int32)
      with tf.device(self._device):
        state = self._read(rows)
        changed, moves, answer = self._steps[version](state, seed, time_step)
        new = tf.nest.pack_sequence_as(state, [
            old if x is None else x for x, old in zip(changed, tf.nest.flatten(state))])
        self._write(rows, state, new)
        tf.cond(moves, lambda: self._write(
            rows, new, self._policies[version].move(new)), tf.no_op)
    with tf.control_dependencies(answer):
      self._seconds.assign_add(tf.timestamp() - began)
    return answer

  def refresh(self, version: tf.Tensor, rows: tf.Tensor, records: Any,
              step_types: tf.Tensor) -> None:
    """Rebuilds the caches of some environments by the weights of a version.

    Args:
      version: which weights act from now on.
      rows: int32 `[E]`.
      records: `[E, M, ...]`, see `ActorCriticPolicy.refreshed`.
      step_types: int32 `[E, M]`.
    """
    def write(policy):
      with tf.device(self._device):
        state = self._read(rows)
        self._write(rows, state, policy.refreshed(
            state, records, step_types == int(dm_env.StepType.FIRST)))
      return tf.constant(0)
    tf.switch_case(version, [lambda x=x: write(x) for x in self._policies])

  def _read(self, rows: tf.Tensor) -> Any:
    return tf.nest.map_structure(lambda x: x.sparse_read(rows), self._state)

  def _write(self, rows: tf.Tensor, old: Any, new: Any) -> tf.Operation:
    """Writes only the tensors of `new` that are not the same objects in `old`."""
    for variable, x, y in zip(*map(tf.nest.flatten, (self._state, old, new))):
      if x is not y:
        variable.scatter_update(tf.IndexedSlices(y, rows))
    return tf.no_op()


def _batch_sizes(request_rows: int, most: int) -> List[int]:
  """Returns multiples of a request's rows, each twice the one before, and the most."""
  most -= most % request_rows
  sizes = [most]
  while sizes[0] > request_rows:
    half = sizes[0] // 2
    sizes.insert(0, half + -half % request_rows)
  return sorted({max(size, actor.MIN_ROWS) for size in sizes})
