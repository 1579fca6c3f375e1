"""The learner: one class for every objective and every strategy."""

import math
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple, Union

import tensorflow as tf
from typing_extensions import Protocol


Optimizer = Union[tf.keras.optimizers.legacy.Optimizer, tf.keras.optimizers.Optimizer]


class Diverged(Exception):
  """Loss or gradient is not finite."""


class StepFailed(Exception):
  """A step could not be taken: a device, or another worker, is gone."""


def check_finite(metrics: Mapping[str, Any], step: int, checkpoint: Optional[str]
                 ) -> Dict[str, float]:
  """The metrics of a learner step as numbers, without what is `carried`.

  Args:
    metrics: of `Learner.step`.
    step: its number.
    checkpoint: the newest, which is from before it.

  Raises:
    Diverged: they are not all finite.
  """
  values = {name: float(value) for name, value in metrics.items()
            if name != 'carried'}
  if not all(map(math.isfinite, values.values())):
    text = ', '.join(f'{name} = {value:g}' for name, value in values.items())
    raise Diverged(f'loss or gradient is not finite at learner step {step}: {text}; '
                   f'the last good checkpoint is {checkpoint or "none"}')
  return values


class Agent(Protocol):
  """What the learner needs of an agent."""

  @property
  def learned_variables(self) -> Sequence[tf.Variable]:
    """What the optimizer changes."""

  def loss(self, batch: Any) -> Tuple[tf.Tensor, Dict[str, Any]]:
    """The scalar to minimize, and metrics; of replicas, each one's share.

    One metric is no sum over replicas: `carried`, if it is there, is a nest of what the
    batch's rows leave, `[B, ...]`.
    """

  def after_step(self, metrics: Dict[str, Any]) -> Dict[str, tf.Tensor]:
    """Called after each step with its metrics, summed over replicas; returns the
    scalars among them."""


class Learner:
  """Takes gradient steps under any `tf.distribute` strategy, in one compiled call.

  Make agent and optimizer in the strategy's scope. The agent's loss on a replica is
  that replica's share of the global batch's, and gradients are summed, so that N
  replicas take the step that one would take.
  """

  def __init__(self, agent: Agent, optimizer: Optimizer,
               strategy: tf.distribute.Strategy,
               clip_norm: Optional[float] = None):
    """Creates the learner, and the optimizer's variables.

    Args:
      agent: gives the loss.
      optimizer: takes the steps.
      strategy: how they are distributed.
      clip_norm: the norm that the whole gradient, of the global batch, is clipped to.
    """
    self._agent = agent
    self._optimizer = optimizer
    self._strategy = strategy
    self._clip_norm = clip_norm
    with strategy.scope():
      # Here and not in the first step, so that a checkpoint restores them.
      optimizer.iterations  # pylint: disable=pointless-statement
      if isinstance(optimizer, tf.keras.optimizers.legacy.Optimizer):
        # pylint: disable-next=protected-access
        optimizer._create_all_weights(agent.learned_variables)
      else:
        optimizer.build(agent.learned_variables)
    self._step = tf.function(self.device_step, autograph=False)

  @property
  def steps(self) -> int:
    """How many steps were taken."""
    return int(self._optimizer.iterations.numpy())

  def step(self, batch: Any) -> Dict[str, Any]:
    """Takes a step on a batch; returns the metrics of the global batch.

    They are scalars, and the agent's `carried`, if there is one, of all rows.
    """
    return self._agent.after_step(self._step(batch))

  def device_step(self, batch: Any) -> Dict[str, Any]:
    """The part of `step` that is compiled: all but the agent's `after_step`."""
    metrics = self._strategy.run(self._replica_step, (batch,))
    carried = {'carried': metrics.pop('carried')} if 'carried' in metrics else {}
    summed = tf.nest.map_structure(
        lambda x: self._strategy.reduce(tf.distribute.ReduceOp.SUM, x, axis=None),
        metrics)
    return {**summed, **tf.nest.map_structure(self._gather, carried)}

  def _gather(self, x):
    """The rows of all replicas."""
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

  def _replica_step(self, batch):
    variables = self._agent.learned_variables
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(variables)
      loss, metrics = self._agent.loss(batch)
    # Slices, as a lookup's gradient comes in, have no norm and no static shape.
    gradients = [x if x is None else tf.convert_to_tensor(x)
                 for x in tape.gradient(loss, variables)]
    context = tf.distribute.get_replica_context()
    num_replicas = context.num_replicas_in_sync
    if num_replicas > 1:
      # What has no part in the loss has no gradient, on no replica.
      some = [x for x in gradients if x is not None]
      summed = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, some))
      gradients = [x if x is None else next(summed) for x in gradients]
    # A norm that is not finite tells of weights that will not be, also where the loss
    # is. The sum over replicas is to be the norm.
    norm = tf.linalg.global_norm(gradients)
    if self._clip_norm is not None:
      gradients, _ = tf.clip_by_global_norm(gradients, self._clip_norm, use_norm=norm)
    aggregated = 'experimental_aggregate_gradients' if isinstance(
        self._optimizer, tf.keras.optimizers.legacy.Optimizer
    ) else 'skip_gradients_aggregation'
    self._optimizer.apply_gradients(
        zip(gradients, variables), **{aggregated: aggregated.startswith('skip')})
    return {**metrics, 'gradient_norm': norm / num_replicas}
