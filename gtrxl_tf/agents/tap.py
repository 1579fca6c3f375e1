"""The trajectory autoencoding planner (TAP): agent and policy."""

from typing import Any, Dict, Tuple

import dm_env
import tensorflow as tf

from gtrxl_tf.agents import agent as agent_lib
from gtrxl_tf.agents import beam_search
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.losses import averages
from gtrxl_tf.losses import tap
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import decision
from gtrxl_tf.networks import tap as network_lib
from gtrxl_tf.settings import config


@config.configurable
class TAPAgent(agent_lib.OfflineAgent):
  """Learns a model of trajectories as codes, and a prior over them (TAP).

  See "Efficient Planning in a Compact Latent Action Space" (Jiang et al., 2023).

  The authors train the prior after the autoencoder, in as many steps. Here both learn
  at once, in one run: the prior predicts the current codes, and passes no gradient to
  the autoencoder. The authors' prior learns the codes of an encoder without dropout;
  this one learns those of the encoder in training. Codes are moving averages of
  features, as in the authors' code.

  Args:
    network: the network that learns; its variables must exist.
    action_weight: weight of the squared error of actions. The default is the authors',
      as are the weights of states, rewards and returns, which are 1.
  """

  def __init__(self, network: network_lib.TAPNetwork,
               action_weight: config.PositiveFloat = 5.0):
    super().__init__('tap', network)
    self._action_weight = action_weight

  def loss(self, batch: decision.Segments) -> Tuple[tf.Tensor, Dict[str, Any]]:
    """Computes the loss of a batch, and metrics; on a replica, that replica's share.

    Values at steps that are not valid have no influence, but must be finite.
    """
    network = self.network
    if batch.valid.shape[1] != network.num_steps:
      raise config.ConfigError(
          f'rows of {batch.valid.shape[1]} steps: expected TAPNetwork.num_steps = '
          f'{network.num_steps}, as OfflineExperiment.segment_length times num_segments')
    steps = network.steps(
        batch.observation, batch.action, batch.reward, batch.return_to_go)
    state = network.states(
        tf.nest.map_structure(lambda x: x[:, 0], batch.observation), 1)
    features = network.encode(steps, batch.valid, training=True)
    indices, codes = network.quantize(features)
    predicted, ended = network.decode(
        tap.straight_through(features, codes), state, training=True)
    logits = network.prior(indices[:, :-1], state, training=True)
    losses = tap.tap_loss(
        predicted, steps, network.error_weights(self._action_weight), ended, batch.valid,
        features, codes, logits, indices)
    counts, sums = tap.code_sums(features, indices, network.num_codes)
    num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
    used = tf.cast(averages.sum_over_replicas(counts) > 0, tf.float32)
    return losses.total_loss, {
        'loss': losses.total_loss, 'reconstruction': losses.reconstruction,
        'ended': losses.ended, 'commitment': losses.commitment, 'prior': losses.prior,
        'codes_used': tf.reduce_sum(used) / num_replicas,
        'code_counts': counts, 'code_sums': sums}

  def after_step(self, metrics: Dict[str, Any]) -> Dict[str, tf.Tensor]:
    """Moves the codes."""
    self._move_codes(metrics['code_counts'], metrics['code_sums'])
    return {}

  @tf.function(autograph=False)
  def _move_codes(self, counts: tf.Tensor, sums: tf.Tensor) -> None:
    self.network.move_codes(counts, sums)


