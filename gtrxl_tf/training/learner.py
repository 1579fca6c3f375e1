"""The learner: one class for every objective and every strategy."""

import contextlib
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple, Union

from absl import logging
import numpy as np
import tensorflow as tf

from gtrxl_tf.agents import agent as agent_lib
from gtrxl_tf.settings import config
from gtrxl_tf.settings import errors
from gtrxl_tf.training import devices

Optimizer = Union[tf.keras.optimizers.legacy.Optimizer, tf.keras.optimizers.Optimizer]


class Diverged(errors.RunFailed):
  """The loss or a gradient is not finite."""


class StepFailed(errors.RunFailed):
  """A step could not be taken: a device or another worker is gone."""


# The errors of TensorFlow if a device or another worker is gone.
_DEVICE_ERRORS = (
    RuntimeError, tf.errors.AbortedError, tf.errors.CancelledError,
    tf.errors.DeadlineExceededError, tf.errors.UnavailableError)


@contextlib.contextmanager
def device_errors(step: int) -> Iterator[None]:
  """Raises `StepFailed` if a device or another worker fails in a learner step.

  The Reverb server's errors have the same types, and trainers wait for it to come back.
  """
  try:
    yield
  except _DEVICE_ERRORS as error:
    if not isinstance(error, tf.errors.OpError):
      logging.error('learner step %d', step, exc_info=True)  # Perhaps a fault in a loss.
    raise StepFailed(f'learner step {step}: {config.one_line(error)}') from error


class Metrics(Mapping[str, Any]):
  """The metrics of a gradient step: scalars, and perhaps the agent's `carried`.

  The scalars stay one vector on the device until they are read, since a tensor that
  reaches Python costs time, and memory that TensorFlow 2.15 does not free on Python 3.11.
  """

  def __init__(self, names: Sequence[str], scalars: tf.Tensor, rest: Mapping[str, Any]):
    self._names = names  # The names of the scalars.
    self._scalars = scalars
    self._rest = rest

  def __getitem__(self, name: str) -> Any:
    if name in self._rest:
      return self._rest[name]
    if name not in self._names:
      raise KeyError(name)
    return self._scalars[self._names.index(name)]

  def __iter__(self) -> Iterator[str]:
    return iter((*self._names, *self._rest))

  def __len__(self) -> int:
    return len(self._names) + len(self._rest)

  def numbers(self) -> Dict[str, float]:
    """Returns the scalars as numbers; waits for the step."""
    return dict(zip(self._names, self._scalars.numpy().tolist()))


