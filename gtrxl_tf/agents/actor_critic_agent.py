"""The base classes of the agents that train an `ActorCritic` online."""

from typing import Any, Dict, NamedTuple, Tuple

import tensorflow as tf

from gtrxl_tf import nests
from gtrxl_tf.agents import agent as agent_lib
from gtrxl_tf.losses import averages
from gtrxl_tf.losses import pixel_control
from gtrxl_tf.losses import returns
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import predictor
from gtrxl_tf.replay import unroll
from gtrxl_tf.settings import config


class Steps(NamedTuple):
  """The inputs of a policy loss, for the T actions of each unroll."""
  policy: action_space.Policy  # [B, T, ...], of the online network.
  acting_policy: action_space.Policy  # [B, T, ...], of the network that acted.
  action: Any            # [B, T, ...], samples of the acting policy.
  advantages: tf.Tensor  # [B, T], in the units of the rewards.
  tasks: tf.Tensor       # [B].
  valid: tf.Tensor       # [B, T] bool; false at an episode's last step.
  batch: unroll.Unroll  # [B, time, ...]: the unrolls.


def inputs_and_state(network: actor_critic.ActorCritic, batch: unroll.Unroll
                     ) -> Tuple[actor_critic.NetworkInputs, Any]:
  """Returns a network's inputs `[B, T + 1, ...]` for unrolls, and the restored state."""
  memory_length, is_first = batch.memory_length, batch.is_first()
  inputs = actor_critic.NetworkInputs(
      observation=batch.observation, previous_action=batch.action, reward=batch.reward,
      is_first=is_first[:, memory_length:])
  return inputs, network.core.restore(
      nests.from_half(batch.record), is_first[:, :memory_length])


class NetworkPair(tf.Module):
  """An online network, which learns, and a target network, a copy that lags.

  Args:
    name: the name of the module.
    online: the network that learns; its variables must exist.
    target: a second network with the same settings; it becomes a copy.
  """

  def __init__(self, name: str, online: actor_critic.ActorCritic,
               target: actor_critic.ActorCritic):
    agent_lib.check_copy(online, target)
    super().__init__(name=name)
    self.online = online
    self.target = target
    # Without a graph, because TensorFlow warns when many agents make one each.
    self._copy_online()

  @property
  def learned_variables(self) -> Tuple[tf.Variable, ...]:
    """The variables that an optimizer changes: all but the target network's."""
    return tuple(self.online.trainable_variables)

  @tf.function(autograph=False)
  def update_target(self) -> None:
    """Copies the online network, with all statistics, to the target network."""
    self._copy_online()

  def _copy_online(self) -> None:
    for target, online in zip(self.target.variables, self.online.variables):
      target.assign(online)

  from_replay = False

  def gauges(self) -> Dict[str, float]:
    """Returns no gauges."""
    return {}

  def after_batch(self, batch: unroll.Unroll) -> None:
    """Adds a batch to the statistics of observations.

    They stay the same in all gradient steps of the batch. Otherwise the statistics
    alone would move the policy away from the one that acted.
    """
    if self.online.observation_statistics is not None:
      self._update_observations(batch.observation)

  @tf.function(autograph=False)
  def _update_observations(self, observation) -> None:
    """Updates the statistics with all steps `[B, T + 1, ...]` but the overlap."""
    strategy = tf.distribute.get_strategy()
    statistics = self.online.observation_statistics
    sums = strategy.run(lambda x: statistics.sums(
        tf.nest.map_structure(lambda x: x[:, :-1], x)), [observation])
    statistics.update(tf.nest.map_structure(
        lambda x: strategy.reduce(tf.distribute.ReduceOp.SUM, x, axis=None), sums))


