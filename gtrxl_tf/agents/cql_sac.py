"""Conservative Q-learning with continuous actions, on TF-Agents' `CqlSacAgent`."""

import importlib
import types
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import dm_env
import gin
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import tensor_spec

from gtrxl_tf.agents import agent as agent_lib
from gtrxl_tf.environments import optional
from gtrxl_tf.losses import averages
from gtrxl_tf.losses import cql
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import decision
from gtrxl_tf.networks import observation_statistics
from gtrxl_tf.networks import torsos
from gtrxl_tf.settings import config


def _tf_agents(module: str) -> types.ModuleType:
  """Imports a module of TF-Agents, which few users of this library need."""
  importlib.import_module('gtrxl_tf.networks.before_tf_agents')
  with gin.unlock_config():  # TF-Agents' modules register themselves with gin.
    return optional.load(f'tf_agents.{module}', 'conservative SAC', 'online')


@config.configurable
class CQLSACActor(tf.Module):
  """TF-Agents' tanh-Gaussian actor, without memory.

  Args:
    action_spec: the environment's action spec: one array of floats with finite bounds.
    units: width of each ReLU layer. The default is that of the authors' code.
    normalize_observations: as in `DecisionNetwork`.

  Attributes:
    action_space: the `ActionSpace` of `action_spec`.
    observation_statistics: the statistics that normalize observations, or None.
    network: the TF-Agents network, after `create_variables`. Its observations are
      vectors, its actions are vectors in [-1, 1].
  """

  def __init__(self, action_spec: Any,
               units: Sequence[config.PositiveInt] = (256, 256, 256),
               normalize_observations: bool = False):
    super().__init__(name='actor')
    self.action_space = action_space.ActionSpace(action_spec)
    self.action_space.check_bounded('CQLSACActor')
    dtype = tf.keras.mixed_precision.global_policy().compute_dtype
    if dtype != 'float32':
      raise config.ConfigError(
          f"Experiment.compute_dtype = {dtype!r}: expected 'float32' with "
          'CQLSACActor, as the networks of TF-Agents support no other')
    self.observation_statistics = None
    self.network = None
    self._vector = torsos.VectorTorso(())
    self._normalize_observations = normalize_observations
    self._units = tuple(units)

  def create_variables(self, observation_spec: Any) -> None:
    """Creates the network and its variables.

    Args:
      observation_spec: nest of `dm_env` array specs of one step's observation, which
        is flattened into one vector.
    """
    self.action_space.check_mask(observation_spec)
    size = sum(int(np.prod(spec.shape)) for spec in tf.nest.flatten(observation_spec))
    num_dimensions = int(np.prod(self.action_space.action_spec.shape))
    make_network = _tf_agents('networks.actor_distribution_network')
    projection = _tf_agents('agents.sac.tanh_normal_projection_network')
    self.network = make_network.ActorDistributionNetwork(
        tf.TensorSpec([size]),
        # Scalar bounds, since with vectors TF-Agents 0.19 counts the density of uniform
        # actions once too often for each further dimension.
        tensor_spec.BoundedTensorSpec([num_dimensions], tf.float32, -1.0, 1.0),
        fc_layer_params=self._units, continuous_projection_net=(
            projection.TanhNormalProjectionNetwork))
    self.network.create_variables()
    if self._normalize_observations:
      self.observation_statistics = observation_statistics.ObservationStatistics(
          observation_spec, running=False)
      observation_spec = self.observation_statistics.unbounded(observation_spec)
    self._vector.expect(observation_spec)

  def observe(self, observation: Any, batch_dims: int) -> tf.Tensor:
    """Flattens observations, with `batch_dims` batch axes, to the network's vectors."""
    if self.observation_statistics is not None:
      observation = self.observation_statistics.normalize(observation)
    return self._vector(observation, batch_dims)

  def initial_state(self, batch_size) -> Any:
    """Returns the empty state, since there is no memory."""
    return ()

  def initial_cache(self, batch_size) -> Any:
    """Returns the empty cache, since there is no memory."""
    return ()

  def best_action(self, inputs: actor_critic.NetworkInputs, cache: Any
                  ) -> Tuple[Any, Any]:
    """Takes the mode of the policy.

    Args:
      inputs: `[B, ...]`; only the observation is used.
      cache: returned as it is.

    Returns:
      A sample of `ActionSpace` `[B, ...]`, and the cache.
    """
    distribution, _ = self.network(
        self.observe(inputs.observation, 1), step_type=(), network_state=())
    shape = [-1, *self.action_space.action_spec.shape]
    return tf.reshape(distribution.mode(), shape), cache