class Learner:
  """Takes gradient steps under any `tf.distribute` strategy, each in one compiled call.

  Agent and optimizer must be made in the strategy's scope. The agent's loss on a
  replica is that replica's share of the loss of the global batch, and gradients are
  summed, so that N replicas take the step that one replica would take.

  A learner step uses a batch completely: it takes `num_epochs` times `num_minibatches`
  gradient steps. In each of them the agent computes its loss, and with it advantages
  and value targets, with the newest weights. With one minibatch, each gradient step
  uses all rows; otherwise, each epoch divides each replica's rows at random.

  Attributes:
    agent: the agent.
  """

  def __init__(self, agent: agent_lib.Agent, optimizer: Optimizer,
               strategy: tf.distribute.Strategy,
               clip_norm: Optional[float] = None, num_epochs: int = 1,
               num_minibatches: int = 1, seed: int = 0):
    """Creates the learner and the optimizer's variables.

    Args:
      agent: gives the loss.
      optimizer: takes the steps.
      strategy: distributes the steps.
      clip_norm: the norm to which the gradient of the global batch is clipped; None
        for no clipping.
      num_epochs: how often a learner step uses each row of its batch.
      num_minibatches: gradient steps of an epoch; it divides the rows of a replica.
      seed: seeds the minibatches, together with the number of the learner step.
    """
    self.agent = agent
    self._optimizer = optimizer
    self._strategy = strategy
    self._clip_norm = clip_norm
    self._num_epochs = num_epochs
    self._num_minibatches = num_minibatches
    self._seed = seed
    with strategy.scope():
      # Variables are made here and not in the first step, so that a checkpoint
      # restores them.
      optimizer.iterations  # pylint: disable=pointless-statement
      if isinstance(optimizer, tf.keras.optimizers.legacy.Optimizer):
        # pylint: disable-next=protected-access
        optimizer._create_all_weights(agent.learned_variables)
      else:
        optimizer.build(agent.learned_variables)
    self._step = tf.function(self._packed_step, autograph=False)
    self._loop = tf.function(self._packed_loop, autograph=False)
    self._names: Sequence[str] = ()  # The scalar metrics' names, once traced.
    self._executor = ''  # TensorFlow's usual one.

  @property
  def steps(self) -> int:
    """How many learner steps have been taken."""
    gradient_steps = int(self._optimizer.iterations.numpy())
    return gradient_steps // (self._num_epochs * self._num_minibatches)

  def prepare(self, batch_spec: Any) -> None:
    """Traces the step on one replica for batches of a spec; no variable changes.

    Otherwise the first step does this; with several replicas it always does.

    Args:
      batch_spec: nest of tensor specs.
    """
    if self._strategy.num_replicas_in_sync > 1:
      return
    rows = None
    if self._num_minibatches > 1:
      num_rows = tf.nest.flatten(batch_spec)[0].shape[0]
      rows = tf.TensorSpec([num_rows // self._num_minibatches], tf.int32)
    self._executor = devices.executor_for(
        self._step.get_concrete_function(batch_spec, rows))

  def step(self, batch: Any) -> Metrics:
    """Takes a learner step on a batch; returns metrics of its last gradient step.

    These are scalars, and the agent's `carried`, if there is one, for all rows.
    """
    for rows in self._minibatches(batch):
      with tf.experimental.function_executor_type(self._executor):
        scalars, rest = self._step(batch, rows)
      rest = self.agent.after_step(rest)
    with self._strategy.scope():
      self.agent.after_batch(batch)
    return Metrics(self._names, scalars, rest)

  def several_steps(self, batches: Any, state: Any, count: int) -> Metrics:
    """Takes several learner steps in one call; returns metrics of the last one.

    They are the same steps that as many calls of `step` take. A call from Python takes
    as long as a small step on a fast device, and here there is only one. The state of
    agents that carry one stays on the devices from step to step.

    The agent is an `OfflineAgent`, and the learner has one epoch and one minibatch.

    Args:
      batches: nest of `[K, B, ...]`, as the function `devices.share_out` gives them.
        All calls have the same K, because the devices' code is compiled for it.
      state: the field `state` of the first batch, `[B, ...]`, shared out, too; the
        others get the metric `carried` of the step before. `()` if there is none.
      count: how many of the batches to use, at most K.
    """
    scalars, rest = self._loop(batches, state, tf.constant(count))
    return Metrics(self._names, scalars, rest)

  def _minibatches(self, batch: Any) -> Iterator[Optional[tf.Tensor]]:
    """Yields the rows that each gradient step uses on a replica; None for all."""
    if self._num_minibatches == 1:
      yield from [None] * self._num_epochs
      return
    random = np.random.default_rng([self._seed, self.steps])
    leaf = self._strategy.experimental_local_results(tf.nest.flatten(batch)[0])[0]
    if leaf.shape[0] % self._num_minibatches:
      raise config.ConfigError(
          f'num_minibatches = {self._num_minibatches}: expected a divisor of the '
          f'{leaf.shape[0]} rows of a replica')
    for _ in range(self._num_epochs):
      order = random.permutation(leaf.shape[0]).astype(np.int32)
      yield from map(tf.constant, np.split(order, self._num_minibatches))

  def device_step(self, batch: Any, rows: Optional[tf.Tensor] = None
                  ) -> Dict[str, Any]:
    """Runs the compiled part of a gradient step, on the given rows of each replica."""
    metrics = self._strategy.run(self._replica_step, (batch, rows))
    carried = {'carried': metrics.pop('carried')} if 'carried' in metrics else {}
    return {**self._sum(metrics), **tf.nest.map_structure(self._gather, carried)}

  def _sum(self, metrics: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the sums over replicas."""
    return tf.nest.map_structure(
        lambda x: self._strategy.reduce(tf.distribute.ReduceOp.SUM, x, axis=None),
        metrics)

  def _packed_step(self, batch: Any, rows: Optional[tf.Tensor]
                   ) -> Tuple[tf.Tensor, Dict[str, Any]]:
    return self._pack(self.device_step(batch, rows))

  def _pack(self, metrics: Dict[str, Any]) -> Tuple[tf.Tensor, Dict[str, Any]]:
    """Returns the scalars as a vector, and the other metrics."""
    self._names = [name for name, x in metrics.items()
                   if tf.is_tensor(x) and x.shape.rank == 0]
    scalars = tf.stack([tf.cast(metrics.pop(name), tf.float32) for name in self._names])
    return scalars, metrics

  def _packed_loop(self, batches: Any, state: Any, count: tf.Tensor
                   ) -> Tuple[tf.Tensor, Dict[str, Any]]:
    """Takes several steps in the graph; returns the last one's packed metrics."""
    def replica_step(batches, state, i):
      batch = tf.nest.map_structure(lambda x: x[i], batches)
      return self._replica_step(batch._replace(state=state) if carries else batch, None)

    def body(i, scalars, state):
      metrics = self._strategy.run(replica_step, (batches, state, i))
      state = metrics.pop('carried', state)
      scalars, rest = self._pack(self._sum(metrics))
      self.agent.after_step(rest)
      return i + 1, scalars, state

    carries = bool(tf.nest.flatten(state))
    _, scalars, state = tf.while_loop(
        lambda i, *_: i < count, body, (0, tf.zeros([0]), state),
        (tf.TensorSpec([], tf.int32), tf.TensorSpec([None]),
         tf.nest.map_structure(tf.type_spec_from_value, state)))
    return scalars, (
        {'carried': tf.nest.map_structure(self._gather, state)} if carries else {})

  def _gather(self, x):
    """Returns the rows of all replicas."""
    own = self._strategy.experimental_local_results(x)[0]
    if own.shape.num_elements() == 0:
      # TensorFlow 2.15 crashes where workers gather nothing.
      rows = own.shape[0] * self._strategy.num_replicas_in_sync
      return tf.zeros([rows, *own.shape[1:]], own.dtype)
    if own.dtype != tf.bool:
      return self._strategy.gather(x, axis=0)
    # Workers gather numbers only.
    x = self._strategy.run(tf.cast, (x, tf.int32))
    return tf.cast(self._strategy.gather(x, axis=0), tf.bool)

  def _replica_step(self, batch, rows):
    if rows is not None:
      batch = tf.nest.map_structure(lambda x: tf.gather(x, rows), batch)
    variables = self.agent.learned_variables
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(variables)
      loss, metrics = self.agent.loss(batch)
    # The gradient of a lookup comes as slices, which have no norm or static shape.
    gradients = [x if x is None else tf.convert_to_tensor(x)
                 for x in tape.gradient(loss, variables)]
    context = tf.distribute.get_replica_context()
    num_replicas = context.num_replicas_in_sync
    if num_replicas > 1:
      # A variable that the loss does not use has no gradient on any replica.
      some = [x for x in gradients if x is not None]
      summed = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, some))
      gradients = [x if x is None else next(summed) for x in gradients]
    # A norm that is not finite means that the weights will not be, even where the loss
    # is finite. It is divided by the number of replicas because metrics are summed.
    norm = tf.linalg.global_norm(gradients)
    if self._clip_norm is not None:
      gradients, _ = tf.clip_by_global_norm(gradients, self._clip_norm, use_norm=norm)
    # Gradients are summed already.
    if isinstance(self._optimizer, tf.keras.optimizers.legacy.Optimizer):
      options = {'experimental_aggregate_gradients': False}
    else:
      options = {'skip_gradients_aggregation': True}
    self._optimizer.apply_gradients(zip(gradients, variables), **options)
    return {**metrics, 'gradient_norm': norm / num_replicas}