class ActorCriticAgent(NetworkPair):
  """Two networks and their losses, except that of the policy, which subclasses add.

  The online network learns, and the target network, a copy that lags, acts. The value
  function of each unroll's task learns by regression on returns, in PopArt's normalized
  units if the network has PopArt. A network with a pixel-control head also learns that
  auxiliary task, and one with a predictor also learns from the predictor's losses.

  Subclasses define `publish_period`, `default_max_age` and `_policy_loss`.

  Args:
    name: the name of the module.
    online: the network that learns; its variables must exist.
    target: a second network with the same settings; it becomes a copy.
    discount: gamma.
    td_lambda: lambda of the returns; see `returns.n_step_returns`.
    value_cost: factor of the value loss, which is half the mean squared error.
    pixel_control_cost: factor of the auxiliary loss.
    pixel_control_discount: discount of the auxiliary task.
  """

  def __init__(self, name: str, online: actor_critic.ActorCritic,
               target: actor_critic.ActorCritic, discount: float, td_lambda: float,
               value_cost: float, pixel_control_cost: float,
               pixel_control_discount: float):
    super().__init__(name, online, target)
    self._discount = discount
    self._td_lambda = td_lambda
    self._value_cost = value_cost
    self._pixel_control_cost = pixel_control_cost
    self._pixel_control_discount = pixel_control_discount

  @property
  def acting_network(self) -> actor_critic.ActorCritic:
    """The target network."""
    return self.target

  def refresh_acting_network(self) -> None:
    """Updates the target network."""
    self.update_target()

  def loss(self, batch: unroll.Unroll) -> Tuple[tf.Tensor, Dict[str, Any]]:
    """Computes the loss of a batch, and metrics.

    In a replica context both are this replica's share: their sums over replicas are
    the values for the global batch.

    Args:
      batch: unrolls `[B, time, ...]`. Its policies are those of the target network at
        the time when that network acted.
    """
    agent_lib.check_batch(batch, unroll.Unroll)
    is_last = batch.is_last()
    network, tasks = self.online, batch.task[:, 0]
    outputs = self._outputs(network, batch)

    # The value function of each unroll's task, in PopArt's normalized units.
    normalized_values = tf.gather(outputs.value, tasks, axis=2, batch_dims=1)
    values = self._denormalize(normalized_values, tasks)
    targets = returns.n_step_returns(
        batch.reward, batch.discount, values, is_last, self._discount, self._td_lambda)

    # No action is taken at an episode's last step, and its value is not learned.
    valid = ~is_last[:, :-1]
    targets = tf.where(valid, targets, 0.)  # Elsewhere a first reward may be NaN.
    mean = averages.MaskedMean(valid)
    space = network.action_space
    policy = _action_rows(outputs.policy)
    method = f'{type(self).__name__}._policy_loss'
    policy_loss, policy_metrics = agent_lib.checked_loss(method, self._policy_loss(Steps(
        policy=policy, acting_policy=batch.policy,
        action=tf.nest.map_structure(lambda x: x[:, 1:], batch.action),
        advantages=targets - values[:, :-1], tasks=tasks, valid=valid, batch=batch)))
    normalized_targets = self._normalize(targets, tasks)
    value_loss = mean(0.5 * tf.square(normalized_values[:, :-1] - normalized_targets))
    loss = policy_loss + self._value_cost * value_loss
    metrics = {
        'value_loss': value_loss,
        'entropy': mean(space.entropy(policy)),
        'value': mean(values[:, :-1]),
    }
    if network.has_pixel_control:
      pixel_loss = self._pixel_control_loss(batch, outputs.pixel_control, is_last)
      loss += self._pixel_control_cost * pixel_loss
      metrics['pixel_control_loss'] = pixel_loss
    if network.predictor is not None:
      for name, part in self._predictor_losses(
          outputs.predictions, normalized_targets, tasks, valid).items():
        loss += network.predictor.costs[name] * part
        metrics[f'predictor_{name}_loss'] = part
    if network.popart is not None:
      metrics['popart'] = network.popart.sums(targets, tasks, valid)
    for name in policy_metrics.keys() & {'loss', *metrics}:
      raise config.ConfigError(
          f'{method} returns a metric {name!r}, which every actor-critic has: expected '
          'another name')
    return loss, {'loss': loss, **policy_metrics, **metrics}

  def _outputs(self, network: actor_critic.ActorCritic, batch: unroll.Unroll
               ) -> actor_critic.NetworkOutputs:
    """Computes outputs `[B, T + 1, ...]` for unrolls, from the restored memory."""
    outputs, _ = network(*inputs_and_state(network, batch))
    return outputs

  def _target_policy(self, batch: unroll.Unroll) -> action_space.Policy:
    """Computes the current target network's policy for T actions, without gradient."""
    policy = _action_rows(self._outputs(self.target, batch).policy)
    return tf.nest.map_structure(tf.stop_gradient, policy)

  def _policy_loss(self, steps: Steps) -> Tuple[tf.Tensor, Dict[str, tf.Tensor]]:
    """Computes the policy's loss, and metrics; on a replica, that replica's share."""
    raise NotImplementedError(f'{type(self).__name__} has no _policy_loss')

  def after_step(self, metrics: Dict[str, Any]) -> Dict[str, tf.Tensor]:
    """Updates PopArt's statistics with the value targets of a gradient step.

    Args:
      metrics: the metrics of `loss` that are not scalars, summed over replicas.

    Returns:
      The metrics without PopArt's sums.
    """
    metrics = dict(metrics)
    sums = metrics.pop('popart', None)
    if sums is not None:
      self._update_popart(sums)
    return metrics

  @tf.function(autograph=False)
  def _update_popart(self, sums) -> None:
    self.online.popart.update(sums, self.online.value_head.output_layer)

  def _normalize(self, values: tf.Tensor, tasks: tf.Tensor) -> tf.Tensor:
    popart = self.online.popart
    return values if popart is None else popart.normalize(values, tasks)

  def _denormalize(self, values: tf.Tensor, tasks: tf.Tensor) -> tf.Tensor:
    popart = self.online.popart
    return values if popart is None else popart.denormalize(values, tasks)

  def _predictor_losses(self, predictions: predictor.Predictions, targets: tf.Tensor,
                        tasks: tf.Tensor, valid: tf.Tensor) -> Dict[str, tf.Tensor]:
    """Computes means of the predictor's losses over steps, without the overlap."""
    mean = averages.MaskedMean(tf.ones_like(valid))
    losses = {name: mean(error[:, :-1])
              for name, error in predictions._asdict().items() if name != 'value'}
    values = tf.gather(predictions.value, tasks, axis=2, batch_dims=1)[:, :-1]
    losses['value'] = averages.MaskedMean(valid)(0.5 * tf.square(values - targets))
    return losses

  def _pixel_control_loss(self, batch: unroll.Unroll, q_values: tf.Tensor,
                          is_last: tf.Tensor) -> tf.Tensor:
    """Computes the mean of the auxiliary loss over unrolls."""
    images = [x for x in tf.nest.flatten(batch.observation) if x.shape.rank == 5]
    if len(images) != 1:
      raise config.ConfigError('ActorCritic.pixel_control_head: expected one image '
                               f'[H, W, C] in the observation, got {len(images)}')
    cell_size = images[0].shape[2] // q_values.shape[2]
    losses = pixel_control.pixel_control_loss(
        q_values, batch.action[:, 1:],
        pixel_control.pixel_control_rewards(images[0], cell_size),
        is_last, self._pixel_control_discount)
    return averages.MaskedMean(tf.ones_like(losses, tf.bool))(losses)


def _action_rows(policy: action_space.Policy) -> action_space.Policy:
  """Returns the policy at the first T of T + 1 steps, those that an action follows."""
  return tf.nest.map_structure(lambda x: x[:, :-1], policy)
