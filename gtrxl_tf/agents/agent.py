"""What learners and trainers require of agents, and the base of offline ones."""

import itertools
from typing import Any, Dict, Mapping, Protocol, Sequence, Tuple

import tensorflow as tf

from gtrxl_tf.settings import config


class Agent(Protocol):
  """An agent that a `Learner` can train."""

  @property
  def learned_variables(self) -> Sequence[tf.Variable]:
    """The variables that the optimizer changes."""

  def loss(self, batch: Any) -> Tuple[tf.Tensor, Dict[str, Any]]:
    """Returns the scalar to minimize, and metrics; on a replica, its share of both.

    The metric `carried`, if there is one, is not summed over replicas: it is a nest
    `[B, ...]` of what the trainer keeps for each row of the batch, which is the state
    at its end, or its priority.
    """

  def after_step(self, metrics: Dict[str, Any]) -> Dict[str, tf.Tensor]:
    """Updates anything but the learned variables, after each gradient step.

    Args:
      metrics: the metrics of `loss` that are not scalars, summed over replicas.

    Returns:
      The metrics that are for the trainer, such as `carried`.
    """

  def after_batch(self, batch: Any) -> None:
    """Updates what changes once per batch, after the batch's last gradient step.

    It is called in the scope of the learner's strategy.

    Args:
      batch: the global batch.
    """


def checked_loss(method: str, returned: Any) -> Tuple[tf.Tensor, Mapping[str, Any]]:
  """Returns what an agent's method returned: a scalar to minimize, and metrics.

  Args:
    method: the method's name, for the error.
    returned: what the method returned.
  """
  if not (isinstance(returned, tuple) and len(returned) == 2
          and isinstance(returned[1], Mapping)):
    raise config.ConfigError(f'{method} returns {type(returned).__name__}: expected a '
                             'pair of a loss and a dictionary of metrics')
  loss = returned[0]
  if not tf.is_tensor(loss):
    raise config.ConfigError(
        f'{method} returns a loss of type {type(loss).__name__}: expected a tensor')
  if loss.shape.rank or loss.dtype != tf.float32:
    raise config.ConfigError(f'{method} returns a loss of shape {loss.shape} and type '
                             f'{loss.dtype.name}: expected a float32 scalar')
  for name, metric in returned[1].items():
    for x in tf.nest.flatten(metric):
      if not tf.is_tensor(x):
        raise config.ConfigError(f'{method} returns a metric {name!r} of type '
                                 f'{type(x).__name__}: expected a tensor')
  return returned


def check_batch(batch: Any, kind: type) -> None:
  """Checks that a batch has the type that a loss takes."""
  if not isinstance(batch, kind):
    raise TypeError(f'the batch has type {type(batch).__name__}: expected '
                    f'{kind.__name__} (replay/unroll.py)')


def check_copy(network: tf.keras.layers.Layer, copy: tf.keras.layers.Layer) -> None:
  """Checks that a second network has the variables of the first, but shares none.

  They share some if one torso or core is in both.
  """
  ours = {variable.ref() for variable in network.variables}
  shared = [v.name for v in copy.variables if v.ref() in ours]
  if shared:
    raise config.ConfigError(
        f'two networks share {len(shared)} variables, such as {shared[0]}: expected a '
        'torso and a core of its own for each network. In Python, make them in the '
        'function that makes the network')
  if not ours:
    raise config.ConfigError('a network has no variables: expected an earlier '
                             'call of create_variables(observation_spec)')
  for one, other in itertools.zip_longest(network.variables, copy.variables):
    if one is None or other is None or one.shape != other.shape:
      found = ' and '.join(
          'nothing' if x is None else f'{x.name} {x.shape}' for x in (one, other))
      raise config.ConfigError(f'two networks have different variables, {found}: '
                               'expected the same settings for both')


class OfflineAgent(tf.Module):
  """The base of agents that train one network on recorded data.

  It is an `Agent` once a subclass has a `loss`. It updates nothing but what the
  optimizer changes; a subclass with target networks overrides `after_step`.
  """

  def __init__(self, name: str, network: tf.keras.layers.Layer):
    """Creates the agent.

    Args:
      name: the name of the module.
      network: the network that learns; its variables must exist.
    """
    super().__init__(name=name)
    self.network = network

  @property
  def learned_variables(self) -> Tuple[tf.Variable, ...]:
    """The variables that an optimizer changes."""
    return tuple(self.network.trainable_variables)

  def after_step(self, metrics: Dict[str, Any]) -> Dict[str, tf.Tensor]:
    """Returns the metrics."""
    return metrics

  def after_batch(self, batch: Any) -> None:
    """Does nothing."""


class OnlineAgent(Agent, Protocol):
  """An agent that an `OnlineTrainer` can train: actors play while it learns."""

  @property
  def acting_network(self) -> tf.keras.layers.Layer:
    """The network that actors, evaluators and the exported policy run."""

  @property
  def publish_period(self) -> int:
    """Learner steps between refreshes of the acting network.

    Each refresh is published to the actors.
    """

  @property
  def default_max_age(self) -> int:
    """The default maximum age, in learner steps, of data that is trained on.

    It is not read where `from_replay` is true.
    """

  @property
  def from_replay(self) -> bool:
    """Whether batches are a replay table's `Sample`s, instead of a queue's unrolls.

    The metric `carried` is then the unrolls' priorities.
    """

  def refresh_acting_network(self) -> None:
    """Copies the weights learned since the last refresh to the acting network."""

  def gauges(self) -> Dict[str, float]:
    """Returns numbers for `metrics.csv` that are not metrics of the loss."""