@config.configurable
class CQLSACAgent(agent_lib.OfflineAgent):
  """CQL(H) on soft actor-critic (Kumar et al., 2020).

  The critics and their losses are those of TF-Agents' `CqlSacAgent`, but its conservative
  term leaves out the 1 / 2N of the paper's appendix F, for N = `num_samples`. Here, and
  in the metric `conservative_loss`, log(2N) is subtracted. The losses of the actor and
  of the entropy's weight are implemented here, so that the learner takes one step on all
  losses at once, where `CqlSacAgent` takes one step after the other.

  Neither the actor nor the critics have memory, and an observation is one vector: the
  agent is for control from states, not from images.

  The authors' code uses Adam on batches of 256 steps, with learning rates of 3e-4 for
  the critics and 1e-4 or 3e-4 for the rest, and without weight decay, warm-up, decay or
  clipping.

  Args:
    network: the actor; its variables must exist.
    critic_units: width of each ReLU layer of the two critics.
    alpha: weight of the conservative term; the authors use 5 or 10.
    lagrange_threshold: if given, the weight starts at alpha and is learned such that
      the term reaches this value, tau in the paper's CQL(Lagrange). That of TF-Agents,
      `cql_tau`, is log(2N) higher. By default the weight is constant.
    num_samples: number of the actor's actions, and number of uniform actions, from
      which the conservative term is estimated at each step.
    discount: gamma.
    target_update_rate: fraction by which the target critics move at each learner step.

  The defaults are those of the authors' code for MuJoCo (its README and
  `examples/cql_mujoco_new.py`); the paper's are for older data.
  """

  def __init__(self, network: CQLSACActor,
               critic_units: Sequence[config.PositiveInt] = (256, 256, 256),
               alpha: config.PositiveFloat = 5.0,
               lagrange_threshold: Optional[config.PositiveFloat] = None,
               num_samples: config.PositiveInt = 10,
               discount: config.UnitInterval = 0.99,
               target_update_rate: config.PositiveFraction = 5e-3):
    super().__init__('cql_sac', network)
    self._discount = discount
    self._lagrange_threshold = lagrange_threshold
    self._log_num_samples = np.log(2 * num_samples)
    self._log_alpha = tf.Variable(
        np.log(alpha), dtype=tf.float32, name='log_alpha',
        trainable=lagrange_threshold is not None)
    self._log_temperature = tf.Variable(0.0, name='log_temperature')
    actor = network.network
    observation_spec, action_spec = actor.input_tensor_spec, actor.output_tensor_spec
    self._critics = [
        _tf_agents('agents.ddpg.critic_network').CriticNetwork(
            (observation_spec, action_spec), joint_fc_layer_params=tuple(critic_units),
            kernel_initializer='glorot_uniform',
            last_kernel_initializer='glorot_uniform', name=f'critic_{i}')
        for i in range(2)]
    self._time_step = _tf_agents('trajectories.time_step')
    self._sac = _tf_agents('agents.cql.cql_sac_agent').CqlSacAgent(
        self._time_step.time_step_spec(observation_spec), action_spec, actor_network=actor,
        critic_network=self._critics[0], critic_network_2=self._critics[1],
        actor_optimizer=None, critic_optimizer=None, alpha_optimizer=None,
        cql_alpha=alpha, use_lagrange_cql_alpha=False, num_cql_samples=num_samples,
        include_critic_entropy_term=False, target_update_tau=target_update_rate,
        train_step_counter=tf.Variable(0, dtype=tf.int64, trainable=False))
    self._sac.initialize()

  @property
  def learned_variables(self) -> Tuple[tf.Variable, ...]:
    """The variables of the actor and the critics, and any learned weights of losses."""
    weights = self._log_temperature, self._log_alpha
    return (*self.network.trainable_variables, *self._critic_variables,
            *(weight for weight in weights if weight.trainable))

  @property
  def _critic_variables(self):
    return [x for critic in self._critics for x in critic.trainable_variables]

  def loss(self, batch: decision.Segments) -> Tuple[tf.Tensor, Dict[str, tf.Tensor]]:
    """Computes the loss of a batch, and metrics; on a replica, that replica's share.

    Values at steps that are not valid have no influence, but must be finite.

    Returns:
      The sum of all losses, each with a gradient to its own variables, and metrics.
    """
    mask = cql.target_mask(batch.valid, batch.discount)
    # If no step is valid, all are taken, with a share of 0: the mean of none is NaN.
    step, actions, next_step = self._transitions(batch, mask | ~tf.reduce_any(mask))
    # This replica's share in a mean over all steps: 0 if it has no valid steps.
    share = averages.MaskedMean(mask)(tf.ones_like(batch.reward))
    num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
    alpha, temperature = tf.exp(self._log_alpha), tf.exp(self._log_temperature)

    def critic_losses() -> Tuple[tf.Tensor, Any]:
      # pylint: disable=protected-access
      # TF-Agents divides this loss by the number of replicas.
      td_loss = 0.5 * num_replicas * share * (
          self._sac._critic_loss_with_optional_entropy_term(
              step, actions, next_step, tf.math.squared_difference, self._discount))
      conservative_loss = share * (
          self._sac._cql_loss(step, actions) - self._log_num_samples)
      return td_loss + alpha * conservative_loss, (td_loss, conservative_loss)

    def actor_losses() -> Tuple[tf.Tensor, Any]:
      distribution, _ = self.network.network(step.observation, step.step_type, ())
      sample = distribution.sample()
      log_prob = distribution.log_prob(sample)
      values = [critic((step.observation, sample))[0] for critic in self._critics]
      loss = tf.reduce_mean(temperature * log_prob - tf.minimum(*values))
      return share * loss, -share * tf.reduce_mean(log_prob)

    critic_loss, (td_loss, conservative_loss) = _for(
        self._critic_variables, critic_losses)
    actor_loss, entropy = _for(self.network.trainable_variables, actor_losses)
    # The negative number of dimensions, as in SAC (Haarnoja et al., 2018b).
    target_entropy = -share * actions.shape[-1]
    temperature_loss = self._log_temperature * tf.stop_gradient(
        entropy - target_entropy)
    loss = critic_loss + actor_loss + temperature_loss
    metrics = {'td_loss': td_loss, 'conservative_loss': conservative_loss,
               'actor_loss': actor_loss, 'entropy': entropy,
               'temperature': share * temperature}
    if self._lagrange_threshold is not None:
      loss -= alpha * tf.stop_gradient(
          conservative_loss - share * self._lagrange_threshold)
      metrics['alpha'] = share * alpha
    return loss, {'loss': loss, **metrics}

  def after_step(self, metrics: Dict[str, Any]) -> Dict[str, tf.Tensor]:
    """Moves the target critics towards the critics."""
    self._update_target()
    return metrics

  def _transitions(self, batch: decision.Segments, mask: tf.Tensor):
    """Returns the N steps in the mask, their actions `[N, C]`, and the next steps."""
    observation = self.network.observe(batch.observation, 2)
    # A row's last step is in the mask only if its episode terminates there.
    after = tf.concat([observation[:, 1:], observation[:, -1:]], axis=1)
    step_type = tf.fill(tf.shape(mask), int(dm_env.StepType.MID))
    time_step = self._time_step.TimeStep
    step = time_step(step_type, tf.zeros_like(batch.reward),
                     tf.ones_like(batch.discount), observation)
    reward = tf.where(batch.valid, batch.reward, 0.)
    next_step = time_step(step_type, reward, batch.discount, after)
    actions = tf.reshape(batch.action, [
        *batch.valid.shape, *self.network.network.output_tensor_spec.shape])
    return tf.nest.map_structure(
        lambda x: tf.boolean_mask(x, mask), (step, actions, next_step))

  @tf.function(autograph=False)
  def _update_target(self) -> None:
    self._sac._update_target()  # pylint: disable=protected-access


def _for(variables: Sequence[tf.Variable], losses: Callable[[], Tuple[tf.Tensor, Any]]
         ) -> Tuple[tf.Tensor, Any]:
  """Returns the results of `losses`, the first with a gradient to `variables` only."""
  with tf.GradientTape(watch_accessed_variables=False) as tape:
    tape.watch(variables)
    loss, others = losses()
  gradients = tape.gradient(loss, variables)
  linear = tf.add_n([tf.reduce_sum(tf.stop_gradient(gradient) * variable)
                     for gradient, variable in zip(gradients, variables)])
  loss, others = tf.nest.map_structure(tf.stop_gradient, (loss, others))
  return loss + linear - tf.stop_gradient(linear), others