@config.configurable
class TAPPolicy(policy_lib.NetworkPolicy):
  """Plans from every state, and takes the first action of the best plan.

  A plan's value is the discounted sum of its rewards before the last step and of the
  return-to-go there.

  Args:
    network: the network that plans; its variables must exist.
    observation_spec: nest of dm_env specs.
    action_spec: nest of dm_env specs.
    return_scale: must be 1, as rewards and returns are normalized.
    return_discount: the discount of the returns that the network learned, and of a
      plan's rewards.
    horizon: steps of a plan; a multiple of `TAPNetwork.steps_per_code`, at most its
      `num_steps`.
    beam_width: plans in the beam.
    expansions: codes that are drawn to continue each plan.
    penalty: alpha, the weight of an improbable plan's log-probability.
    threshold: beta, the least mean probability of a plan's codes.

  The defaults are those of the authors' code for MuJoCo.
  """

  def __init__(self, network: network_lib.TAPNetwork, observation_spec: Any,
               action_spec: Any, return_scale: config.PositiveFloat = 1.0,
               return_discount: config.UnitInterval = 0.99,
               horizon: config.PositiveInt = 15, beam_width: config.PositiveInt = 64,
               expansions: config.PositiveInt = 4,
               penalty: config.NonNegativeFloat = 500.0,
               threshold: config.PositiveFraction = 0.05):
    if horizon % network.steps_per_code or horizon > network.num_steps:
      raise config.ConfigError(
          f'TAPPolicy.horizon = {horizon}: expected a multiple of '
          f'TAPNetwork.steps_per_code = {network.steps_per_code}, up to num_steps = '
          f'{network.num_steps}')
    if return_scale != 1:
      raise config.ConfigError(
          f'OfflineExperiment.return_scale = {return_scale} with TAPPolicy: expected 1, '
          'as returns are normalized')
    self._num_codes = horizon // network.steps_per_code
    self._search = dict(beam_width=beam_width, expansions=expansions,
                        penalty=penalty, threshold=threshold)
    self._discount = return_discount
    super().__init__(network, observation_spec, action_spec)

  def action(self, time_step: dm_env.TimeStep, policy_state: policy_lib.PolicyState,
             seed: Any = None) -> policy_lib.PolicyStep:
    state = self._network.states(time_step.observation, 1)
    plan, _ = beam_search.beam_search(
        lambda plans: self._log_probs(plans, state),
        lambda plans: self._values(plans, state), tf.shape(state)[0],
        self._num_codes, seed=action_space.stateless_seed(seed), **self._search)
    # Later codes have no influence on the first action.
    steps, _ = self._network.decode(self._network.codes(plan[:, :1]), state)
    actions, _, _ = self._network.denormalized(steps[:, 0])
    space = self._network.action_space
    sample = space.mode(action_space.Policy(mean=actions))
    return policy_lib.PolicyStep(
        space.to_environment(sample), policy_state._replace(previous_action=sample))

  def _log_probs(self, plans: tf.Tensor, state: tf.Tensor) -> tf.Tensor:
    logits = self._network.prior(*_rows(plans, state))[:, -1]
    return tf.reshape(
        tf.nn.log_softmax(logits), [-1, plans.shape[1], self._network.num_codes])

  def _values(self, plans: tf.Tensor, state: tf.Tensor) -> tf.Tensor:
    rows, states = _rows(plans, state)
    steps, _ = self._network.decode(self._network.codes(rows), states)
    _, rewards, returns = self._network.denormalized(steps)
    return tf.reshape(
        plan_values(rewards, returns, self._discount), [-1, plans.shape[1]])


def plan_values(rewards: tf.Tensor, returns: tf.Tensor, discount: float) -> tf.Tensor:
  """Computes plans' values `[...]` from their rewards and returns-to-go `[..., T]`.

  The return-to-go of a step includes its reward, so the last return includes the last
  reward.
  """
  gains = tf.concat([rewards[..., :-1], returns[..., -1:]], axis=-1)
  return tf.reduce_sum(gains * discount ** tf.range(gains.shape[-1], dtype=tf.float32),
                       axis=-1)


def _rows(plans: tf.Tensor, state: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
  """Turns plans `[B, N, m]` into rows `[B N, m]`; repeats states to `[B N, S]`."""
  num_plans, length = plans.shape[1:]
  return tf.reshape(plans, [-1, length]), tf.repeat(state, num_plans, axis=0)
